"""Output folders of others, or damaged ones: nothing outside them is touched, and everything is validated."""

import csv
import json
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from clips import small_world
from folders import contents
from oracle import OracleEncoder
from timecycle.errors import OutputError, TimecycleError
from timecycle.labels import Masks
from timecycle.propagation.settings import PropagateConfig
from timecycle.review.check import check
from timecycle.review.corrections import correct, undo
from timecycle.review.queue import suggest
from timecycle.runs.folder import OutputFolder
from timecycle.runs.run import RunSpec, run
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
    run(RunSpec(**sources, labels={0: Masks(world.mask(0))}, config=CONFIG), folder)
    correct(folder, {6: Masks(world.mask(6))}, **sources)
    return folder


@pytest.fixture
def out(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out"))


def change(folder: Path, **values: object) -> None:
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | values))


# Links


@pytest.mark.parametrize("name", ["labels/00004.png", "history/0001/labels/00006.png", "frames.csv", ".lock", "labels"])
@pytest.mark.parametrize("act", ["check", "undo", "correct", "overwrite"])
def test_link_in_a_run_is_not_followed(out, world, sources, tmp_path, name, act):
    """The folder has an interrupted correction, which the next command undoes by copying files."""
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
        "overwrite": lambda: run(
            RunSpec(**sources, labels={0: Masks(world.mask(0))}, config=CONFIG), out, overwrite=True
        ),
    }
    with pytest.raises(OutputError, match=r"is a link, not a file of the run|Too many levels of symbolic links"):
        acts[act]()
    assert (contents(precious) if precious.is_dir() else precious.read_bytes()) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_pipe_in_a_run_is_not_read(out):
    (out / "frames.csv").unlink()
    os.mkfifo(out / "frames.csv")
    with pytest.raises(OutputError, match="is a pipe or device"):
        check(out)


def test_record_with_too_many_frames_is_refused(out):
    record = json.loads((out / "run.json").read_text())
    change(out, video=record["video"] | {"frames": 10**15})
    with pytest.raises(OutputError, match=r"frames\.csv does not have one line for every frame"):
        check(out)


def test_check_writes_only_its_own_files(out):
    before = contents(out)
    check(out)
    after = contents(out)
    assert all(after[name] == content for name, content in before.items())
    new = {name.split("/")[0] for name in after.keys() - before.keys()}
    assert new <= {"report.html", "review.json", "review.png", "review"}


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", '{"../x": 1}', "{", "\udcff"])
def test_damaged_list_of_review_files_is_ignored(out, text):
    check(out)
    (out / "review" / "written.json").write_text(text, errors="surrogateescape")
    assert check(out).files


@pytest.mark.parametrize("name", ["-x", "", "\u0663", "1.5", "9" * 5000])
def test_object_of_masks_without_a_number_is_refused(out, name):
    with (out / "objects.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    rows[5][2] = name
    with (out / "objects.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    with pytest.raises(OutputError, match=r"objects\.csv has an object"):
        check(out)


def test_check_refuses_an_interrupted_correction_and_changes_nothing(out):
    change(out, corrections=0)
    before = contents(out)
    with pytest.raises(OutputError, match=r"was interrupted; undo it first: timecycle correct .* --undo"):
        check(out)
    assert contents(out) == before
    assert undo(out) == [6]
    check(out)


# Damage


def labels_record(kind: str = "masks", frames: Sequence[object] = (0,), **values: object) -> dict[str, object]:
    keys = [str(index) for index in frames]
    by_frame = {"sha256_by_frame": dict.fromkeys(keys, ""), "objects_by_frame": dict.fromkeys(keys)}
    return {"kind": kind, "frames": list(frames), "sha256": "", **by_frame, **values}


@pytest.mark.parametrize(
    "values",
    [
        {"status": []},
        {"video": None},
        {"video": {"name": "x", "sha256": "", "frames": 10**30, "width_px": "8", "height_px": 4}},
        {"video": {"name": "x", "sha256": "", "frames": 12, "width_px": 8, "height_px": 4, "assumed_fps": "fast"}},
        {"labels": labels_record(kind="pickles")},
        {"labels": labels_record(frames=["0"])},
        {"labels": labels_record(frames=[-1])},
        {"labels": labels_record(frames=[999])},
        {"labels": labels_record(sha256_by_frame={"1": ""})},
        {"labels": labels_record(objects_by_frame={"0": [1]})},
        {"config": {"neighbours": "ten"}},
        {"config": {"neighbours": 10**9}},
        {"config": {"surprise": 1}},
        {"config": []},
        {"confidence": {"min_confidence": "much"}},
        {"names": {"1": 7}},
        {"colours": {"blue": 1}},
        {"colours": {"#0000ff": 0}},
        {"names": None},
        {"outputs": {"label_files": "pickle"}},
        {"origin": "elsewhere"},
        {"origin": {"video": 3, "fps": None, "encoder": "rgb", "device": "auto", "precision": "fp32"}},
        {"corrections": -1},
        {"matching": "exact"},
        {"matching": {"rounding": 1}},
        {"exports": ["coco"]},
        {"exports": {"coco": "all"}},
        {"encoder": {"name": 1}},
    ],
    ids=str,
)
def test_record_with_wrong_values_is_refused(out, values):
    change(out, **values)
    for act in (lambda folder: OutputFolder(folder).read_record(), check, undo):
        with pytest.raises(OutputError, match=r"run\.json has|annotated frames that the video lacks"):
            act(out)


@pytest.mark.parametrize("text", ["", "[" * 100_000, "{}", "[1]", '{"timecycle": 1, "status"', "\x00", "9" * 5000])
def test_file_that_is_no_record_is_refused(out, text):
    (out / "run.json").write_text(text)
    with pytest.raises(OutputError, match=r"run\.json"):
        check(out)


@pytest.mark.parametrize("name", ["frames.csv", "objects.csv"])
@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"index\n1\n", b'"' + b"x" * 200_000, b"index,frame_number\n" * 9]
)
def test_damaged_tables_are_refused(out, name, content):
    (out / name).write_bytes(content)
    with pytest.raises(OutputError, match=r"cannot be read|has no confidence"):
        check(out)


def rewrite(path: Path, change) -> None:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    change(rows)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0].keys())
        table.writeheader()
        table.writerows(rows)


