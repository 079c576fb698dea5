"""Output folders that came from someone else, or were damaged: nothing outside them is touched, nothing is believed."""

import csv
import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from clips import small_world
from oracle import OracleEncoder
from timecycle.errors import OutputError, TimecycleError
from timecycle.labels import Masks
from timecycle.propagation.settings import PropagateConfig
from timecycle.review.check import check
from timecycle.review.corrections import correct, undo
from timecycle.review.judged import read_judged
from timecycle.review.queue import suggest
from timecycle.review.review_files import _WRITTEN
from timecycle.run_record import read_record
from timecycle.runs import Task, run
from timecycle.video import open_video

CONFIG = PropagateConfig(window_px=32, anchor_window_px=32)


@pytest.fixture(scope="module")
def world():
    return small_world(frames=12)


@pytest.fixture(scope="module")
def sources(world):
    return {"video": open_video(world.video(), fps=12.5), "encoder": OracleEncoder(world, stride_px=4)}


@pytest.fixture(scope="module")
def finished(world, sources, tmp_path_factory) -> Path:
    """A run with one correction."""
    folder = tmp_path_factory.mktemp("run") / "out"
    run(Task(**sources, labels={0: Masks(world.mask(0))}, config=CONFIG), folder)
    correct(folder, {6: Masks(world.mask(6))}, **sources)
    return folder


@pytest.fixture
def out(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def change(folder: Path, **values: object) -> None:
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | values))


# Links


@pytest.mark.parametrize("name", ["labels/00004.png", "history/0001/labels/00006.png", "frames.csv", ".lock", "labels"])
@pytest.mark.parametrize("act", ["check", "undo", "correct", "overwrite"])
def test_a_link_in_a_run_leads_to_no_file_of_the_user(out, world, sources, tmp_path, name, act):
    """An unfinished undoing, which the next command would finish, copied files over what links stood for."""
    change(out, corrections=0)
    precious = tmp_path / "precious"
    if name == "labels":
        shutil.move(out / name, precious)
    else:
        precious.write_text("years of work")
    before = contents(precious) if precious.is_dir() else precious.read_bytes()
    (out / name).unlink(missing_ok=True)
    (out / name).symlink_to(precious)
    acts = {
        "check": lambda: check(out),
        "undo": lambda: undo(out),
        "correct": lambda: correct(out, {3: Masks(world.mask(3))}, **sources),
        "overwrite": lambda: run(Task(**sources, labels={0: Masks(world.mask(0))}, config=CONFIG), out, overwrite=True),
    }
    with pytest.raises(OutputError, match=r"is a link, not a file of the run|Too many levels of symbolic links"):
        acts[act]()
    assert (contents(precious) if precious.is_dir() else precious.read_bytes()) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_in_a_run_is_not_waited_for(out):
    (out / "frames.csv").unlink()
    os.mkfifo(out / "frames.csv")
    with pytest.raises(OutputError, match="is a pipe or device"):
        check(out)


def test_a_record_with_more_frames_than_memory_holds_is_refused(out):
    record = json.loads((out / "run.json").read_text())
    change(out, video=record["video"] | {"frames": 10**15})
    with pytest.raises(OutputError, match=r"frames\.csv does not have one line for every frame"):
        check(out)


def test_checking_writes_nothing_but_its_report(out):
    before = contents(out)
    check(out)
    after = contents(out)
    assert all(after[name] == content for name, content in before.items())
    new = {name.split("/")[0] for name in after.keys() - before.keys()}
    assert new <= {"report.html", "review.json", "review.png", "review"}


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", '{"../x": 1}', "{", "\udcff"])
def test_a_strange_list_of_what_an_earlier_check_wrote_is_passed_over(out, text):
    check(out)
    (out / "review" / _WRITTEN).write_text(text, errors="surrogateescape")
    assert check(out).files


@pytest.mark.parametrize("name", ["-x", "", "\u0663", "1.5", "9" * 5000])
def test_an_object_of_masks_without_a_number_is_refused(out, name):
    """Its outline was looked for by its number, when the page was drawn."""
    with (out / "objects.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    rows[5][2] = name
    with (out / "objects.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    with pytest.raises(OutputError, match=r"objects\.csv has an object"):
        check(out)


def test_checking_finishes_nobodys_correction(out):
    change(out, corrections=0)
    before = contents(out)
    with pytest.raises(OutputError, match=r"was interrupted; take it back first: timecycle correct .* --undo"):
        check(out)
    assert contents(out) == before
    assert undo(out) == [6]
    check(out)


# Damage


@pytest.mark.parametrize(
    "values",
    [
        {"status": []},
        {"video": None},
        {"video": {"name": "x", "sha256": "", "frames": 10**30, "width_px": "8", "height_px": 4}},
        {"labels": {"kind": "pickles", "frames": [0], "sha256": ""}},
        {"labels": {"kind": "masks", "frames": ["0"], "sha256": ""}},
        {"labels": {"kind": "masks", "frames": [-1], "sha256": ""}},
        {"labels": {"kind": "masks", "frames": [999], "sha256": ""}},
        {"config": {"neighbours": "ten"}},
        {"config": {"neighbours": 10**9}},
        {"config": {"surprise": 1}},
        {"config": []},
        {"trust": {"least": "much"}},
        {"names": {"1": 7}},
        {"colours": {"blue": 1}},
        {"colours": {"#0000ff": 0}},
        {"outputs": {"label_files": "pickle"}},
        {"origin": "elsewhere"},
        {"origin": {"video": 3, "fps": None, "encoder": "rgb", "device": "auto", "precision": "fp32"}},
        {"corrections": -1},
        {"encoder": {"name": 1}},
    ],
    ids=str,
)
def test_a_record_with_values_of_other_kinds_is_refused(out, values):
    change(out, **values)
    for act in (read_record, check, undo):
        with pytest.raises(OutputError, match=r"run\.json has|annotated frames that the video lacks"):
            act(out)


@pytest.mark.parametrize("text", ["", "[" * 100_000, "{}", "[1]", '{"timecycle": 1, "status"', "\x00", "9" * 5000])
def test_a_record_that_no_run_wrote_is_refused(out, text):
    (out / "run.json").write_text(text)
    with pytest.raises(OutputError, match=r"run\.json"):
        check(out)


@pytest.mark.parametrize("name", ["frames.csv", "objects.csv"])
@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"index\n1\n", b'"' + b"x" * 200_000, b"index,frame_number\n" * 9]
)
def test_tables_that_no_run_wrote_are_refused(out, name, content):
    (out / name).write_bytes(content)
    with pytest.raises(OutputError, match=r"cannot be read|was not judged"):
        check(out)


def rewrite(path: Path, change) -> None:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    change(rows)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0].keys())
        table.writeheader()
        table.writerows(rows)


