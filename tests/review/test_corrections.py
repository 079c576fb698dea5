"""Corrections: inside their interval labels improve, outside not a byte changes, and undoing gives every byte back."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from clips import small_world
from oracle import iou
from timecycle.errors import LabelError, OutputError
from timecycle.labels import Coordinates, Keypoints, Masks
from timecycle.propagation.settings import PropagateConfig
from timecycle.review import corrections
from timecycle.review.calibration import corrected, right_of
from timecycle.review.check import check
from timecycle.review.corrections import correct, history, undo
from timecycle.review.judged import read_judged
from timecycle.runs import Task, run
from timecycle.video import open_video

FRAMES = 20
CONFIG = PropagateConfig(window_px=32, anchor_window_px=32)


@pytest.fixture(scope="module")
def world():
    return small_world(frames=FRAMES)


@pytest.fixture(scope="module")
def wrong_start(world):
    """A first drawing that misses the right half of everything: labels that wait for a correction."""
    ids = world.mask(0).copy()
    for identity in np.unique(ids[ids > 0]):
        columns = np.flatnonzero((ids == identity).any(axis=0))
        ids[:, (columns[0] + columns[-1]) // 2 :][ids[:, (columns[0] + columns[-1]) // 2 :] == identity] = 0
    return Masks(ids)


@pytest.fixture(scope="module")
def template(world, video, encoder, wrong_start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "out"
    labels = {0: wrong_start, FRAMES - 1: Masks(world.mask(FRAMES - 1), complete=True)}
    run(Task(video=video, labels=labels, encoder=encoder, config=CONFIG), folder)
    return folder


@pytest.fixture
def out(template, tmp_path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "out"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def overlap(folder: Path, world, frames: range) -> float:
    """Of all that is labelled with all that is there, on average."""
    masks = [Masks.read(folder / "labels" / f"{index:05d}.png").ids for index in frames]
    return float(np.mean([iou(ids > 0, world.mask(index) > 0) for index, ids in zip(frames, masks, strict=True)]))


def test_labels_improve_inside_and_nothing_changes_outside(out, world, video, encoder):
    before = contents(out)
    was = overlap(out, world, range(1, 10))
    (first,) = correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    assert (first.first, first.last) == (1, 18)
    assert overlap(out, world, range(1, 10)) > was + 0.05
    (second,) = correct(out, {5: Masks(world.mask(5))}, video=video, encoder=encoder)
    assert (second.first, second.last) == (1, 9)
    after = contents(out)
    assert before["labels/00000.png"] == after["labels/00000.png"]
    assert before["labels/00019.png"] == after["labels/00019.png"]


def test_frames_outside_the_interval_are_byte_identical(out, world, video, encoder):
    correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    before = contents(out)
    (done,) = correct(out, {5: Masks(world.mask(5))}, video=video, encoder=encoder)
    after = contents(out)
    for index in (0, *range(10, FRAMES)):
        for name in (f"labels/{index:05d}.png", f"confidence/{index:05d}.png"):
            assert before[name] == after[name]
    rows = [content["frames.csv"].decode().splitlines() for content in (before, after)]
    assert rows[0][11:] == rows[1][11:]
    assert set(done.changed) <= set(range(1, 10))
    assert [int(name[7:12]) for name in after if name.startswith("labels/") and before[name] != after[name]] == list(
        done.changed
    )


def test_undoing_gives_every_byte_back(out, world, video, encoder):
    states = [contents(out)]
    for index in (10, 5):
        correct(out, {index: Masks(world.mask(index))}, video=video, encoder=encoder)
        states.append(contents(out))
    assert [entry.index for entry in history(out)] == [10, 5]
    assert undo(out) == 5
    assert contents(out) == states[1]
    assert undo(out) == 10
    assert contents(out) == states[0]
    with pytest.raises(OutputError, match="has no correction to undo"):
        undo(out)


def test_a_correction_is_a_drawing_from_now_on(out, world, video, encoder):
    correct(out, {10: Masks(world.mask(10), complete=True)}, video=video, encoder=encoder)
    assert np.array_equal(Masks.read(out / "labels" / "00010.png").ids, world.mask(10))
    judged = read_judged(out)
    assert judged.drawings == [0, 10, 19]
    assert judged.frames[10].confidence == 1.0
    sources = [row["source"] for row in csv.DictReader((out / "frames.csv").open())]
    assert sources == ["given", *["blended"] * 9, "given", *["blended"] * 8, "given"]
    assert len(open_video(out / "overlay.mp4")) == FRAMES


@pytest.mark.parametrize("point", ["_move", "_draw_again"])
def test_a_correction_that_is_killed_half_way_is_undone_by_the_next(out, world, video, encoder, monkeypatch, point):
    before = contents(out)
    whole = getattr(corrections, point)

    def killed(*given: object) -> None:
        if point == "_move":
            (given[0] / "labels" / "00003.png").replace(out / "labels" / "00003.png")
        else:
            whole(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(corrections, point, killed)
    with pytest.raises(KeyboardInterrupt):
        correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    monkeypatch.setattr(corrections, point, whole)
    assert contents(out) != before
    assert undo(out) == 10  # the one that was killed, and no other
    assert contents(out) == before


def test_only_the_correction_that_was_killed_is_taken_back(out, world, video, encoder, monkeypatch):
    correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    before = contents(out)
    with monkeypatch.context() as patch:
        patch.setattr(corrections, "_draw_again", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            correct(out, {5: Masks(world.mask(5))}, video=video, encoder=encoder)
    check(out)
    for name in ("report.html", "review.json", "review.png"):
        (out / name).unlink(missing_ok=True)
    assert contents(out) == before


def test_a_new_run_forgets_the_corrections_of_the_old(out, world, video, encoder):
    correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    run(Task(video=video, labels={0: Masks(world.mask(0))}, encoder=encoder, config=CONFIG), out, overwrite=True)
    assert not (out / "history").exists()
    with pytest.raises(OutputError, match="has no correction to undo"):
        undo(out)


def test_a_drawn_frame_that_is_drawn_anew_keeps_its_other_objects(world, video, encoder, tmp_path):
    run(Task(video=video, labels={0: Masks(world.mask(0))}, encoder=encoder, config=CONFIG), tmp_path / "out")
    only = Masks.of(np.where(world.mask(0) == 1, 1, 0))
    correct(tmp_path / "out", {0: only}, video=video, encoder=encoder)
    assert np.array_equal(Masks.read(tmp_path / "out" / "labels" / "00000.png").ids, world.mask(0))
    assert 2 in Masks.read(tmp_path / "out" / "labels" / "00003.png").ids


def test_where_labels_go_forward_only_a_correction_does_too(world, video, encoder, tmp_path):
    config = PropagateConfig(window_px=32, anchor_window_px=32, direction="forward")
    out = tmp_path / "out"
    run(Task(video=video, labels={5: Masks(world.mask(5))}, encoder=encoder, config=config), out)
    before = contents(out)
    (done,) = correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    assert (done.first, done.last) == (10, 19)
    undo(out)
    assert contents(out) == before
    correct(out, {2: Masks(world.mask(2))}, video=video, encoder=encoder)
    assert (out / "confidence" / "00003.png").exists()
    undo(out)
    assert contents(out) == before


def test_points_are_corrected_too(world, video, encoder, tmp_path):
    truth = [world.keypoints(t) for t in (0, 10)]
    points = [Keypoints(one.names, one.xy, one.visible) for one in truth]
    run(Task(video=video, labels={0: points[0]}, encoder=encoder, config=CONFIG), tmp_path / "out")
    (done,) = correct(tmp_path / "out", {10: points[1]}, video=video, encoder=encoder)
    assert (done.first, done.last) == (1, 19)
    rows = [row for row in csv.DictReader((tmp_path / "out" / "keypoints.csv").open()) if row["frame"] == "10"]
    assert [row["name"] for row in rows] == list(truth[1].names)
    visible = np.array([row["visible"] == "1" for row in rows])
    assert np.array_equal(visible, truth[1].visible)


def test_what_cannot_be_corrected_is_refused(out, world, video, encoder, tmp_path):
    with pytest.raises(OutputError, match="does not say where its video lies"):
        correct(out, {3: Masks(world.mask(3))})
    other = small_world(frames=FRAMES + 1)
    with pytest.raises(OutputError, match="the video is not the one that was labelled"):
        correct(out, {3: Masks(world.mask(3))}, video=open_video(other.video()), encoder=encoder)
    point = Keypoints(("a",), np.zeros((1, 2), np.float32), np.ones(1, bool))
    with pytest.raises(LabelError, match=r"frame 3 was given keypoints but the labels in .* are masks"):
        correct(out, {3: point}, video=video, encoder=encoder)
    with pytest.raises(LabelError, match="labels were given for frame 40"):
        correct(out, {40: Masks(world.mask(3))}, video=video, encoder=encoder)
    run(Task(video=video, labels={0: Coordinates.of_image(64, 96)}, encoder=encoder, config=CONFIG), tmp_path / "xy")
    with pytest.raises(LabelError, match="which refer to one frame only"):
        correct(tmp_path / "xy", {3: Coordinates.of_image(64, 96)}, video=video, encoder=encoder)
    with pytest.raises(OutputError, match="holds no run"):
        undo(tmp_path)


def test_corrections_teach_how_to_read_confidence(out, world, video, encoder):
    """The first drawing was wrong, so everything is worse than it seems, and the frame that is drawn anew tells."""
    told = {name: one.confidence for name, one in read_judged(out).objects[10].items()}
    before = check(out)
    assert before.corrected == 0
    correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    known = corrected(out)
    assert {one.confidence for one in known} < set(told.values())  # the third object is neither labelled nor there
    assert len(known) == 2
    assert all(0 <= one.right < 0.9 for one in known)  # half of everything was missing
    after = check(out)
    assert after.corrected == len(known)
    assert "calibrated by the frames you corrected" in after.report.read_text()
    raw = read_judged(out)
    assert after.judged.frames[10] == raw.frames[10]  # drawn
    assert any(a.confidence != b.confidence for a, b in zip(after.judged.frames, raw.frames, strict=True))
    undo(out)
    assert check(out).corrected == 0


def test_points_that_stayed_were_right():
    was = Keypoints(("a", "b", "c"), np.float32([[0, 0], [50, 50], [9, 9]]), np.array([True, True, False]))
    now = Keypoints(("a", "b", "c"), np.float32([[3, 4], [80, 50], [9, 9]]), np.array([True, True, False]))
    assert [right_of(was, now, name, near_px=5.0) for name in "abc"] == [1.0, 0.0, None]
