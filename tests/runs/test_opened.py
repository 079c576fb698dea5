"""A run that is read while it is written, and label files as corrections leave them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import timecycle as tc
from clips import small_world
from timecycle.errors import LabelError, OutputError

WORLD = small_world(frames=6)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "out"
    labels = {0: tc.Masks(WORLD.mask(0))}
    return tc.propagate_to_folder(WORLD.video(), labels, folder, encoder="rgb", config="fast").folder


@pytest.fixture
def unfinished(finished, tmp_path) -> Path:
    """The run as it was after three frames, in the middle of writing the fourth row."""
    folder = tmp_path / "out"
    shutil.copytree(finished, folder)
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "status": "running"}))
    for name in ("frames.csv", "objects.csv"):
        lines = (folder / name).read_text().splitlines(keepends=True)
        kept = [line for line in lines[1:] if int(line.partition(",")[0]) < 3]
        (folder / name).write_text("".join((lines[0], *kept)) + lines[-1][:7])
    return folder


def test_an_unfinished_run_is_refused_unless_it_is_asked_for(unfinished):
    with pytest.raises(OutputError, match="not finished"):
        tc.Run(unfinished)
    run = tc.Run(unfinished, unfinished=True)
    assert len(run) == 3
    assert set(run.confidence) == {0, 1, 2}
    assert run.label_file(2) == unfinished / "labels" / "00002.png"
    with pytest.raises(LabelError, match="no labels of frame 3"):
        run.label_file(3)


def test_a_run_that_has_just_begun_has_no_frames(unfinished):
    (unfinished / "frames.csv").unlink()
    assert len(tc.Run(unfinished, unfinished=True)) == 0


def test_label_files_that_a_correction_replaced_are_those_of_before(finished, tmp_path):
    folder = tmp_path / "out"
    shutil.copytree(finished, folder)
    run = tc.Run(folder)
    assert run.replaced_label_file(4) is None
    before = run.label_file(4).read_bytes()
    other = np.roll(WORLD.mask(4), 9, axis=1)
    encoder = tc.load_encoder("rgb")
    tc.correct(run, {4: tc.Masks(other)}, video=WORLD.video(), encoder=encoder)
    assert run.label_file(4).read_bytes() != before
    replaced = run.replaced_label_file(4)
    assert replaced is not None
    assert replaced.read_bytes() == before
    tc.undo(run)
    assert run.replaced_label_file(4) is None