def test_a_state_that_does_not_exist_is_refused(out):
    def set_state(rows):
        rows[3]["state"] = "<script>alert(1)</script>"

    rewrite(out / "objects.csv", set_state)
    with pytest.raises(OutputError, match="an object on frame"):
        check(out)


def test_confidence_that_is_no_number_comes_first(out):
    def spoil(rows):
        for row in rows:
            row["confidence"] = "nan" if row["index"] == "9" else "1.0000"
            row["state"] = "visible"

    for name in ("objects.csv", "frames.csv"):
        rewrite(out / name, spoil)
    judged = read_judged(out)
    assert not any(math.isnan(frame.confidence) for frame in judged.frames)
    assert suggest(judged)[0].index == 9


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "add", "nonsense"])
def test_a_damaged_history_is_refused_and_nothing_is_put_back(out, damage):
    entry = out / "history" / "0001"
    file = entry / "labels" / "00003.png"
    if damage == "flip":
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-5])
    elif damage == "remove":
        file.unlink()
    elif damage == "add":
        (entry / "labels" / "00099.png").write_bytes(file.read_bytes())
    else:
        (entry / "entry.json").write_text('{"frames": [6], "numbers": "all"}')
    before = contents(out)
    with pytest.raises(OutputError, match=r"the history in .*0001 is damaged: .*; remove .*history"):
        undo(out)
    changed = {name for name, content in contents(out).items() if content != before.get(name)}
    assert changed <= {"run.json"}


# Going on with a run that was interrupted


@pytest.fixture(scope="module")
def interrupted(world, sources, tmp_path_factory) -> Path:
    """Killed, as it seems, after its last snapshot but before its end."""
    folder = tmp_path_factory.mktemp("interrupted") / "out"

    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == total - 1:
            raise StopError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("timecycle.propagation.propagate._SNAPSHOT_FRAMES", 4)
        labels = {0: Masks(world.mask(0)), 11: Masks(world.mask(11))}
        with pytest.raises(StopError):
            run(Task(**sources, labels=labels, config=CONFIG), folder, progress=stop)
    return folder


def go_on(folder: Path, world, sources) -> None:
    labels = {0: Masks(world.mask(0)), 11: Masks(world.mask(11))}
    run(Task(**sources, labels=labels, config=CONFIG), folder, resume=True)


def test_an_interrupted_run_goes_on_to_the_same_bytes_or_not_at_all(interrupted, world, sources, tmp_path):
    """Whatever file is damaged, and however."""
    whole = Path(shutil.copytree(interrupted, tmp_path / "whole"))
    go_on(whole, world, sources)
    expected = {
        name: content for name, content in contents(whole).items() if name.startswith(("labels", "conf", "fr", "ob"))
    }
    files = [name for name in contents(interrupted) if not name.startswith(("overlay", ".passes", ".work/features"))]
    assert any(name.endswith("forward.snapshot") for name in files)
    generator = np.random.default_rng(0)
    refused = 0
    for number, name in enumerate(files):
        damaged = Path(shutil.copytree(interrupted, tmp_path / f"damaged{number}"))
        content = bytearray((damaged / name).read_bytes())
        if number % 3 == 0:
            content = content[: len(content) // 2]
        else:
            content[generator.integers(len(content))] ^= 1 << generator.integers(8)
        (damaged / name).write_bytes(content)
        try:
            go_on(damaged, world, sources)
        except TimecycleError:
            refused += 1
            continue
        found = contents(damaged)
        assert {key: found[key] for key in expected} == expected, name
    assert refused > len(files) // 2
