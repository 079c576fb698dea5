"""Keypoints: encoding and decoding keep positions and visibility; CSV errors name line and column."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.errors import LabelError
from timecycle.grid import grid_over
from timecycle.labels.keypoints import Keypoints, KeypointSpace, keypoints_csv, read_keypoints

GRID = grid_over(65, 97, cells=(9, 13), stride_px=8, first_px=0)


def points(*rows):
    """Make keypoints from rows of (name, x, y) or (name, x, y, visible)."""
    names = tuple(row[0] for row in rows)
    xy = np.array([row[1:3] for row in rows], np.float32).reshape(-1, 2)
    return Keypoints(names, xy, np.array([row[3] if len(row) > 3 else True for row in rows], bool))


def write_csv(tmp_path, text, newline="\n"):
    path = tmp_path / "points.csv"
    path.write_bytes(text.replace("\n", newline).encode())
    return path


# Label maps


@settings(max_examples=150, deadline=None)
@given(
    st.floats(0, 96, width=32),
    st.floats(0, 64, width=32),
    st.sampled_from([(65, 97), (130, 194), (59, 71), (480, 854)]),
)
def test_point_between_the_outer_cell_centres_is_decoded_exactly(x, y, image_size):
    grid = GRID.rescaled(*image_size)
    x_px = float(grid.x.pixel_of(GRID.x.cell_of(torch.tensor(x))))
    y_px = float(grid.y.pixel_of(GRID.y.cell_of(torch.tensor(y))))
    inside = 0 <= x_px <= grid.x.pixels - 1 and 0 <= y_px <= grid.y.pixels - 1
    space = KeypointSpace(("nose",))
    decoded = space.decode(space.encode(points(("nose", x_px, y_px)), grid), grid)
    if inside:
        assert decoded.visible.all()
        assert np.allclose(decoded.xy, [[x_px, y_px]], atol=0.01)


def test_encoded_point_has_a_total_weight_of_one():
    values = KeypointSpace(("a", "b")).encode(points(("a", 13.7, 40.2), ("b", 96.4, -0.4)), GRID)
    assert torch.allclose(values.sum(dim=(0, 1)), torch.ones(2), atol=1e-6)
    assert (values[..., 0] > 0).sum() == 4


def test_point_beyond_the_outer_cell_centres_moves_to_the_nearest_centre():
    grid = grid_over(64, 96, cells=(8, 12), stride_px=8, first_px=0)
    space = KeypointSpace(("a",))
    decoded = space.decode(space.encode(points(("a", 95, 60)), grid), grid)
    assert decoded.xy.tolist() == [[88, 56]]


@pytest.mark.parametrize(
    "row",
    [
        ("a", 10, 10, False),
        ("a", np.nan, 10, True),
        ("a", 10, np.nan, True),
        ("a", np.inf, 10, True),
        ("a", -0.6, 10, True),
        ("a", 10, 64.6, True),
        ("a", 1e6, 10, True),
    ],
)
def test_hidden_unknown_and_outside_points_are_decoded_as_hidden(row):
    space = KeypointSpace(("a",))
    values = space.encode(points(row), GRID)
    assert (values == 0).all()
    assert not space.decode(values, GRID).visible.any()


def test_channel_is_chosen_by_name_not_by_order():
    space = KeypointSpace(("a", "b", "c"))
    decoded = space.decode(space.encode(points(("c", 40, 8), ("a", 16, 24)), GRID), GRID)
    assert decoded.names == ("a", "b", "c")
    assert decoded.visible.tolist() == [True, False, True]
    assert decoded.xy[[0, 2]].tolist() == [[16, 24], [40, 8]]


def test_distant_weight_does_not_move_a_point_from_its_peak():
    values = torch.zeros(9, 13, 1)
    values[2, 3] = 0.6
    values[7, 11] = 0.4
    assert KeypointSpace(("a",)).decode(values, GRID).xy.tolist() == [[24, 16]]


def test_grid_of_one_cell_places_a_point_on_its_centre():
    grid = grid_over(7, 5, cells=(1, 1), stride_px=8, first_px=0)
    space = KeypointSpace(("a",))
    assert space.decode(space.encode(points(("a", 3, 3)), grid), grid).xy.tolist() == [[0, 0]]


# Channels


def test_annotation_constrains_the_points_it_names_hidden_or_not():
    space = Keypoints.space([points(("b", 1, 1), ("a", 1, 1)), points(("c", 1, 1), ("a", 1, 1))])
    assert space.names == ("b", "a", "c")
    assert space.annotated_channels(points(("a", 1, 1, False), ("c", 1, 1))).tolist() == [False, True, True]


def test_annotated_points_are_restored_and_others_stay_as_decoded():
    space = KeypointSpace(("a", "b", "c"))
    decoded = points(("a", 1, 1), ("b", 2, 2), ("c", 3, 3))
    result = space.restore_annotated(points(("c", 30.5, 31.5), ("b", 0, 0, False)), decoded)
    assert result.names == ("a", "b", "c")
    assert result.xy[[0, 2]].tolist() == [[1, 1], [30.5, 31.5]]
    assert result.visible.tolist() == [True, False, True]
    assert decoded.xy[2].tolist() == [3, 3]


def test_new_points_are_appended_as_channels():
    assert KeypointSpace(("b", "a")).extended(points(("c", 1, 1), ("a", 1, 1))).names == ("b", "a", "c")


def test_keypoints_have_no_image_size():
    assert points(("a", 1, 1)).size() is None


# CSV

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp", "Cs"]), min_size=1, max_size=8)
names = names.filter(lambda name: name[0] not in "=+-@")  # a spreadsheet would evaluate these as formulas


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 999),
        st.dictionaries(names, st.tuples(st.integers(-400, 4000), st.integers(0, 4000), st.booleans()), min_size=1),
        min_size=1,
        max_size=3,
    )
)
def test_points_survive_a_csv_to_a_hundredth_of_a_pixel(tmp_path_factory, frames):
    made = {f: points(*((n, x / 4, y / 4, v) for n, (x, y, v) in rows.items())) for f, rows in sorted(frames.items())}
    path = tmp_path_factory.mktemp("points") / "points.csv"
    path.write_text(keypoints_csv(made), encoding="utf-8")
    again = read_keypoints(path)
    assert list(again) == list(made)
    for frame, expected in made.items():
        assert again[frame].names == expected.names
        assert np.array_equal(again[frame].visible, expected.visible)
        assert np.allclose(again[frame].xy[expected.visible], expected.xy[expected.visible], atol=0.005)


def test_frame_number_in_a_written_csv_is_that_of_the_file_name(tmp_path):
    points(("nose", 1.25, 2), ("eye", 0, 0, False)).write(tmp_path / "00012.csv")
    text = (tmp_path / "00012.csv").read_text()
    assert text == "frame,name,x,y,visible,confidence\n12,nose,1.25,2.0,1,\n12,eye,0.0,0.0,0,\n"
    assert Keypoints.read(tmp_path / "00012.csv").names == ("nose", "eye")


def test_confidence_survives_a_csv_and_an_unseen_point_keeps_its_position(tmp_path):
    made = points(("nose", 1.25, 2), ("eye", 7, 8), ("ear", np.nan, np.nan, False))
    with_confidence = made.with_confidence({"nose": 0.9321, "eye": 0.12}, unseen={"eye"})
    with_confidence.write(tmp_path / "00003.csv")
    assert (tmp_path / "00003.csv").read_text().splitlines()[1:] == [
        "3,nose,1.25,2.0,1,0.9321",
        "3,eye,7.0,8.0,0,0.12",
        "3,ear,,,0,",
    ]
    again = Keypoints.read(tmp_path / "00003.csv")
    assert again.visible.tolist() == [True, False, False]
    assert np.array_equal(again.xy, with_confidence.xy, equal_nan=True)
    assert np.array_equal(again.confidence, with_confidence.confidence, equal_nan=True)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_byte_order_mark_and_all_newline_styles_are_read(tmp_path, newline, mark):
    path = write_csv(tmp_path, f"{mark}frame,name,x,y,visible\n0,nose,1.5,2,1\n3,eye,4,5,0\n", newline)
    read_points = read_keypoints(path)
    assert list(read_points) == [0, 3]
    assert read_points[0].xy.tolist() == [[1.5, 2]]
    assert not read_points[3].visible.any()


@pytest.mark.parametrize(
    ("row", "visible"),
    [
        ("0,a,1,2,1", True),
        ("0,a,1,2,True", True),
        ("0,a,1,2,yes", True),
        ("0,a,1,2,2", True),
        ("0,a,1,2,", True),
        ("0,a,1,2", True),
        ("0, a , 1 , 2 , 1 ", True),
        ("0,a,1,2,0", False),
        ("0,a,1,2,False", False),
        ("0,a,,,1", False),
        ("0,a,nan,2,1", False),
        ("0,a,inf,2,1", False),
        ("0,a", False),
    ],
)
def test_point_is_visible_unless_marked_hidden_or_without_position(tmp_path, row, visible):
    (read_points,) = read_keypoints(write_csv(tmp_path, f"frame,name,x,y,visible\n{row}\n")).values()
    assert read_points.names == ("a",)
    assert read_points.visible.tolist() == [visible]


def test_columns_may_be_in_any_order_with_others_and_without_visible(tmp_path):
    read_points = read_keypoints(write_csv(tmp_path, "y,x,comment,name,frame\n2,1,so,a,4\n"))
    assert read_points[4].xy.tolist() == [[1, 2]]
    assert read_points[4].visible.all()


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("0,a,twelve,2,1", "its x is 'twelve'"),
        ("0,a,1,2px,1", "its y is '2px'"),
        ("first,a,1,2,1", "its frame is 'first'"),
        ("1.5,a,1,2,1", "its frame is '1.5'"),
        ("-1,a,1,2,1", "its frame is '-1'"),
        (",a,1,2,1", "its frame is ''"),
        ("0,,1,2,1", "its name is ''"),
        ("0", "its name is ''"),
        ("0,a,1,2,maybe", "its visible is 'maybe'"),
    ],
)
def test_error_for_an_invalid_row_names_line_and_column(tmp_path, row, problem):
    path = write_csv(tmp_path, f"frame,name,x,y,visible\n0,ok,1,2,1\n\n{row}\n")  # the empty line counts
    with pytest.raises(LabelError) as caught:
        read_keypoints(path)
    assert str(caught.value) == (
        f"line 4 of {path} is not a point: {problem}; "
        "write a whole frame number, a name, x and y in pixels, and 1 or 0 for visible"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no rows"),
        ("\n", "has no rows"),
        ("frame,name,x,y,visible\n", "has no rows"),
        ("frame,name,y,visible\n0,a,1,1\n", "has no column 'x'"),
        ("frame;name;x;y\n0;a;1;1\n", "has no column 'frame'"),
    ],
)
def test_error_for_missing_columns_or_rows_says_how_to_write_the_csv(tmp_path, text, problem):
    with pytest.raises(LabelError, match=rf"points\.csv .*{problem}; write a first line frame,name,x,y,visible"):
        read_keypoints(write_csv(tmp_path, text))


def test_duplicate_name_on_a_frame_is_refused(tmp_path):
    path = write_csv(tmp_path, "frame,name,x,y\n0,a,1,1\n1,a,1,1\n1,b,1,1\n1,a,2,2\n")
    with pytest.raises(LabelError, match=r"points\.csv has 'a' twice on frame 1; name every point of a frame once"):
        read_keypoints(path)


def test_missing_and_binary_files_are_refused(tmp_path):
    with pytest.raises(LabelError, match=r"there is no label file .*none\.csv; check the path"):
        read_keypoints(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(LabelError, match=r"cannot read .*bytes\.csv: .*; give a CSV with the columns"):
        read_keypoints(tmp_path / "bytes.csv")


def test_reading_a_csv_of_many_frames_as_one_frame_is_refused(tmp_path):
    path = write_csv(tmp_path, "frame,name,x,y\n0,a,1,1\n1,a,1,1\n")
    with pytest.raises(LabelError, match="has points on 2 frames where one was expected; give the file itself"):
        Keypoints.read(path)


def test_keypoints_that_stayed_were_right():
    old = points(("a", 0, 0), ("b", 50, 50), ("c", 9, 9, False), ("d", 9, 9))
    new = points(("a", 3, 4), ("b", 80, 50), ("c", 9, 9, False), ("d", 9, 9, False))
    assert [old.accuracy(name, new, tolerance_px=5.0) for name in "abcde"] == [1.0, 0.0, None, 0.0, None]


def test_merged_annotations_keep_the_points_that_the_newer_one_lacks():
    merged = points(("b", 1, 2), ("c", 3, 4, False)).merged_with(points(("a", 5, 6), ("b", 7, 8)))
    assert merged.names == ("b", "c", "a")
    assert merged.xy.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert merged.visible.tolist() == [True, False, True]
