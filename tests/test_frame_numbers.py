"""Frames of numbered image files keep their numbers in file names, tables and arguments; Python indices start at 0."""

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clips import small_world
from timecycle.cli.main import main
from timecycle.errors import LabelError, VideoError
from timecycle.labels import Masks, index_of, read_labels
from timecycle.video import VideoSlice, open_video

FAST = ("--encoder", "rgb", "--preset", "fast", "--set", "past_frames=2")
FIRST = 1001


@pytest.fixture(scope="module")
def world():
    return small_world(frames=8)


@pytest.fixture(scope="module")
def frames(world, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shot") / "frames"
    folder.mkdir()
    for t, image in enumerate(world.video()):
        Image.fromarray(image).save(folder / f"shot_{FIRST + t}.png")
    Masks(world.mask(0)).write(folder.parent / "first.png")
    Masks(world.mask(5)).write(folder.parent / "sixth.png")
    return folder


def numbers_in(path: Path) -> list[int]:
    return [int(file.stem) for file in sorted(path.iterdir())]


def test_images_have_the_numbers_of_their_names_and_indices_from_0(frames):
    video = open_video(frames)
    assert list(video.numbers) == list(range(FIRST, FIRST + 8))
    assert (video[3].index, video[3].number) == (3, FIRST + 3)
    part = VideoSlice(video, 2, 5)
    assert [(frame.index, frame.number) for frame in part] == [(0, 1003), (1, 1004), (2, 1005)]
    assert [frame.number for frame in part.backwards()] == [1005, 1004, 1003]


@pytest.mark.parametrize("names", [("b.png", "a.png"), ("a1.png", "b1.png"), ("x.png", "7.png")])
def test_images_without_ascending_numbers_are_numbered_by_index(tmp_path, names):
    for name in names:
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / name)
    assert list(open_video(tmp_path).numbers) == [0, 1]


def test_run_keeps_frame_numbers_and_mask_without_number_is_the_first_frame(frames, tmp_path):
    first, sixth = (str(frames.parent / name) for name in ("first.png", "sixth.png"))
    assert main(["propagate", str(frames), first, f"1006={sixth}", "-o", str(tmp_path / "out"), *FAST]) == 0
    out = tmp_path / "out"
    assert numbers_in(out / "labels") == numbers_in(out / "confidence") == list(range(FIRST, FIRST + 8))
    rows = list(csv.DictReader((out / "frames.csv").open()))
    assert [int(row["index"]) for row in rows] == list(range(8))
    assert [int(row["frame_number"]) for row in rows] == list(range(FIRST, FIRST + 8))
    assert [row["index"] for row in rows if row["source"] == "annotated"] == ["0", "5"]
    assert all(
        int(row["frame_number"]) == FIRST + int(row["index"]) for row in csv.DictReader((out / "objects.csv").open())
    )


def test_correct_check_audit_and_flow_use_the_same_frame_numbers(frames, tmp_path, capsys):
    out = tmp_path / "out"
    first, sixth = (str(frames.parent / name) for name in ("first.png", "sixth.png"))
    assert main(["propagate", str(frames), first, "-o", str(out), *FAST]) == 0
    assert main(["check", str(out)]) == 0
    capsys.readouterr()
    assert main(["correct", str(out), f"1006={sixth}"]) == 0
    # From the first frame on: an object on the correction is not annotated there.
    assert "frame 1006: propagated again 1001-1008" in capsys.readouterr().out
    assert (Masks.read(out / "labels" / "01006.png").ids == Masks.read(Path(sixth)).ids).all()
    assert numbers_in(out / "labels") == list(range(FIRST, FIRST + 8))
    assert main(["check", str(out)]) == 0
    assert main(["correct", str(out), "--undo"]) == 0
    assert main(["audit", str(frames), str(out / "labels"), "--encoder", "rgb"]) == 0
    assert main(["flow", f"{frames}@1001", f"{frames}@1003", "-o", str(tmp_path / "flow"), "--encoder", "rgb"]) == 0


def test_audit_findings_name_frames_by_number(frames, world, tmp_path, capsys):
    labels = tmp_path / "labels"
    labels.mkdir()
    for t in range(8):
        mask = (
            world.mask(t) if t < 5 else np.where(world.mask(t) == 2, 0, world.mask(t))
        )  # object 2 is dropped while visible
        Masks(mask.astype(np.uint16)).write(labels / f"{FIRST + t}.png")
    assert main(["audit", str(frames), str(labels), "--encoder", "rgb", "--json"]) == 0
    printed = capsys.readouterr()
    for finding in json.loads(printed.out)["findings"]:
        assert finding["first_frame_number"] == FIRST + finding["first"]
        assert finding["last_frame_number"] == FIRST + finding["last"]
    assert "object 2 ends at frame 1006, though the video still shows it" in printed.err


def test_error_for_an_unknown_frame_number_names_the_range(frames, tmp_path, capsys):
    assert main(["propagate", str(frames), f"5={frames.parent / 'first.png'}", "-o", str(tmp_path / "o"), *FAST]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "there is no frame 5: the video's frames are numbered 1001 to 1008" in error
    assert "give the number in the name of the frame's image file" in error


@pytest.mark.parametrize("pattern", ["shot_%04d.png", "shot_%d.png", "shot_####.png", "shot_#.png"])
def test_pattern_with_a_number_matches_the_images(frames, tmp_path, pattern):
    Image.open(frames / f"shot_{FIRST}.png").save(tmp_path / "other_1001.png")
    for file in frames.iterdir():
        (tmp_path / file.name).symlink_to(file)
    video = open_video(tmp_path / pattern)
    assert list(video.numbers) == list(range(FIRST, FIRST + 8))


def test_pattern_with_more_digits_matches_nothing(frames):
    with pytest.raises(VideoError, match=r"no image matches .*shot_%05d\.png; check the pattern"):
        open_video(frames / "shot_%05d.png")


def test_error_for_a_missing_frame_has_a_pattern_to_paste(frames, tmp_path):
    folder = tmp_path / "my shots"
    folder.mkdir()
    for file in frames.iterdir():
        if "1005" not in file.name:
            (folder / file.name).symlink_to(file)
    for path in (folder, folder / "shot_%04d.png"):
        with pytest.raises(VideoError, match=r"frame 1005 .*is missing") as caught:
            open_video(path)
        assert f"such as {shlex.quote(str(folder / 'shot_*.png'))} to take" in caught.value.remedy
    video = open_video(folder / "shot_*.png")
    with pytest.raises(LabelError, match="frame 1005 is missing: the video goes from frame 1004 to 1006"):
        read_labels([f"1005={frames.parent / 'first.png'}"], numbers=video.numbers)


def test_keypoints_csv_names_frames_by_number(tmp_path):
    (tmp_path / "points.csv").write_text("frame,name,x,y\n1003,nose,4,5\n")
    assert list(read_labels([tmp_path / "points.csv"], numbers=range(1001, 1009))) == [2]
    with pytest.raises(LabelError, match="there is no frame 1003"):
        read_labels([tmp_path / "points.csv"], numbers=[1, 5, 9])
    assert index_of(7, None) == index_of(7, range(3)) == 7  # existence is checked later
