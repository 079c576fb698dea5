"""Labels are read by frame number, and ambiguous files are refused."""

import numpy as np
import pytest
from PIL import Image

from timecycle.errors import LabelError
from timecycle.labels import KINDS, Coordinates, Keypoints, Masks, Parts, Texture, read_labels


def square(identity):
    ids = np.zeros((20, 30), np.uint16)
    ids[4:15, 6:20] = identity
    return Masks(ids)


def identity_of(masks):
    (identity,) = set(np.unique(masks.ids).tolist()) - {0}
    return identity


def test_file_without_a_number_is_frame_0(tmp_path):
    square(3).write(tmp_path / "00017.png")
    labels = read_labels([tmp_path / "00017.png"])
    assert list(labels) == [0]
    assert isinstance(labels[0], Masks)
    assert identity_of(labels[0]) == 3


def test_number_before_a_file_is_its_frame(tmp_path):
    for identity in (1, 2, 3):
        square(identity).write(tmp_path / f"{identity}.png")
    labels = read_labels([f"7={tmp_path / '1.png'}", tmp_path / "2.png", f"012={tmp_path / '3.png'}"])
    assert {index: identity_of(masks) for index, masks in labels.items()} == {7: 1, 0: 2, 12: 3}


def test_existing_file_named_like_frame_and_file_is_read_as_a_file(tmp_path, monkeypatch):
    square(5).write(tmp_path / "3=a.png")
    monkeypatch.chdir(tmp_path)
    assert list(read_labels(["3=a.png"])) == [0]


def test_files_of_a_folder_are_numbered_by_their_names(tmp_path):
    for name, identity in (("frame_2.png", 2), ("frame_10.png", 10), ("frame_0003.png", 3)):
        square(identity).write(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not labels")
    (tmp_path / ".hidden.png").write_text("not labels")
    labels = read_labels([tmp_path])
    assert {index: identity_of(masks) for index, masks in labels.items()} == {2: 2, 3: 3, 10: 10}
    assert list(labels) == [2, 3, 10]


def test_folders_and_files_may_be_combined(tmp_path):
    (tmp_path / "folder").mkdir()
    square(1).write(tmp_path / "folder" / "4.png")
    square(2).write(tmp_path / "more.png")
    assert sorted(read_labels([tmp_path / "folder", f"9={tmp_path / 'more.png'}"])) == [4, 9]


def test_no_arguments_give_no_labels():
    assert read_labels([]) == {}


def test_two_files_for_one_frame_are_refused(tmp_path):
    for name in ("a.png", "b.png"):
        square(1).write(tmp_path / name)
    with pytest.raises(LabelError, match=r"frame 0 has two label files: .*a\.png and .*b\.png; give each frame one"):
        read_labels([tmp_path / "a.png", tmp_path / "b.png"])
    with pytest.raises(LabelError, match="frame 5 has two label files"):
        read_labels([f"5={tmp_path / 'a.png'}", f"05={tmp_path / 'b.png'}"])


def test_two_files_of_a_folder_for_one_frame_are_refused(tmp_path):
    for name in ("1.png", "01.png"):
        square(1).write(tmp_path / name)
    with pytest.raises(LabelError, match=r"frame 1 has two label files: .*01\.png and .*1\.png; keep one file"):
        read_labels([tmp_path])


def test_empty_folder_is_refused(tmp_path):
    with pytest.raises(LabelError, match=r"the folder .* has no label files; put files named by frame number in it"):
        read_labels([tmp_path])


def test_file_without_a_number_in_a_folder_is_refused(tmp_path):
    square(1).write(tmp_path / "mask.png")
    with pytest.raises(LabelError, match=r"mask\.png has no frame number in its name; name label files by frame"):
        read_labels([tmp_path])


@pytest.mark.parametrize("argument", ["none.png", "4=none.png"])
def test_error_for_a_missing_file_names_it(tmp_path, monkeypatch, argument):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LabelError, match=r"there is no label file none\.png; check the path given as LABELS"):
        read_labels([argument])


def test_error_for_an_unknown_kind_lists_all_kinds(tmp_path):
    square(1).write(tmp_path / "0.png")
    with pytest.raises(LabelError, match="there is no kind of labels 'mask'; choose one of masks, parts, keypoints"):
        read_labels([tmp_path / "0.png"], kind="mask")


