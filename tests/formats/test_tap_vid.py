"""TAP-Vid tracks: arrays as its own files have them, and files that are no tracks."""

import pickle

import numpy as np
import pytest

from label_samples import SIZE, keypoints
from timecycle.errors import LabelError
from timecycle.formats.registry import read_file, write_file
from timecycle.formats.video_labels import VideoFacts

VIDEO = VideoFacts(name="clip.mp4", frames=5, size=SIZE)


def tracks(tmp_path, **arrays):
    sample = {"points": np.full((3, 5, 2), 0.5), "occluded": np.zeros((3, 5), bool)} | arrays
    np.savez(tmp_path / "tracks.npz", **{name: one for name, one in sample.items() if one is not None})
    return tmp_path / "tracks.npz"


def test_fractions_are_measured_from_the_corner_of_the_first_pixel(tmp_path):
    occluded = np.zeros((3, 5), bool)
    occluded[1, 2] = True
    labels = read_file(tracks(tmp_path, occluded=occluded), VIDEO)
    assert labels.labels[2].names == ("point 1", "point 2", "point 3")
    assert labels.labels[2].xy.tolist() == [[31.5, 23.5]] * 3
    assert labels.labels[2].visible.tolist() == [True, False, True]


def test_written_arrays_have_the_shapes_of_tap_vid(tmp_path):
    write_file(keypoints(), tmp_path / "tracks.npz")
    with np.load(tmp_path / "tracks.npz", allow_pickle=False) as file:
        assert file["points"].shape == (3, 7, 2)
        assert file["occluded"].dtype == bool
        assert file["points"][0, 0].tolist() == [(10.25 + 0.5) / 64, (20.5 + 0.5) / 48]
        assert file["occluded"][0].tolist() == [index == 2 for index in range(7)]


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"points": None}, "no points of the shape"),
        ({"points": np.zeros((3, 5))}, "no points of the shape"),
        ({"occluded": np.zeros((3, 4), bool)}, r"no occluded of the shape \(3, 5\)"),
        ({"size": np.array([0, 5])}, "has the size"),
        ({"points": np.array([{}], object)}, "cannot be read"),
        ({"points": np.zeros((3, 7, 2)), "occluded": np.zeros((3, 7), bool)}, "of 7 frames but clip.mp4 has 5"),
    ],
)
def test_other_arrays_are_refused(tmp_path, arrays, problem):
    with pytest.raises(LabelError, match=problem):
        read_file(tracks(tmp_path, **arrays), VIDEO, name="tapvid")


def test_pickles_of_tap_vid_are_refused_with_what_to_do(tmp_path):
    (tmp_path / "tracks.npz").write_bytes(pickle.dumps({"points": 1}))
    with pytest.raises(LabelError, match=r"cannot be read.*save arrays: numpy\.savez"):
        read_file(tmp_path / "tracks.npz", VIDEO, name="tapvid")