def test_unknown_state_is_refused(out):
    def set_state(rows):
        rows[3]["state"] = "<script>alert(1)</script>"

    rewrite(out / "objects.csv", set_state)
    with pytest.raises(OutputError, match="an object on frame"):
        check(out)


def test_confidence_that_is_not_a_number_comes_first_in_the_queue(out):
    def spoil(rows):
        for row in rows:
            row["confidence"] = "nan" if row["index"] == "9" else "1.0000"
            row["state"] = "visible"

    for name in ("objects.csv", "frames.csv"):
        rewrite(out / name, spoil)
    tables = OutputFolder(out).tables()
    assert not any(math.isnan(frame.confidence) for frame in tables.frames)
    assert suggest(tables)[0].index == 9


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "add", "nonsense"])
def test_damaged_history_is_refused_and_nothing_is_restored(out, damage):
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


# Resuming an interrupted run


@pytest.fixture(scope="module")
def interrupted(world, sources, tmp_path_factory) -> Path:
    """A run that was stopped after its last snapshot and before its end."""
    folder = tmp_path_factory.mktemp("interrupted") / "out"

    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == total - 1:
            raise StopError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("timecycle.propagation.video._SNAPSHOT_FRAMES", 4)
        labels = {0: Masks(world.mask(0)), 11: Masks(world.mask(11))}
        with pytest.raises(StopError):
            run(RunSpec(**sources, labels=labels, config=CONFIG), folder, progress=stop)
    return folder


def resume(folder: Path, world, sources) -> None:
    labels = {0: Masks(world.mask(0)), 11: Masks(world.mask(11))}
    run(RunSpec(**sources, labels=labels, config=CONFIG), folder, resume=True)


def test_damaged_unfinished_run_resumes_to_the_same_bytes_or_is_refused(interrupted, world, sources, tmp_path):
    whole = Path(shutil.copytree(interrupted, tmp_path / "whole"))
    resume(whole, world, sources)
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
            resume(damaged, world, sources)
        except TimecycleError:
            refused += 1
            continue
        found = contents(damaged)
        assert {key: found[key] for key in expected} == expected, name
    assert refused > len(files) // 2
