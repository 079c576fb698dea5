"""Corrections of one object among several: their intervals, what they change, and the confidence of other objects."""

import csv
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from clips import small_world
from oracle import OracleEncoder
from timecycle.labels import Keypoints, Masks
from timecycle.propagation.settings import PropagateConfig
from timecycle.review.calibration import corrected_objects
from timecycle.review.corrections import correct
from timecycle.review.intervals import intervals_of
from timecycle.runs.folder import OutputFolder
from timecycle.runs.run import RunSpec, run
from timecycle.video import open_video

FRAMES = 24
CONFIG = PropagateConfig(window_px=32, anchor_window_px=32)


@pytest.fixture(scope="module")
def world():
    return small_world(frames=FRAMES)


@pytest.fixture(scope="module")
def sources(world):
    return {"video": open_video(world.video(), fps=12), "encoder": OracleEncoder(world, stride_px=8)}


def of(world, index, *objects):
    """The ground truth of some objects, as an annotation of them alone."""
    ids = world.mask(index)
    return Masks(np.where(np.isin(ids, objects), ids, 0).astype(np.uint16))


@pytest.fixture(scope="module")
def template(world, sources, tmp_path_factory) -> Path:
    """Objects 1 and 2 are annotated on the first frame, only object 1 on frame 5."""
    folder = tmp_path_factory.mktemp("run") / "out"
    labels = {0: of(world, 0, 1, 2), 5: of(world, 5, 1)}
    run(RunSpec(**sources, labels=labels, config=CONFIG), folder)
    return folder


@pytest.fixture
def out(template, tmp_path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "out"))


def confidence(folder: Path, name: str) -> list[float]:
    with (folder / "objects.csv").open(newline="") as file:
        return [float(row["confidence"]) for row in csv.DictReader(file) if row["object"] == name]


def labels_of(folder: Path) -> list[np.ndarray]:
    return [Masks.read(path).ids for path in sorted((folder / "labels").iterdir())]


# Intervals


def intervals(sources, corrections, annotated):
    current = {index: Masks(np.ones((96, 128), np.uint16)) for index in annotated}
    result = intervals_of(sources["video"], corrections, current.__getitem__, annotated, CONFIG)
    return [
        (one.first, one.last, list(one.corrected), sorted(t + one.start for t in one.annotations)) for one in result
    ]


def test_interval_ends_at_frames_that_annotate_all_objects_of_the_correction(world, sources):
    annotated = {0: frozenset("12"), 10: frozenset("1"), 20: None}
    assert intervals(sources, {14: of(world, 14, 1)}, annotated) == [(11, 19, [14], [10, 14, 20])]
    assert intervals(sources, {14: of(world, 14, 2)}, annotated) == [(1, 19, [14], [0, 10, 14, 20])]
    assert intervals(sources, {14: of(world, 14, 1, 2)}, annotated) == [(1, 19, [14], [0, 10, 14, 20])]
    assert intervals(sources, {14: of(world, 14, 3)}, annotated) == [(0, 19, [14], [0, 10, 14, 20])]
    everything = Masks(world.mask(14), exhaustive=True)
    assert intervals(sources, {14: everything}, annotated) == [(0, 19, [14], [0, 10, 14, 20])]  # with object 3
    assert intervals(sources, {22: of(world, 22, 1)}, annotated) == [(21, 23, [22], [20, 22])]


def test_overlapping_intervals_become_one(world, sources):
    annotated = {0: frozenset("12"), 10: frozenset("1"), 20: None}
    given = {5: of(world, 5, 1), 14: of(world, 14, 1), 22: of(world, 22, 1)}
    assert [one[:3] for one in intervals(sources, given, annotated)] == [(1, 9, [5]), (11, 19, [14]), (21, 23, [22])]
    given[14] = of(world, 14, 2)
    assert [one[:3] for one in intervals(sources, given, annotated)] == [(1, 19, [5, 14]), (21, 23, [22])]


def test_every_frame_is_in_one_interval_at_most(world, sources):
    annotated = {0: frozenset("12"), 6: frozenset("1"), 13: frozenset("2"), 16: frozenset("12")}
    masks = {"1": (1,), "2": (2,), "12": (1, 2)}
    for first, second in itertools.product(masks.values(), repeat=2):
        for a, b in itertools.combinations((3, 12, 14, 18), 2):
            recomputed = intervals(sources, {a: of(world, a, *first), b: of(world, b, *second)}, annotated)
            frames = [frame for start, last, _, _ in recomputed for frame in range(start, last + 1)]
            assert len(frames) == len(set(frames))
            assert sorted(index for _, _, corrected, _ in recomputed for index in corrected) == [a, b]
            assert {a, b} <= set(frames)


# Changes


def test_object_annotated_inside_the_interval_stays_as_annotated(out, world, sources):
    (done,) = correct(out, {14: of(world, 14, 2)}, **sources)
    assert (done.first, done.last) == (1, FRAMES - 1)
    now = labels_of(out)
    assert np.array_equal(now[5] == 1, world.mask(5) == 1)
    assert np.array_equal(now[14] == 2, world.mask(14) == 2)
    rows = list(csv.DictReader((out / "objects.csv").open(newline="")))
    annotated = {(int(row["index"]), row["object"]) for row in rows if row["source"] == "annotated"}
    assert annotated == {(0, "1"), (0, "2"), (5, "1"), (14, "2")}
    record = json.loads((out / "run.json").read_text())
    assert record["labels"]["objects_by_frame"] == {"0": ["1", "2"], "5": ["1"], "14": ["2"]}


def test_correcting_one_object_does_not_raise_confidence_in_others(out, world, sources):
    """Object 2 was only propagated to frame 5, so it starts there with its confidence on that frame."""
    before = confidence(out, "2")
    correct(out, {16: of(world, 16, 1)}, **sources)
    after = confidence(out, "2")
    assert after[:6] == before[:6]
    assert max(after[6:19]) <= before[5] + 1e-9  # then it has left


def test_calibration_uses_only_the_corrected_objects(out, world, sources):
    correct(out, {16: of(world, 16, 1)}, **sources)
    assert len(corrected_objects(OutputFolder(out))) == 1


def test_correcting_an_annotated_frame_keeps_its_other_objects(out, world, sources):
    correct(out, {5: of(world, 5, 2)}, **sources)
    now = labels_of(out)[5]
    assert np.array_equal(now, world.mask(5))
    record = json.loads((out / "run.json").read_text())
    assert record["labels"]["objects_by_frame"]["5"] == ["1", "2"]


# Annotations of some objects


def test_annotation_restricted_to_its_own_objects_is_unchanged(world):
    mask = of(world, 3, 1, 2)
    assert mask.annotated_objects() == {"1", "2"}
    assert np.array_equal(mask.restricted_to(mask.annotated_objects()).ids, mask.ids)
    assert mask.restricted_to(frozenset("2")).annotated_objects() == {"2"}
    assert mask.restricted_to(None).annotated_objects() is None
    ground_truth = world.keypoints(0)
    points = Keypoints(ground_truth.names, ground_truth.xy, ground_truth.visible)
    some = frozenset(ground_truth.names[:2])
    assert points.restricted_to(some).annotated_objects() == some
    assert points.restricted_to(some).names == ground_truth.names[:2]