def test_kind_follows_the_suffix_unless_it_is_given(tmp_path):
    square(2001).write(tmp_path / "0.png")
    Keypoints(("a",), np.ones((1, 2), np.float32), np.ones(1, bool)).write(tmp_path / "0.csv")
    Coordinates.of_image(4, 5).write(tmp_path / "0.npy")
    assert isinstance(read_labels([tmp_path / "0.png"])[0], Masks)
    assert isinstance(read_labels([tmp_path / "0.csv"])[0], Keypoints)
    assert isinstance(read_labels([tmp_path / "0.npy"])[0], Coordinates)
    assert isinstance(read_labels([tmp_path / "0.png"], kind="parts")[0], Parts)
    assert isinstance(read_labels([tmp_path / "0.png"], kind="texture")[0], Texture)


def test_every_kind_is_listed_under_its_name():
    assert {name: kind.kind for name, kind in KINDS.items()} == {name: name for name in KINDS}
    assert len(KINDS) == 5


@pytest.mark.parametrize("kind", ["masks", "parts"])
def test_exhaustive_applies_to_every_frame(tmp_path, kind):
    for name in ("0.png", "3.png"):
        square(1001).write(tmp_path / name)
    assert [labels.exhaustive for labels in read_labels([tmp_path], kind=kind).values()] == [False, False]
    assert [labels.exhaustive for labels in read_labels([tmp_path], kind=kind, exhaustive=True).values()] == [
        True,
        True,
    ]


def test_colour_is_the_same_object_in_every_file(tmp_path):
    colours = {"0.png": [(9, 9, 250)], "1.png": [(250, 9, 9)], "2.png": [(9, 250, 9), (250, 9, 9)]}
    for name, fills in colours.items():
        pixels = np.zeros((20, 40, 3), np.uint8)
        for i, fill in enumerate(fills):
            pixels[3:15, 3 + 18 * i : 15 + 18 * i] = fill
        Image.fromarray(pixels).save(tmp_path / name)
    labels = read_labels([tmp_path])
    assert [labels[0].ids[5, 5], labels[1].ids[5, 5]] == [1, 3]
    assert [labels[2].ids[5, 5], labels[2].ids[5, 25]] == [2, 3]


def test_rows_of_a_csv_name_their_frames(tmp_path):
    (tmp_path / "points.csv").write_text("frame,name,x,y\n4,a,1,1\n9,a,2,2\n4,b,3,3\n")
    labels = read_labels([tmp_path / "points.csv"])
    assert {index: points.names for index, points in labels.items()} == {4: ("a", "b"), 9: ("a",)}


def test_two_csv_files_with_points_on_one_frame_are_refused(tmp_path):
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_text("frame,name,x,y\n4,a,1,1\n")
    with pytest.raises(LabelError, match=r"2\.csv has points on frame 4, as another file does; keep the points"):
        read_labels([tmp_path])


def test_csv_with_a_frame_number_is_refused(tmp_path):
    (tmp_path / "points.csv").write_text("frame,name,x,y\n5,nose,1,2\n")
    with pytest.raises(LabelError, match="gives a frame to a CSV, whose rows name their frames themselves"):
        read_labels([f"5={tmp_path / 'points.csv'}"])


def test_several_csv_files_are_read_together(tmp_path):
    (tmp_path / "a.csv").write_text("frame,name,x,y\n5,nose,1,2\n")
    (tmp_path / "b.csv").write_text("frame,name,x,y\n9,nose,1,2\n")
    assert sorted(read_labels([tmp_path / "a.csv", tmp_path / "b.csv"])) == [5, 9]


def test_mixing_numbered_and_coloured_masks_is_refused(tmp_path):
    ids = np.zeros((20, 20), np.uint8)
    ids[5:15, 5:15] = 1
    Image.fromarray(ids).save(tmp_path / "0.png")
    Image.fromarray(np.stack([ids * 255, ids * 9, ids * 3], axis=-1)).save(tmp_path / "7.png")
    with pytest.raises(LabelError, match=r"0\.png numbers its objects but other masks show them as colours"):
        read_labels([tmp_path])


def test_8_bit_image_is_refused_as_parts(tmp_path):
    Image.fromarray(np.full((4, 4), 3, np.uint8)).save(tmp_path / "parts.png")
    with pytest.raises(LabelError, match="has values below 1000, which name no part; write part"):
        read_labels([tmp_path / "parts.png"], kind="parts")
