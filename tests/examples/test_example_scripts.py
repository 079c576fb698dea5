"""Every script of examples/ runs as it is on its synthetic video, and finds what the ground truth says."""

import csv
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import timecycle as tc
from pages import ROOT
from timecycle.synthetic import WorldConfig, make_world

EXAMPLES = ROOT / "examples"


@pytest.fixture
def run_example(tmp_path, monkeypatch):
    """Run an example in a new folder, as a program with these arguments; return its variables."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: str | Path) -> dict[str, Any]:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        return runpy.run_path(str(EXAMPLES / f"{name}.py"))

    return run


def test_masks_are_propagated_with_confidence_and_pictures(run_example, tmp_path):
    found = run_example("propagate_masks")
    assert len(found["ids"]) == len(found["confidence"]) == len(found["run"]) == 24
    assert found["confidence"][0] == 1 > found["confidence"][found["worst"]]
    assert np.mean(found["overlaps"]) > 0.5  # one object hides and one leaves meanwhile
    assert all((ids == found["run"].labels[index].ids).all() for index, ids in enumerate(found["ids"]))
    assert sorted(path.name for path in tmp_path.glob("propagate_masks/overlays/*")) == [
        "00000.png",
        "00008.png",
        "00016.png",
    ]


def test_speeds_of_keypoints_are_those_of_the_ground_truth(run_example, tmp_path):
    pytest.importorskip("matplotlib")
    found = run_example("keypoint_speeds")
    world = make_world(WorldConfig(height_px=240, width_px=320, frames=24, seed=0))
    xy = np.stack([world.keypoints(t).xy for t in range(24)])
    true = np.full(found["speed"].shape, np.nan)
    true[2:-2] = np.linalg.norm(xy[3:-1] - xy[1:-3], axis=-1) / 2 * 24
    with (tmp_path / "keypoint_speeds" / "speeds.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = found["names"]
    trusted = [row for row in rows if float(row["confidence"]) > 0.7]
    assert len(trusted) > 40
    errors = [
        abs(float(row["speed_px_per_second"]) - true[int(row["index"]), names.index(row["name"])]) for row in trusted
    ]
    assert np.median(errors) < 0.25 * np.nanmedian(true[:, :5])  # of the first object, which is fast
    with Image.open(tmp_path / "keypoint_speeds" / "speeds.png") as plot:
        assert plot.size == (960, 480)


def test_correction_of_the_suggested_frame_raises_the_overlap(run_example, tmp_path):
    found = run_example("review_and_correct")
    first = found["first"]
    assert found["after"][2] > found["before"][2] + 0.05
    assert found["run"].frames[first.index].source == "annotated"
    assert tc.undo(found["run"]) == [first.index]


def test_own_video_without_a_correction_says_which_file_to_edit(run_example, tmp_path):
    video = tc.write_sample(tmp_path / "own", frames=10)
    for file in (tmp_path / "own" / "masks" / "clip").iterdir():
        if file.name != "00000.png":
            file.unlink()
    with pytest.raises(SystemExit, match=r"edit out/run/review/(000\d\d\.png), save it as .*/own/masks/clip/\1"):
        run_example("review_and_correct", video, "out")


@pytest.mark.slow  # two encoders label three composites of thirty frames
def test_own_encoder_is_compared_with_the_bundled_one(run_example, tmp_path):
    found = run_example("own_encoder")
    own, bundled = (found["reports"][name].scores["JF"] for name in ("own", "bundled"))
    assert 0.1 < own < bundled <= 1
    assert "JF" in str(found["compared"]) or "J&F" in str(found["compared"])
    encoded = found["ColourAndEdges"]().encode(np.full((50, 67, 3), 128, np.uint8))
    assert tuple(encoded.cells.shape) == (6, 8, 5)


@pytest.mark.slow  # trains, and times steps before
def test_weights_trained_on_a_folder_propagate(run_example, tmp_path):
    for seed in range(3):
        video = tc.write_sample(tmp_path / "own", name=f"clip{seed}", frames=14, seed=seed)
    found = run_example("train_on_footage", video.parent, "out", 0.02)
    assert found["done"].steps >= 1
    assert found["done"].weights.is_file()
    # It has learned next to nothing, and its features still follow what moves.
    assert found["overlaps"]["trained"] > 0.3
    record = tc.Run(tmp_path / "out" / "trained").record
    assert record["encoder"]["sha256"] == tc.load_encoder(found["done"].weights).sha256


def test_many_videos_are_labelled_once_and_failures_are_told(run_example):
    found = run_example("many_videos")
    assert (found["done"].done, found["done"].dead, found["again"].before) == (2, 0, 2)
    assert [len(run) for run in found["runs"].values()] == [12, 12]
    assert list(found["rows"]["frames"]) == [12, 0]
    assert "missing.mp4" in found["rows"]["error"][1]


def test_sample_has_its_ground_truth_beside_it(tmp_path):
    video = tc.write_sample(tmp_path / "data", name="dog", frames=10, seed=3)
    world = make_world(WorldConfig(height_px=240, width_px=320, frames=10, seed=3))
    assert video == tmp_path / "data" / "videos" / "dog.mp4"
    with tc.open_video(video) as frames:
        assert len(frames) == 10
        assert np.abs(frames[9].image.astype(int) - world.frame(9)).mean() < 8  # as far as compression allows
    assert (tc.Masks.read(tmp_path / "data" / "masks" / "dog" / "00009.png").ids == world.mask(9)).all()
    points = tc.Keypoints.read(tmp_path / "data" / "points" / "dog.csv")
    np.testing.assert_allclose(points.xy[points.visible], world.keypoints(0).xy[points.visible], atol=0.01)
