"""Corrections: labels improve inside their interval, no byte changes outside it, and undoing restores every byte."""

import collections
import csv
import functools
import itertools
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import folders
from clips import small_world, write_clip
from oracle import OracleEncoder, iou
from timecycle.api import review as api
from timecycle.cli.main import main
from timecycle.errors import LabelError, OutputError
from timecycle.labels import Coordinates, Keypoints, Masks
from timecycle.propagation import propagator
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import LabelledFrame, propagate
from timecycle.review.calibration import corrected_objects
from timecycle.review.check import check
from timecycle.review.corrections import correct, undo
from timecycle.runs import exporting, history
from timecycle.runs.folder import OutputFolder
from timecycle.runs.outputs import ContactSheet
from timecycle.runs.run import RunSpec, run
from timecycle.video import VideoWriter, open_video

FRAMES = 20
CONFIG = PropagateConfig(window_px=32, anchor_window_px=32)


@pytest.fixture(scope="module")
def world():
    return small_world(frames=FRAMES)


@pytest.fixture(scope="module")
def wrong_start(world):
    """An annotation of the first frame that misses the right half of every object, to be corrected."""
    ids = world.mask(0).copy()
    for identity in np.unique(ids[ids > 0]):
        columns = np.flatnonzero((ids == identity).any(axis=0))
        ids[:, (columns[0] + columns[-1]) // 2 :][ids[:, (columns[0] + columns[-1]) // 2 :] == identity] = 0
    return Masks(ids)


@pytest.fixture(scope="module")
def template(world, video, encoder, wrong_start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "out"
    labels = {0: wrong_start, FRAMES - 1: Masks(world.mask(FRAMES - 1), exhaustive=True)}
    run(RunSpec(video=video, labels=labels, encoder=encoder, config=CONFIG), folder)
    return folder


@pytest.fixture
def out(template, tmp_path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "out"))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run but the pass cache."""
    return {name: content for name, content in folders.contents(folder).items() if ".passes" not in Path(name).parts}


def contents_before_encoding(folder: Path) -> dict[str, object]:
    """The same with the number of frames of overlay videos: libx264 may encode images this small in two ways."""
    found: dict[str, object] = {}
    for name, content in contents(folder).items():
        if name.endswith("overlay.mp4"):
            found[name] = len(open_video(folder / name))
        elif name.endswith("entry.json"):
            entry = json.loads(content)
            found[name] = entry | {"sha256": entry["sha256"] | {"overlay.mp4": None}}
        else:
            found[name] = content
    return found


def overlap(folder: Path, world, frames: range) -> float:
    """The mean overlap of all labels with all objects."""
    masks = [Masks.read(folder / "labels" / f"{index:05d}.png").ids for index in frames]
    return float(np.mean([iou(ids > 0, world.mask(index) > 0) for index, ids in zip(frames, masks, strict=True)]))


def test_labels_improve_inside_the_interval_and_stay_outside(out, world, video, encoder):
    before = contents(out)
    overlap_before = overlap(out, world, range(1, 10))
    (first,) = correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    assert (first.first, first.last) == (1, 18)
    assert overlap(out, world, range(1, 10)) > overlap_before + 0.05
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


def test_undoing_restores_every_byte(out, world, video, encoder):
    states = [contents(out)]
    for index in (10, 5):
        correct(out, {index: Masks(world.mask(index))}, video=video, encoder=encoder)
        states.append(contents(out))
    assert [entry.frames for entry in history.read_history(OutputFolder(out))] == [[10], [5]]
    assert undo(out) == [5]
    assert contents(out) == states[1]
    assert undo(out) == [10]
    assert contents(out) == states[0]
    with pytest.raises(OutputError, match="has no correction to undo"):
        undo(out)


def test_corrected_frame_becomes_an_annotated_frame(out, world, video, encoder):
    correct(out, {10: Masks(world.mask(10), exhaustive=True)}, video=video, encoder=encoder)
    assert np.array_equal(Masks.read(out / "labels" / "00010.png").ids, world.mask(10))
    tables = OutputFolder(out).tables()
    assert tables.annotated_frames == [0, 10, 19]
    assert tables.frames[10].confidence == 1.0
    sources = [row["source"] for row in csv.DictReader((out / "frames.csv").open())]
    assert sources == ["annotated", *["blended"] * 9, "annotated", *["blended"] * 8, "annotated"]
    assert len(open_video(out / "overlay.mp4")) == FRAMES


@pytest.mark.parametrize("point", ["move", "record"])
def test_interrupted_correction_is_undone_by_the_next_command(out, world, video, encoder, monkeypatch, point):
    before = contents(out)

    def interrupt_moving(staged: OutputFolder, folder: OutputFolder) -> None:
        (staged.labels / "00003.png").replace(folder.labels / "00003.png")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if point == "move":
            patch.setattr(history, "_move", interrupt_moving)
        else:
            patch.setattr(OutputFolder, "write_record", interrupt)
        with pytest.raises(KeyboardInterrupt):
            correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    assert contents(out) != before
    assert undo(out) == [10]  # the interrupted one, and no other
    assert contents(out) == before


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_only_the_interrupted_correction_is_undone(out, world, video, encoder, monkeypatch):
    correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    before = contents(out)
    with monkeypatch.context() as patch:
        patch.setattr(OutputFolder, "write_record", interrupt)
        with pytest.raises(KeyboardInterrupt):
            correct(out, {5: Masks(world.mask(5))}, video=video, encoder=encoder)
    assert undo(out) == [5]
    assert contents(out) == before


def test_files_of_file_managers_change_nothing(out, world, video, encoder):
    before = contents(out)
    foreign = ("labels", "confidence", "history", "history/0001", "history/0001/labels")
    correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    for name in (".DS_Store", "Thumbs.db", "._00003.png"):
        for folder in foreign:
            (out / folder / name).write_bytes(b"of a file manager")
    correct(out, {5: Masks(world.mask(5))}, video=video, encoder=encoder)
    assert [entry.frames for entry in history.read_history(OutputFolder(out))] == [[10], [5]]
    assert (undo(out), undo(out)) == ([5], [10])
    assert {name: content for name, content in contents(out).items() if content != b"of a file manager"} == before
    assert (out / "labels" / ".DS_Store").exists()


def test_overwriting_a_run_removes_its_history(out, world, video, encoder):
    correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    run(RunSpec(video=video, labels={0: Masks(world.mask(0))}, encoder=encoder, config=CONFIG), out, overwrite=True)
    assert not (out / "history").exists()
    with pytest.raises(OutputError, match="has no correction to undo"):
        undo(out)


def test_correcting_an_annotated_frame_keeps_its_other_objects(world, video, encoder, tmp_path):
    run(RunSpec(video=video, labels={0: Masks(world.mask(0))}, encoder=encoder, config=CONFIG), tmp_path / "out")
    only = Masks.of(np.where(world.mask(0) == 1, 1, 0))
    correct(tmp_path / "out", {0: only}, video=video, encoder=encoder)
    assert np.array_equal(Masks.read(tmp_path / "out" / "labels" / "00000.png").ids, world.mask(0))
    assert 2 in Masks.read(tmp_path / "out" / "labels" / "00003.png").ids


def test_correction_of_a_forward_run_changes_nothing_before_it(world, video, encoder, tmp_path):
    config = PropagateConfig(window_px=32, anchor_window_px=32, direction="forward")
    out = tmp_path / "out"
    run(RunSpec(video=video, labels={5: Masks(world.mask(5))}, encoder=encoder, config=config), out)
    before = contents(out)
    (done,) = correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    assert (done.first, done.last) == (10, 19)
    undo(out)
    assert contents(out) == before
    correct(out, {2: Masks(world.mask(2))}, video=video, encoder=encoder)
    assert (out / "confidence" / "00003.png").exists()
    undo(out)
    assert contents(out) == before


def test_keypoints_are_corrected(world, video, encoder, tmp_path):
    ground_truth = [world.keypoints(t) for t in (0, 10)]
    points = [Keypoints(one.names, one.xy, one.visible) for one in ground_truth]
    run(RunSpec(video=video, labels={0: points[0]}, encoder=encoder, config=CONFIG), tmp_path / "out")
    (done,) = correct(tmp_path / "out", {10: points[1]}, video=video, encoder=encoder)
    assert (done.first, done.last) == (1, 19)
    rows = [row for row in csv.DictReader((tmp_path / "out" / "keypoints.csv").open()) if row["frame"] == "10"]
    assert [row["name"] for row in rows] == list(ground_truth[1].names)
    visible = np.array([row["visible"] == "1" for row in rows])
    assert np.array_equal(visible, ground_truth[1].visible)


def test_invalid_corrections_are_refused(out, world, video, encoder, tmp_path):
    with pytest.raises(OutputError, match="does not say where its video is"):
        correct(out, {3: Masks(world.mask(3))})
    other = small_world(frames=FRAMES + 1)
    with pytest.raises(OutputError, match="the video is not the one that was labelled"):
        correct(out, {3: Masks(world.mask(3))}, video=open_video(other.video()), encoder=encoder)
    point = Keypoints(("a",), np.zeros((1, 2), np.float32), np.ones(1, bool))
    with pytest.raises(LabelError, match=r"frame 3 was given keypoints but the labels in .* are masks"):
        correct(out, {3: point}, video=video, encoder=encoder)
    with pytest.raises(LabelError, match="labels were given for frame 40"):
        correct(out, {40: Masks(world.mask(3))}, video=video, encoder=encoder)
    run(RunSpec(video=video, labels={0: Coordinates.of_image(64, 96)}, encoder=encoder, config=CONFIG), tmp_path / "xy")
    with pytest.raises(LabelError, match="which refer to one frame only"):
        correct(tmp_path / "xy", {3: Coordinates.of_image(64, 96)}, video=video, encoder=encoder)
    with pytest.raises(OutputError, match="holds no run"):
        undo(tmp_path)


def test_corrections_calibrate_confidence(out, world, video, encoder):
    """The first annotation was wrong, so all labels are worse than their confidence, as the correction shows."""
    estimated = {one.confidence for one in OutputFolder(out).tables().objects[10].values()}
    before = check(out)
    assert before.corrected == 0
    correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    corrected = corrected_objects(OutputFolder(out))
    assert {confidence for confidence, _ in corrected} < estimated  # the third object is neither labelled nor present
    assert len(corrected) == 2
    assert all(0 <= accuracy < 0.9 for _, accuracy in corrected)  # half of every object was missing
    after = check(out)
    assert after.corrected == len(corrected)
    assert "calibrated by the frames you corrected" in after.report.read_text()
    raw = OutputFolder(out).tables()
    assert after.tables.frames[10] == raw.frames[10]  # annotated
    assert any(a.confidence != b.confidence for a, b in zip(after.tables.frames, raw.frames, strict=True))
    undo(out)
    assert check(out).corrected == 0


# Several corrections at once


class Counting(OracleEncoder):
    """Counts how often each image is encoded."""

    def __init__(self, world):
        super().__init__(world, stride_px=4)
        self.counts = collections.Counter()

    def encode(self, image):
        self.counts[image.tobytes()] += 1
        return super().encode(image)


def test_corrections_given_together_are_propagated_once(out, world, video):
    encoder = Counting(world)
    given = {5: Masks(world.mask(5)), 12: Masks(world.mask(12))}
    (done,) = correct(out, given, video=video, encoder=encoder)
    # The interval begins at the first frame: the object that appears later is not annotated there.
    assert (list(done.frames), done.first, done.last) == ([5, 12], 0, 18)
    assert sum(encoder.counts.values()) == FRAMES  # each frame of the interval and its ends, once
    sources = [row["source"] for row in csv.DictReader((out / "frames.csv").open())]
    assert [index for index, source in enumerate(sources) if source == "annotated"] == [0, 5, 12, 19]


def test_corrections_given_together_equal_one_propagation_from_all_annotations(template, out, world, video, encoder):
    given = {5: Masks(world.mask(5)), 12: Masks(world.mask(12), exhaustive=True)}
    first, last = (Masks.read(out / "labels" / f"{index:05d}.png") for index in (0, 19))
    others = {0: first.restricted_to(frozenset("12")), 19: replace(last, exhaustive=True)}
    correct(out, given, video=video, encoder=encoder)
    whole = propagate(video, given | others, encoder=encoder, config=CONFIG)
    for frame in whole:
        assert np.array_equal(frame.labels.ids, Masks.read(out / "labels" / f"{frame.index:05d}.png").ids)


def test_corrections_on_both_sides_of_an_annotated_frame_leave_it_unchanged(out, world, video, encoder):
    correct(out, {10: Masks(world.mask(10), exhaustive=True)}, video=video, encoder=encoder)
    before = contents(out)
    one, other = correct(out, {4: Masks(world.mask(4)), 15: Masks(world.mask(15))}, video=video, encoder=encoder)
    assert (list(one.frames), one.first, one.last) == ([4], 1, 9)
    assert (list(other.frames), other.first, other.last) == ([15], 11, 18)
    after = contents(out)
    assert before["labels/00010.png"] == after["labels/00010.png"]
    assert [entry.frames for entry in history.read_history(OutputFolder(out))] == [[10], [4, 15]]
    assert undo(out) == [4, 15]
    assert contents(out) == before


# The pass cache


def matched(monkeypatch, act) -> int:
    """Count the frames that are matched with others."""
    calls = []
    aggregate = propagator.aggregate
    with monkeypatch.context() as patch:
        patch.setattr(propagator, "aggregate", lambda *args, **named: calls.append(1) or aggregate(*args, **named))
        act()
    return len(calls)


def test_frames_with_a_cached_label_map_are_not_matched_again(world, video, encoder, tmp_path, monkeypatch):
    out, masks = tmp_path / "out", {t: Masks.of(world.mask(t) > 0) for t in (0, 5, 10)}
    run(RunSpec(video=video, labels={0: masks[0]}, encoder=encoder, config=CONFIG), out)

    def one(index):
        return matched(monkeypatch, lambda: correct(out, {index: masks[index]}, video=video, encoder=encoder))

    # Backward from frame 10 to 0, then frames 0 and 10 forward and all after 10; forward up to 10 is cached.
    assert one(10) == 11 + 2 + 9
    # Frames 0, 5 and 10 in both passes, forward from 6 to 9 and backward from 4 to 1; the rest is cached.
    assert one(5) == 6 + 4 + 4


@pytest.mark.parametrize("cache", ["removed", "damaged", "of another run"])
def test_outputs_do_not_depend_on_the_pass_cache(out, world, video, encoder, tmp_path, cache, wrong_start):
    other = Path(shutil.copytree(out, tmp_path / "other"))
    if cache == "of another run":
        labels = {0: Masks(world.mask(0)), FRAMES - 1: Masks(world.mask(FRAMES - 1))}
        run(RunSpec(video=video, labels=labels, encoder=encoder, config=CONFIG), tmp_path / "third")
        shutil.rmtree(other / ".passes")
        shutil.copytree(tmp_path / "third" / ".passes", other / ".passes")
    for given in ((10,), (5, 14), (12,)):
        for number, file in enumerate(sorted((other / ".passes").rglob("*.map"))):
            if cache == "removed":
                file.unlink()
            elif cache == "damaged":
                content = bytearray(file.read_bytes())
                content[number % 50 :: 97] = bytes(len(content[number % 50 :: 97]))
                file.write_bytes(content)
        for folder in (out, other):
            correct(folder, {index: Masks(world.mask(index)) for index in given}, video=video, encoder=encoder)
        assert contents_before_encoding(out) == contents_before_encoding(other)


# Pictures


def draw(out: Path, world, path: Path) -> list[np.ndarray]:
    """Draw every frame with its labels on disk into a video; returns the pictures before encoding."""
    exact = []
    with open_video(world.video()) as video, VideoWriter(path, video.size, video.time_base) as writer:
        for frame in video.frames():
            labels = Masks.read(out / "labels" / f"{frame.index:05d}.png")
            exact.append(labels.overlay(frame.image).astype(float))
            writer.write(labels.overlay(frame.image), frame.pts)
    return exact


def pictures(path: Path) -> list[np.ndarray]:
    with open_video(path) as video:
        return [frame.image.astype(float) for frame in video.frames()]


def stale(path: Path, out: Path, world, tmp_path: Path) -> list[int]:
    """The frames of an overlay video that differ from the labels on disk more than encoding explains."""
    exact = draw(out, world, tmp_path / "fresh.mp4")
    frames = zip(pictures(path), pictures(tmp_path / "fresh.mp4"), exact, strict=True)
    # By the worst 8x8 block: a label that differs is a patch, while encoding loss is everywhere.
    return [t for t, (seen, fresh, true) in enumerate(frames) if worst(seen, true) > worst(fresh, true) + 4]


def worst(seen: np.ndarray, true: np.ndarray) -> float:
    error = np.abs(seen - true).mean(axis=-1)
    return float(error.reshape(8, 8, 12, 8).mean(axis=(1, 3)).max())


def test_overlay_of_a_corrected_run_shows_the_labels_on_disk(out, world, video, encoder, tmp_path):
    times = list(open_video(out / "overlay.mp4").pts)
    uncorrected = Path(shutil.copyfile(out / "overlay.mp4", tmp_path / "uncorrected.mp4"))
    for given in ((10,), (4, 15), (10,), (7,)):
        correct(out, {index: Masks(world.mask(index)) for index in given}, video=video, encoder=encoder)
        assert stale(out / "overlay.mp4", out, world, tmp_path) == []
        assert 10 in stale(uncorrected, out, world, tmp_path)
        assert list(open_video(out / "overlay.mp4").pts) == times


def test_overlay_frames_outside_the_interval_are_not_encoded_again(out, world, video, encoder):
    correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    before = pictures(out / "overlay.mp4")
    correct(out, {5: Masks(world.mask(5))}, video=video, encoder=encoder)
    after = pictures(out / "overlay.mp4")
    for index in (0, *range(10, FRAMES)):
        assert np.array_equal(before[index], after[index])


@pytest.mark.parametrize("old", ["missing", "damaged", "without key frames"])
def test_overlay_that_cannot_be_spliced_is_drawn_whole(out, world, video, encoder, tmp_path, old):
    correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    if old == "without key frames":
        draw(out, world, out / "overlay.mp4")
    elif old == "damaged":
        (out / "overlay.mp4").write_bytes(b"not a video")
    else:
        (out / "overlay.mp4").unlink()
    correct(out, {5: Masks(world.mask(5))}, video=video, encoder=encoder)
    assert stale(out / "overlay.mp4", out, world, tmp_path) == []


def test_contact_sheet_of_a_corrected_run_shows_the_labels_on_disk(out, world, video, encoder, tmp_path):
    correct(out, {10: Masks(world.mask(10))}, video=video, encoder=encoder)
    correct(out, {5: Masks(world.mask(5))}, video=video, encoder=encoder)
    sheet = ContactSheet(FRAMES)
    for index in sheet.missing:
        frame, labels = video[index], Masks.read(out / "labels" / f"{index:05d}.png")
        labelled = LabelledFrame(index, frame.pts, frame.time_seconds, frame.image, labels, "propagated", number=index)
        sheet.add(labelled, labels.overlay(frame.image))
    sheet.write(tmp_path / "contact.png", out / "frames.csv", Masks, {})
    assert (tmp_path / "contact.png").read_bytes() == (out / "contact.png").read_bytes()


# Exports


@pytest.fixture(scope="module")
def exported(world, video, encoder, wrong_start, tmp_path_factory):
    """A run that writes its labels in two other formats, and how to resume it."""
    spec = RunSpec(video=video, labels={0: wrong_start}, encoder=encoder, config=CONFIG, formats=("cvat", "yolo"))
    folder = tmp_path_factory.mktemp("exported") / "out"
    run(spec, folder)
    return folder, functools.partial(run, spec, resume=True)


@pytest.mark.parametrize("writes", [0, 1])
@pytest.mark.parametrize("act", ["correct", "undo"])
def test_exports_interrupted_by_a_correction_are_completed(
    exported, tmp_path, world, video, encoder, monkeypatch, act, writes
):
    template, resume = exported
    plain = contents(template)
    out = Path(shutil.copytree(template, tmp_path / "out"))
    middle = {10: Masks(world.mask(10))}
    correct(out, middle, video=video, encoder=encoder)
    corrected = contents(out)
    assert any(plain[name] != corrected[name] for name in plain if name.startswith("exports"))
    assert undo(out) == [10]
    assert contents(out) == plain
    if act == "undo":
        correct(out, middle, video=video, encoder=encoder)
    usual, calls = exporting.write_file, itertools.count()

    def interrupting(labels, path, **named):
        if next(calls) == writes:
            path.mkdir(parents=True, exist_ok=True)  # a folder that is begun
            raise KeyboardInterrupt
        return usual(labels, path, **named)

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "write_file", interrupting)
        with pytest.raises(KeyboardInterrupt):
            correct(out, middle, video=video, encoder=encoder) if act == "correct" else undo(out)
    expected = corrected if act == "correct" else plain
    assert contents(out) != expected
    if act == "undo":
        other = Path(shutil.copytree(out, tmp_path / "other"))
        with pytest.raises(OutputError, match="has no correction to undo"):
            undo(other)
        assert contents(other) == plain
    assert resume(out).already
    assert without_overlays(contents(out)) == without_overlays(expected)
    if act == "correct":
        assert undo(out) == [10]
        assert contents(out) == plain


def without_overlays(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files but overlay videos, which may be encoded in two ways, and their checksums in the history."""
    return {name: content for name, content in files.items() if not name.endswith(("overlay.mp4", "entry.json"))}


# The video, given again


def image_run(folder: Path, world, fps: float) -> Path:
    """A run of the command line on image files, which have no times; then the images are moved."""
    (folder / "frames").mkdir()
    for index, image in enumerate(world.frames()):
        Image.fromarray(image).save(folder / "frames" / f"{index:03d}.png")
    Masks(world.mask(0)).write(folder / "first.png")
    Masks(world.mask(10)).write(folder / "middle.png")
    words = [str(folder / "frames"), str(folder / "first.png"), "-o", str(folder / "out"), "--fps", str(fps)]
    assert main(["propagate", *words, "--encoder", "rgb", "--preset", "fast"]) == 0
    (folder / "frames").rename(folder / "moved")
    return folder / "out"


def times(out: Path) -> list[float]:
    return [frame.time_seconds for frame in OutputFolder(out).frames()]


@pytest.mark.parametrize("with_rate", [True, False], ids=["recorded", "recorded by an earlier version"])
def test_a_moved_video_keeps_its_frame_rate(world, tmp_path, with_rate):
    out = image_run(tmp_path, world, fps=10)
    if not with_rate:
        record = json.loads((out / "run.json").read_text())
        del record["video"]["assumed_fps"]
        (out / "run.json").write_text(json.dumps(record))
    before = times(out)
    middle, moved = tmp_path / "middle.png", tmp_path / "moved"
    assert main(["correct", str(out), f"10={middle}", "--video", str(moved)]) == 0
    assert times(out) == before
    api.correct(out, {5: middle}, video=moved)
    assert times(out) == before


def test_a_video_opened_with_another_frame_rate_is_refused(world, tmp_path):
    out = image_run(tmp_path, world, fps=10)
    with pytest.raises(OutputError, match=r"opened with fps=24\.0, but .* with fps=10\.0; open it with fps=10\.0"):
        api.correct(out, {10: tmp_path / "middle.png"}, video=open_video(tmp_path / "moved"))


def test_a_moved_damaged_video_is_corrected_if_its_damage_was_allowed(world, tmp_path):
    clip, middle, words = write_clip(tmp_path / "clip.mkv", world), tmp_path / "middle.png", ["--encoder", "rgb"]
    Masks(world.mask(0)).write(tmp_path / "first.png")
    Masks(world.mask(5)).write(middle)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main(["propagate", str(clip), str(tmp_path / "first.png"), "-o", str(whole), *words]) == 0
    clip.write_bytes(clip.read_bytes()[: clip.stat().st_size * 3 // 4])
    words += ["--allow-damaged"]
    assert main(["propagate", str(clip), str(tmp_path / "first.png"), "-o", str(cut), *words]) == 0
    moved = clip.rename(tmp_path / "moved.mkv")
    assert main(["correct", str(cut), f"5={middle}", "--video", str(moved)]) == 0
    refusal = r"cannot be opened .* is cut short: .*; put the original video back"
    with pytest.raises(OutputError, match=refusal) as refused:
        correct(whole, {5: Masks(world.mask(5))}, video=moved)
    assert "--allow-damaged" not in str(refused.value)


# The record


def recorded(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text())["labels"]


def test_recorded_checksum_is_that_of_the_current_annotations(
    template, out, world, video, encoder, wrong_start, tmp_path
):
    first = recorded(out)
    annotations = {0: wrong_start, FRAMES - 1: Masks(world.mask(FRAMES - 1), exhaustive=True)}
    for index in (10, 5):
        annotations[index] = Masks(world.mask(index))
        correct(out, {index: annotations[index]}, video=video, encoder=encoder)
        fresh = RunSpec(video=video, labels=annotations, encoder=encoder, config=CONFIG).identity()["labels"]
        assert recorded(out) == fresh
    assert recorded(out)["sha256"] != first["sha256"]
    undo(out)
    undo(out)
    assert recorded(out) == first


# Kills


def killed_at(operation: int, act) -> int:
    """Act in a child process that is ended without clean-up at a file operation; returns its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        operations = itertools.count(1)

        def killing(usual):
            def counted(*args, **named):
                if next(operations) == operation:
                    os._exit(9)
                return usual(*args, **named)

            return counted

        for owner, name in ((os, "replace"), (os, "unlink"), (os, "rename"), (shutil, "copyfile"), (os, "rmdir")):
            setattr(owner, name, killing(getattr(owner, name)))
        for name in ("replace", "unlink", "rmdir", "mkdir"):
            setattr(Path, name, killing(getattr(Path, name)))
        act()
        os._exit(0)
    except BaseException:
        os._exit(1)


@pytest.mark.slow  # a correction for every kill
@pytest.mark.parametrize("act", ["correct", "undo"])
def test_kill_at_any_file_operation_is_repaired_by_the_next_command(template, tmp_path, world, video, encoder, act):
    corrected = Path(shutil.copytree(template, tmp_path / "corrected"))
    given = {5: Masks(world.mask(5)), 12: Masks(world.mask(12))}
    before = contents(corrected)
    correct(corrected, given, video=video, encoder=encoder)
    after = contents(corrected)
    operation, killed = 1, 0
    while True:
        out = Path(shutil.copytree(corrected if act == "undo" else template, tmp_path / f"out{operation}"))
        correct_it = functools.partial(correct, out, given, video=video, encoder=encoder)
        code = killed_at(operation, correct_it if act == "correct" else functools.partial(undo, out))
        assert code in (0, 9)
        history.recover(OutputFolder(out))
        (out / ".lock").unlink(missing_ok=True)
        assert contents(out) in (before, after)
        if code == 0:
            break
        killed += 1
        operation += 17 if act == "undo" else 47
    assert killed >= 5
    out = tmp_path / "out1"  # killed at the first operation of all
    if act == "correct":
        correct(out, given, video=video, encoder=encoder)
        assert contents(out) == after
