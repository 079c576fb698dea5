"""Points return to where they were, hidden ones stay hidden, and a CSV's faults are named by line and column."""

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
    """Keypoints from rows of (name, x, y) or (name, x, y, visible)."""
    names = tuple(row[0] for row in rows)
    xy = np.array([row[1:3] for row in rows], np.float32).reshape(-1, 2)
    return Keypoints(names, xy, np.array([row[3] if len(row) > 3 else True for row in rows], bool))


def written(tmp_path, text, newline="\n"):
    path = tmp_path / "points.csv"
    path.write_bytes(text.replace("\n", newline).encode())
    return path


# Soft maps


@settings(max_examples=150, deadline=None)
@given(
    st.floats(0, 96, width=32),
    st.floats(0, 64, width=32),
    st.sampled_from([(65, 97), (130, 194), (59, 71), (480, 854)]),
)
def test_a_point_between_the_outer_centres_returns_to_its_place(x, y, shown):
    grid = GRID.rescaled(*shown)
    x_px = float(grid.x.pixel_of(GRID.x.cell_of(torch.tensor(x))))
    y_px = float(grid.y.pixel_of(GRID.y.cell_of(torch.tensor(y))))
    inside = 0 <= x_px <= grid.x.pixels - 1 and 0 <= y_px <= grid.y.pixels - 1
    space = KeypointSpace(("nose",))
    found = space.from_soft(space.to_soft(points(("nose", x_px, y_px)), grid), grid)
    if inside:
        assert found.visible.all()
        assert np.allclose(found.xy, [[x_px, y_px]], atol=0.01)


def test_a_point_weighs_one_however_it_is_shared_among_cells():
    soft = KeypointSpace(("a", "b")).to_soft(points(("a", 13.7, 40.2), ("b", 96.4, -0.4)), GRID)
    assert torch.allclose(soft.sum(dim=(0, 1)), torch.ones(2), atol=1e-6)
    assert (soft[..., 0] > 0).sum() == 4


def test_a_point_beyond_the_outer_centres_goes_to_the_nearest_centre():
    grid = grid_over(64, 96, cells=(8, 12), stride_px=8, first_px=0)
    space = KeypointSpace(("a",))
    found = space.from_soft(space.to_soft(points(("a", 95, 60)), grid), grid)
    assert found.xy.tolist() == [[88, 56]]


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
def test_a_hidden_unknown_or_outside_point_is_not_visible_afterwards(row):
    space = KeypointSpace(("a",))
    soft = space.to_soft(points(row), GRID)
    assert (soft == 0).all()
    assert not space.from_soft(soft, GRID).visible.any()


def test_names_decide_the_channel_and_not_their_order():
    space = KeypointSpace(("a", "b", "c"))
    found = space.from_soft(space.to_soft(points(("c", 40, 8), ("a", 16, 24)), GRID), GRID)
    assert found.names == ("a", "b", "c")
    assert found.visible.tolist() == [True, False, True]
    assert found.xy[[0, 2]].tolist() == [[16, 24], [40, 8]]


def test_far_weight_does_not_pull_a_point_away_from_its_peak():
    soft = torch.zeros(9, 13, 1)
    soft[2, 3] = 0.6
    soft[7, 11] = 0.4
    assert KeypointSpace(("a",)).from_soft(soft, GRID).xy.tolist() == [[24, 16]]


def test_a_single_cell_places_a_point_on_its_centre():
    grid = grid_over(7, 5, cells=(1, 1), stride_px=8, first_px=0)
    space = KeypointSpace(("a",))
    assert space.from_soft(space.to_soft(points(("a", 3, 3)), grid), grid).xy.tolist() == [[0, 0]]


# Channels


def test_a_frame_speaks_for_the_points_it_names_hidden_or_not():
    space = Keypoints.space([points(("b", 1, 1), ("a", 1, 1)), points(("c", 1, 1), ("a", 1, 1))])
    assert space.names == ("b", "a", "c")
    assert space.speaks(points(("a", 1, 1, False), ("c", 1, 1))).tolist() == [False, True, True]


def test_given_points_come_back_as_given_and_the_others_as_decided():
    space = KeypointSpace(("a", "b", "c"))
    decided = points(("a", 1, 1), ("b", 2, 2), ("c", 3, 3))
    result = space.put_back(points(("c", 30.5, 31.5), ("b", 0, 0, False)), decided)
    assert result.names == ("a", "b", "c")
    assert result.xy[[0, 2]].tolist() == [[1, 1], [30.5, 31.5]]
    assert result.visible.tolist() == [True, False, True]
    assert decided.xy[2].tolist() == [3, 3]


def test_new_points_get_channels_at_the_end():
    assert KeypointSpace(("b", "a")).widened(points(("c", 1, 1), ("a", 1, 1))).names == ("b", "a", "c")


def test_keypoints_have_no_image_size():
    assert points(("a", 1, 1)).size() is None


