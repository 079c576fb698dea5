"""Annotations as people save them: ambiguous ones are read with a note, unreadable ones are refused in one line."""

import json
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from clips import small_world, write_clip
from timecycle.cli import main
from timecycle.labels import Masks

QUICK = ["--preset", "fast", "--encoder", "rgb", "--no-confidence"]


@pytest.fixture(scope="module")
def world():
    return small_world(frames=6)


@pytest.fixture(scope="module")
def inputs(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_clip(folder / "dog.mp4", world)
    one = world.mask(0) == 1
    Image.fromarray(one.astype(np.uint8) * np.uint8(255)).save(folder / "white.png")
    Image.fromarray((world.mask(4) == 1).astype(np.uint8)).save(folder / "ones.png")
    Image.fromarray(np.zeros((64, 96), np.uint8)).save(folder / "empty.png")
    Image.fromarray(one[::2, ::2].astype(np.uint8) * np.uint8(255)).save(folder / "half.png")
    Masks(np.where(world.mask(0) < 3, world.mask(0), 0)).write(folder / "two.png")
    black = np.zeros((64, 96, 4), np.uint8)
    black[one, 3] = 255
    Image.fromarray(black).save(folder / "black.png")
    return folder


@pytest.fixture
def here(inputs, tmp_path, monkeypatch):
    """A copy of the inputs in the current folder."""
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ids_of(folder, index):
    return Masks.read(folder / "labels" / f"{index:05d}.png").ids


def refused(capsys, *words):
    assert main([*words]) == 2
    return capsys.readouterr().err


def test_empty_mask_is_refused_by_name(here, capsys):
    text = refused(capsys, "propagate", "dog.mp4", "empty.png", "-o", "out", *QUICK)
    assert "error: empty.png holds no object" in text
    assert "try: draw the object in white or in a colour" in text
    assert not (here / "out").exists()


def test_black_shape_on_a_transparent_background_is_propagated(here, world, caplog):
    assert main(["propagate", "dog.mp4", "black.png", "-o", "out", *QUICK]) == 0
    assert np.array_equal(ids_of(here / "out", 0), world.mask(0) == 1)
    assert caplog.text.count("black.png has an opaque black shape") == 1


def test_empty_mask_beside_others_marks_the_object_absent(here, caplog):
    assert main(["propagate", "dog.mp4", "0=white.png", "5=empty.png", "-o", "out", *QUICK]) == 0
    assert ids_of(here / "out", 0).any()
    assert not ids_of(here / "out", 5).any()
    assert caplog.messages == ["note: nothing is annotated on frame 5: object 255 is absent there"]


def test_mask_of_half_the_size_is_resized_with_a_note(here, world, caplog):
    assert main(["propagate", "dog.mp4", "half.png", "-o", "out", *QUICK]) == 0
    assert ids_of(here / "out", 0).shape == (64, 96)
    assert caplog.messages == [
        "note: the labels of frame 0 are 48x32: resized to the video's 96x64 by nearest neighbour"
    ]


def test_correction_with_another_value_is_the_only_object_of_the_run(here, world, caplog):
    assert main(["propagate", "dog.mp4", "white.png", "-o", "out", *QUICK]) == 0
    assert main(["correct", "out", "4=ones.png"]) == 0
    assert np.array_equal(ids_of(here / "out", 4), np.where(world.mask(4) == 1, 255, 0))
    assert "note: ones.png is read as object 255, the only one of the run" in caplog.text
    caplog.clear()
    assert main(["correct", "out", "5=empty.png"]) == 0
    assert not ids_of(here / "out", 5).any()
    (said,) = caplog.messages
    assert said.startswith("note: nothing is annotated on frame 5: object 255 is absent there; if that is not meant")


def test_corrections_in_different_image_modes_are_read_together(here, world, caplog):
    assert main(["propagate", "dog.mp4", "white.png", "-o", "out", *QUICK]) == 0
    Image.open("white.png").convert("RGB").save("rgb.png")
    assert main(["correct", "out", "4=ones.png", "1=rgb.png"]) == 0
    assert np.array_equal(ids_of(here / "out", 4), np.where(world.mask(4) == 1, 255, 0))
    assert np.array_equal(ids_of(here / "out", 1), np.where(world.mask(0) == 1, 255, 0))
    assert "two objects" not in caplog.text
    assert "object 1 is" not in caplog.text


def test_colours_of_the_run_mean_the_same_objects_in_corrections(here, world, caplog):
    colours = np.array([(0, 0, 0), (0, 250, 0), (0, 0, 250)], np.uint8)
    masks = {index: np.where(world.mask(index) < 3, world.mask(index), 0) for index in (0, 4)}
    for index, mask in masks.items():
        Image.fromarray(colours[mask]).save(f"rgb{index}.png")
    assert main(["propagate", "dog.mp4", "rgb0.png", "-o", "out", *QUICK]) == 0
    assert caplog.messages == ["note: rgb0.png: object 1 is blue (0,0,250), 2 is green (0,250,0)"]
    swapped = np.array([0, 2, 1], np.uint16)
    assert np.array_equal(ids_of(here / "out", 0), swapped[masks[0]])
    caplog.clear()
    Image.fromarray(colours[np.where(masks[4] == 1, 1, 0)]).save("green.png")
    assert main(["correct", "out", "3=green.png", "4=rgb4.png"]) == 0
    assert np.array_equal(ids_of(here / "out", 4), swapped[masks[4]])
    assert np.array_equal(ids_of(here / "out", 3) == 2, masks[4] == 1)
    assert not caplog.messages


def test_help_of_correct_names_frames_by_number(capsys):
    assert main(["correct", "--help"]) == 0
    text = capsys.readouterr().out
    assert "FRAME=LABELS" in text
    assert "INDEX=" not in text


def test_correction_that_could_be_any_of_several_objects_is_refused(here, world, capsys):
    assert main(["propagate", "dog.mp4", "two.png", "-o", "out", *QUICK]) == 0
    assert "but the run's objects are 1, 2" in refused(capsys, "correct", "out", "0=white.png")
    assert main(["correct", "out", "0=white.png", "--object", "2"]) == 0
    assert (ids_of(here / "out", 0)[world.mask(0) == 1] == 2).all()


def test_masks_of_1_and_of_255_are_noted_as_two_objects(here, caplog):
    assert main(["propagate", "dog.mp4", "0=white.png", "4=ones.png", "-o", "out", *QUICK]) == 0
    assert "white.png shows object 255 and ones.png object 1: two objects" in caplog.text


# Boxes


def test_two_boxes_are_two_objects(here, caplog):
    words = ["propagate", "dog.mp4", "--box", "10,10,30,30", "--box", "50,20,80,40", "-o", "out"]
    assert main([*words, "--box-as-is", *QUICK]) == 0
    ids = ids_of(here / "out", 0)
    assert not caplog.messages
    assert (ids[10:31, 10:31] == 1).all()
    assert (ids[20:41, 50:81] == 2).all()
    assert np.count_nonzero(ids) == 21 * 21 + 31 * 21


def test_box_is_refined_to_the_object_in_it(here, caplog):
    assert main(["propagate", "dog.mp4", "--box", "10,10,40,40", "-o", "out", *QUICK]) == 0
    ids = ids_of(here / "out", 0)
    assert not ids[:10].any()
    assert 0 < ids.sum() < 31 * 31
    (said,) = caplog.messages
    assert said.startswith("note: the outline of the object in the box 10,10,40,40 was found by GrabCut")
    assert "out/contact.png" in said


def test_box_without_opencv_is_refused_with_the_install_command(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    text = refused(capsys, "propagate", "dog.mp4", "--box", "10,10,40,40", "-o", "out", *QUICK)
    assert "OpenCV is not installed" in text
    assert "try: pip install 'timecycle[assist]', or pass --box-as-is" in text
    assert main(["propagate", "dog.mp4", "--box", "10,10,40,40", "--box-as-is", "-o", "out", *QUICK]) == 0
    assert ids_of(here / "out", 0).sum() == 31 * 31


def test_box_as_is_without_a_box_is_refused(here, capsys):
    assert "--box-as-is was given without --box" in refused(
        capsys, "propagate", "dog.mp4", "white.png", "--box-as-is", "-o", "out"
    )


# Swapped arguments


@pytest.mark.parametrize("labels", ["white.png", "3=white.png"])
def test_swapped_arguments_are_refused_with_the_right_order(here, capsys, labels):
    text = refused(capsys, "propagate", labels, "dog.mp4", "-o", "my out")
    assert f"error: dog.mp4 is a video and {labels} is a label file: their order is swapped" in text
    assert f"try: timecycle propagate dog.mp4 {labels} -o 'my out'" in text


def test_folder_of_frames_given_as_labels_is_refused_with_the_right_order(here, world, capsys):
    (here / "frames").mkdir()
    for t in range(3):
        Image.fromarray(world.frame(t)).save(here / "frames" / f"{t:05d}.png")
    text = refused(capsys, "propagate", "white.png", "frames", "-o", "out")
    assert "try: timecycle propagate frames white.png -o out" in text


@pytest.mark.parametrize("command", ["tune", "audit"])
def test_swapped_arguments_of_other_commands_are_refused(here, capsys, command):
    assert f"try: timecycle {command} dog.mp4 white.png" in refused(capsys, command, "white.png", "dog.mp4")


def test_one_image_may_be_a_video_of_one_frame(here, world):
    Image.fromarray(world.frame(0)).save(here / "frame.png")
    assert main(["propagate", "frame.png", "white.png", "-o", "out", *QUICK]) == 0


# Grey label files


def test_grey_label_files_hold_ids_and_stay_grey_in_corrections(here):
    assert main(["propagate", "dog.mp4", "two.png", "-o", "out", "--label-files", "grey", *QUICK]) == 0
    assert main(["correct", "out", "4=two.png"]) == 0
    for file in sorted((here / "out" / "labels").iterdir()):
        with Image.open(file) as image:
            assert image.mode == "L"
            assert set(np.unique(np.array(image))) <= {0, 1, 2}
    assert json.loads((here / "out" / "run.json").read_text())["outputs"] == {"label_files": "grey"}


def test_grey_and_palette_label_files_hold_the_same_ids(here):
    assert main(["propagate", "dog.mp4", "two.png", "-o", "grey", "--label-files", "grey", *QUICK]) == 0
    assert main(["propagate", "dog.mp4", "two.png", "-o", "palette", *QUICK]) == 0
    assert all(np.array_equal(ids_of(here / "grey", t), ids_of(here / "palette", t)) for t in range(6))


def test_run_is_not_resumed_with_other_label_files(here, capsys):
    assert main(["propagate", "dog.mp4", "two.png", "-o", "out", "--label-files", "grey", *QUICK]) == 0
    record = json.loads((here / "out" / "run.json").read_text())
    (here / "out" / "run.json").write_text(json.dumps(record | {"status": "running"}))
    text = refused(capsys, "propagate", "dog.mp4", "two.png", "-o", "out", "--resume", *QUICK)
    assert "was begun with outputs label_files = grey, now it is palette" in text


def test_grey_label_files_are_refused_for_other_kinds(here, capsys):
    (here / "points.csv").write_text("frame,name,x,y,visible\n0,nose,20,30,1\n")
    text = refused(capsys, "propagate", "dog.mp4", "points.csv", "-o", "out", "--label-files", "grey", *QUICK)
    assert "grey label files were asked for keypoints" in text
