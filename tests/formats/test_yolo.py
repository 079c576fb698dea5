"""YOLO folders as Ultralytics writes and reads them, and damaged ones."""

from dataclasses import replace

import numpy as np
import pytest

from label_samples import SIZE, keypoints, mask, masks
from timecycle.errors import LabelError
from timecycle.formats.registry import read_file, write_file
from timecycle.formats.video_labels import VideoFacts
from timecycle.labels import Keypoints

VIDEO = VideoFacts(name="clip.mp4", size=SIZE)


def folder(tmp_path, text, settings=""):
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "clip_0004.txt").write_text(text)
    (tmp_path / "data.yaml").write_text(settings, encoding="utf-8")
    return tmp_path


def test_lines_have_class_polygon_and_track(tmp_path):
    write_file(masks(), tmp_path, name="yolo")
    lines = (tmp_path / "labels" / "00002.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1"]
    assert [line.split()[-1] for line in lines] == ["1", "300"]
    values = np.array([float(word) for word in lines[0].split()[1:-1]])
    assert ((values >= 0) & (values <= 1)).all()
    assert (tmp_path / "labels" / "00003.txt").read_text() == ""


def test_masks_with_holes_and_parts_come_back_exactly(tmp_path):
    write_file(masks(), tmp_path, name="yolo")
    labels = read_file(tmp_path, VIDEO)
    assert all(np.array_equal(labels.labels[index].ids, mask(index).ids) for index in range(7))


@pytest.mark.parametrize("names", ["names: ['dog', 'cat']", "names:\n  0: dog\n  1: cat", "names:\n- dog\n- cat"])
def test_without_track_ids_classes_are_the_objects(tmp_path, names):
    path = folder(tmp_path, "1 0.25 0.25 0.75 0.25 0.75 0.75 0.25 0.75\n", f"nc: 2\n{names}\n")
    labels = read_file(path, VIDEO)
    assert labels.names == {"2": "cat"}
    assert (labels.labels[4].ids == 2).sum() == 24 * 32


def test_points_of_a_pose_without_track_and_names_are_numbered(tmp_path):
    path = folder(tmp_path, "0 0.5 0.5 1 1 0.5 0.5 2 0.25 0.75 1 0 0 0\n", "names: [mouse]\nkpt_shape: [3, 3]\n")
    points = read_file(path, VIDEO).labels[4]
    assert points.names == ("point 1", "point 2", "point 3")
    assert points.xy[:2].tolist() == [[31.5, 23.5], [15.5, 35.5]]
    assert np.isnan(points.xy[2]).all()
    assert points.visible.tolist() == [True, False, False]


def test_names_of_points_come_back(tmp_path):
    write_file(keypoints(), tmp_path, name="yolo")
    assert read_file(tmp_path, VIDEO).labels[5].names == ("nez", "хвост", "left ear")


def test_points_of_two_animals_have_the_same_names_on_every_frame(tmp_path):
    """The second one alone on a frame is still the second, in our own exports too."""
    both = Keypoints(("a/nose", "b/nose"), np.array([[2, 3], [20, 30]], np.float32), np.array([True, True]))
    labels = {0: both, 1: Keypoints(both.names[1:], both.xy[1:], both.visible[1:])}
    write_file(replace(keypoints(2), labels=labels), tmp_path, name="yolo")
    assert (tmp_path / "labels" / "00001.txt").read_text().split()[-1] == "2"
    back = read_file(tmp_path, VIDEO).labels
    assert back[0].names == ("1/nose", "2/nose")
    assert back[1].names == ("2/nose",)
    assert back[1].xy.tolist() == [[20, 30]]


def test_animals_that_never_share_a_frame_are_told_apart_by_their_tracks(tmp_path):
    path = folder(tmp_path, "0 0.5 0.5 1 1 0.5 0.5 2 1\n", "kpt_shape: [1, 3]\n")
    (path / "labels" / "clip_0005.txt").write_text("0 0.5 0.5 1 1 0.5 0.5 2 2\n")
    labels = read_file(path, VIDEO).labels
    assert [labels[index].names for index in (4, 5)] == [("1/point 1",), ("2/point 1",)]


def test_two_poses_of_one_track_on_a_frame_are_refused(tmp_path):
    path = folder(tmp_path, "0 0.5 0.5 1 1 0.5 0.5 2 7\n" * 2, "kpt_shape: [1, 3]\n")
    with pytest.raises(LabelError, match=r"line 2 of .*clip_0004\.txt is a second object of its class or track"):
        read_file(path, VIDEO)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0 0.1 0.2 0.3 0.4\n", "three vertices"),
        ("0 a b c\n", "cannot be read"),
        ("0 1e300 0 0 1 1 1\n", "out of range"),
        ("-1 0 0 0 1 1 1\n", "begin with a class"),
        ("0 nan 0 0 1 1 1\n", "out of range"),
        ("0 0 0 0 1 1 1\n0 0 0 0 1 1 1\n", "second object of its class"),
        ("0 0 0 0 1 1 1 70000\n", "track id 70000"),
    ],
)
def test_damaged_lines_are_refused_with_their_file(tmp_path, text, problem):
    with pytest.raises(LabelError, match=rf"clip_0004\.txt.*{problem}"):
        dict(read_file(folder(tmp_path, text), VIDEO, name="yolo").labels)


def test_the_size_of_the_video_is_needed(tmp_path):
    write_file(masks(), tmp_path, name="yolo")
    with pytest.raises(LabelError, match="say which video it is: --video VIDEO"):
        read_file(tmp_path)


def test_names_that_are_no_list_are_refused(tmp_path):
    with pytest.raises(LabelError, match=r"data\.yaml has the names dog"):
        read_file(folder(tmp_path, "0 0.5 0.5 1 1\n", "names: dog\n"), VIDEO)


@pytest.mark.parametrize("shape", ["[0, 3]", "[3, 5]", "three", "[1e9, 3]"])
def test_wrong_settings_of_points_are_refused(tmp_path, shape):
    with pytest.raises(LabelError, match=r"data\.yaml has the kpt_shape"):
        read_file(folder(tmp_path, "0 0 0 0 0 0 0 2\n", f"kpt_shape: {shape}\n"), VIDEO)
