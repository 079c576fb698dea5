"""The fuzzer finds what it should find, and a few inputs of every cheap kind find nothing."""

import sys

import pytest
from planted_defects import CRASHES, HANGS, LIES, RAISES, REFUSES, SOUND

import fuzz
import fuzz_runs
from fuzz_child import chance_of, find_kind, make, prepare
from fuzz_mutations import changed_csv, changed_json, changed_npy, changed_png, changed_safetensors, damaged

CHEAP = (
    *("coordinates", "frames", "keypoints", "manifests", "masks", "names", "packs", "settings", "videos", "weights"),
    *("cvat", "deeplabcut", "page", "sam2_prompts", "tapvid", "yolo", "youtube_vos"),
)
PLANTED = "planted_defects:DEFECTS"

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="its limits are those of Linux")


def test_a_crash_a_hang_another_exception_and_a_wrong_result_are_found(tmp_path):
    outcomes = fuzz.fuzz({PLANTED: 6}, seed=0, work=tmp_path)
    assert {one.number: one.sort for one in outcomes} == {
        SOUND: "accepted",
        REFUSES: "refused",
        RAISES: "other_exception",
        LIES: "wrong",
        CRASHES: "crash",
        HANGS: "hang",
    }
    words = {one.number: one.words for one in outcomes}
    assert words[CRASHES] == "SIGSEGV"
    assert words[RAISES].startswith("ZeroDivisionError: of another library (planted_defects.py:")
    # What was found is kept, and can be read again.
    assert len(list((tmp_path / "found").iterdir())) == 4
    figures = fuzz.summary(outcomes)
    assert (figures["inputs"], figures["findings"]) == (6, 4)
    assert figures["by_kind"][PLANTED]["remarks"] == {"as it should be": 1}
    with pytest.raises(ZeroDivisionError, match="of another library"):
        fuzz.replay(PLANTED, RAISES, seed=0, work=tmp_path)


def test_a_few_inputs_of_every_cheap_kind_find_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("TIMECYCLE_DATA", raising=False)  # the same with and without footage
    outcomes = fuzz.fuzz(dict.fromkeys(CHEAP, 6), seed=0, work=tmp_path)
    assert len(outcomes) == 6 * len(CHEAP)
    assert fuzz.summary(outcomes)["listed"] == []
    assert {one.sort for one in outcomes} == {"accepted", "refused"}


@pytest.mark.parametrize("word", ["coordinates", "keypoints", "manifests", "masks", "names", "weights"])
def test_an_input_follows_from_seed_kind_and_number(tmp_path, word):
    kind = find_kind(word)
    made = []
    for turn in range(2):
        sources = prepare(kind, word, tmp_path / str(turn))
        for number in (3, 1):
            make(kind, sources, chance_of(0, word, number), tmp_path / "input")
            made.append(fuzz_runs.files_of(tmp_path / "input"))
    assert made[:2] == made[2:]
    assert made[0] != made[1]


def test_most_changes_leave_something_to_read(tmp_path):
    """A fuzzer whose every input is refused at the first byte tests nothing."""
    png = prepare(find_kind("masks"), "masks", tmp_path)[0].content
    weights = prepare(find_kind("weights"), "weights", tmp_path).small
    arrays = prepare(find_kind("coordinates"), "coordinates", tmp_path)
    for change, content, magic in ((changed_png, png, b"\x89PNG"), (changed_npy, arrays, b"\x93NUMPY")):
        kept = [change(chance_of(0, "magic", number), content).startswith(magic) for number in range(50)]
        assert sum(kept) > 40
    same = [changed_safetensors(chance_of(0, "same", number), weights) == weights for number in range(50)]
    assert sum(same) < 5


def test_changes_of_one_input_do_not_reach_the_next():
    """Strange lists and tables that are put into an input were changed by those after it."""
    content = b'{"a": [1, {"b": null}], "c": {}}'
    first = [changed_json(chance_of(2, "json", number), content) for number in range(300)]
    assert [changed_json(chance_of(2, "json", number), content) for number in range(300)] == first


def test_any_content_can_be_damaged():
    for number in range(200):
        for size in (0, 1, 5, 2000):
            chance = chance_of(1, "damage", number)
            damaged(chance, chance.randbytes(size))
    for number in range(100):
        assert isinstance(changed_json(chance_of(1, "json", number), b'{"a": [1, {"b": null}]}'), bytes)
        assert isinstance(changed_csv(chance_of(1, "csv", number), b"a,b\n1,2\n"), bytes)


def test_the_command_says_what_became_of_how_many_inputs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fuzz.py", "--kind", PLANTED, "--count", "3", "--dry", "--work", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        fuzz.main()
    assert ended.value.code == 1
    told = capsys.readouterr().out
    assert f"other_exception {PLANTED}:{RAISES}  ZeroDivisionError: of another library" in told
    assert '"inputs": 3,\n  "findings": 1,' in told