# CSV

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp", "Cs"]), min_size=1, max_size=8)
names = names.filter(lambda name: name[0] not in "=+-@")  # which a spreadsheet would take for a formula


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 999),
        st.dictionaries(names, st.tuples(st.integers(-400, 4000), st.integers(0, 4000), st.booleans()), min_size=1),
        min_size=1,
        max_size=3,
    )
)
def test_points_come_back_from_the_csv_to_a_hundredth_of_a_pixel(tmp_path_factory, frames):
    made = {f: points(*((n, x / 4, y / 4, v) for n, (x, y, v) in rows.items())) for f, rows in sorted(frames.items())}
    path = tmp_path_factory.mktemp("points") / "points.csv"
    path.write_text(keypoints_csv(made), encoding="utf-8")
    again = read_keypoints(path)
    assert list(again) == list(made)
    for frame, wanted in made.items():
        assert again[frame].names == wanted.names
        assert np.array_equal(again[frame].visible, wanted.visible)
        assert np.allclose(again[frame].xy[wanted.visible], wanted.xy[wanted.visible], atol=0.005)


def test_one_frame_is_written_under_its_number_and_read_again(tmp_path):
    points(("nose", 1.25, 2), ("eye", 0, 0, False)).write(tmp_path / "00012.csv")
    text = (tmp_path / "00012.csv").read_text()
    assert text == "frame,name,x,y,visible,confidence\n12,nose,1.25,2.0,1,\n12,eye,0.0,0.0,0,\n"
    assert Keypoints.read(tmp_path / "00012.csv").names == ("nose", "eye")


def test_confidence_is_written_and_read_again_and_a_lost_point_keeps_its_place(tmp_path):
    made = points(("nose", 1.25, 2), ("eye", 7, 8), ("ear", np.nan, np.nan, False))
    sure = made.with_confidence({"nose": 0.9321, "eye": 0.12}, unseen={"eye"})
    sure.write(tmp_path / "00003.csv")
    assert (tmp_path / "00003.csv").read_text().splitlines()[1:] == [
        "3,nose,1.25,2.0,1,0.9321",
        "3,eye,7.0,8.0,0,0.12",
        "3,ear,,,0,",
    ]
    again = Keypoints.read(tmp_path / "00003.csv")
    assert again.visible.tolist() == [True, False, False]
    assert np.array_equal(again.xy, sure.xy, equal_nan=True)
    assert np.array_equal(again.confidence, sure.confidence, equal_nan=True)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_byte_order_mark_and_the_newlines_of_any_system_are_read(tmp_path, newline, mark):
    path = written(tmp_path, f"{mark}frame,name,x,y,visible\n0,nose,1.5,2,1\n3,eye,4,5,0\n", newline)
    found = read_keypoints(path)
    assert list(found) == [0, 3]
    assert found[0].xy.tolist() == [[1.5, 2]]
    assert not found[3].visible.any()


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
def test_a_point_is_visible_unless_it_says_no_or_has_no_place(tmp_path, row, visible):
    (found,) = read_keypoints(written(tmp_path, f"frame,name,x,y,visible\n{row}\n")).values()
    assert found.names == ("a",)
    assert found.visible.tolist() == [visible]


def test_columns_may_stand_in_any_order_beside_others_and_visible_may_be_missing(tmp_path):
    found = read_keypoints(written(tmp_path, "y,x,comment,name,frame\n2,1,so,a,4\n"))
    assert found[4].xy.tolist() == [[1, 2]]
    assert found[4].visible.all()


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
def test_a_row_that_is_no_point_is_named_by_line_and_column(tmp_path, row, problem):
    path = written(tmp_path, f"frame,name,x,y,visible\n0,ok,1,2,1\n\n{row}\n")  # the empty line counts
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
def test_a_csv_without_its_columns_or_rows_says_how_to_write_one(tmp_path, text, problem):
    with pytest.raises(LabelError, match=rf"points\.csv .*{problem}; write a first line frame,name,x,y,visible"):
        read_keypoints(written(tmp_path, text))


def test_a_name_placed_twice_on_a_frame_is_refused(tmp_path):
    path = written(tmp_path, "frame,name,x,y\n0,a,1,1\n1,a,1,1\n1,b,1,1\n1,a,2,2\n")
    with pytest.raises(LabelError, match=r"points\.csv places 'a' twice on frame 1; name every point of a frame once"):
        read_keypoints(path)


def test_a_file_that_is_missing_or_not_text_is_refused(tmp_path):
    with pytest.raises(LabelError, match=r"there is no label file .*none\.csv; check the path"):
        read_keypoints(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(LabelError, match=r"cannot read .*bytes\.csv: .*; give a CSV with the columns"):
        read_keypoints(tmp_path / "bytes.csv")


def test_a_file_of_many_frames_is_not_read_as_one(tmp_path):
    path = written(tmp_path, "frame,name,x,y\n0,a,1,1\n1,a,1,1\n")
    with pytest.raises(LabelError, match="has points on 2 frames where one was expected; give the file itself"):
        Keypoints.read(path)
