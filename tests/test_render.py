"""Pictures: overlays change only labelled pixels; sheets, arrows and lines show what they are given."""

import numpy as np
import pytest
from PIL import Image

from timecycle.labels import Coordinates, Keypoints, Masks, Parts, striped
from timecycle.labels.drawing import colour_of
from timecycle.render import Captioned, arrows, contact_sheet, match_lines

GREY = np.full((40, 60, 3), 128, np.uint8)
SQUARE = (20, 15)  # x, y within the square


def square() -> Masks:
    ids = np.zeros((40, 60), np.uint16)
    ids[10:20, 10:30] = 1
    return Masks(ids)


def test_overlay_changes_only_labelled_pixels():
    changed = (square().overlay(GREY) != GREY).any(axis=-1)
    assert (changed == (square().ids > 0)).all()


def test_overlay_does_not_change_the_frame_itself():
    image = GREY.copy()
    square().overlay(image)
    assert (image == GREY).all()


@pytest.mark.parametrize("identity", [1, 255, 256, 300, 65535])
def test_every_id_has_a_colour(identity):
    masks = Masks(np.where(square().ids > 0, identity, 0).astype(np.uint16))
    assert (masks.overlay(GREY) != GREY).any(axis=-1).sum() == 200


@pytest.mark.parametrize("identity", [1, 2, 7, 255])
def test_object_has_one_colour_in_label_files_overlays_legends_and_charts(identity, tmp_path):
    masks = Masks(np.where(square().ids > 0, identity, 0).astype(np.uint16))
    masks.write(tmp_path / "mask.png")
    colour = colour_of(identity)
    assert Image.open(tmp_path / "mask.png").convert("RGB").getpixel(SQUARE) == colour
    assert masks.legend() == {str(identity): colour}
    assert Masks.object_colour(str(identity)) == colour
    x, y = SQUARE
    assert masks.overlay(np.zeros_like(GREY))[y, x].tolist() == pytest.approx([c / 2 for c in colour], abs=1)


def test_points_have_the_colours_of_the_first_objects():
    points = Keypoints(("a", "b"), np.array([[10, 10], [40, 30]], np.float32), np.array([True, True]))
    assert points.legend() == {"a": colour_of(1), "b": colour_of(2)}
    assert [Keypoints.object_colour(name, i) for i, name in enumerate("ab")] == list(points.legend().values())
    assert tuple(points.overlay(GREY)[30, 40]) == colour_of(2)


def test_visible_points_are_discs_hidden_ones_rings_and_points_without_position_are_not_drawn():
    xy = np.array([[10, 10], [40, 30], [np.nan, np.nan]], np.float32)
    points = Keypoints(("a", "b", "c"), xy, np.array([True, False, False]))
    changed = (points.overlay(GREY) != GREY).any(axis=-1)
    assert changed[10, 10]
    assert not changed[30, 40]
    assert changed[25:35, 35:45].any()
    assert not (Keypoints(("c",), xy[2:], np.array([False])).overlay(GREY) != GREY).any()


def test_only_the_named_object_is_outlined():
    ids = square().ids.copy()
    ids[30:36, 40:50] = 2
    plain = Masks(ids).overlay(GREY)
    marked = Masks(ids).outline(plain, "1")
    changed = (marked != plain).any(axis=-1)
    assert changed.any()
    assert not changed[ids == 1].any()
    assert not changed[28:38, 40:50].any()
    assert (Masks(ids).outline(plain, "9") == plain).all()
    points = Keypoints(("a",), np.array([[30, 20]], np.float32), np.array([False]))
    assert (points.outline(GREY, "a") != GREY).any()
    assert (points.outline(GREY, "b") == GREY).all()


def test_contact_sheet_frames_annotated_pictures_and_has_a_legend():
    plain = [Captioned(GREY, "frame 0"), Captioned(GREY, "frame 1")]
    sheet = contact_sheet(plain, width_px=60)
    marked = contact_sheet([Captioned(GREY, "frame 0", framed=True), plain[1]], width_px=60)
    differs = (sheet != marked).any(axis=-1)
    assert differs[:50, :74].any()
    assert not differs[:, 80:].any()
    named = contact_sheet(plain, width_px=60, legend={"camel": (238, 51, 119), "rider": (51, 187, 238)})
    for colour in ((238, 51, 119), (51, 187, 238)):
        assert (named == colour).all(axis=-1).sum() >= 100
    assert named.shape[0] > sheet.shape[0]


def test_every_kind_has_an_overlay():
    parts = Parts(square().ids, square().ids)
    for labels in (square(), parts, striped(square()), Coordinates.of_image(40, 60)):
        picture = labels.overlay(GREY)
        assert picture.shape == GREY.shape
        assert picture.dtype == np.uint8


def test_contact_sheet_shows_all_pictures():
    sheet = contact_sheet([Captioned(GREY, f"frame {i}") for i in range(5)], columns=3, width_px=60)
    assert (sheet == 128).all(axis=-1).sum() == 5 * 40 * 60


def test_arrows_and_lines_show_only_reliable_matches_spread_over_the_picture():
    start = np.stack(np.meshgrid(np.arange(6.0) * 8 + 4, np.arange(4.0) * 8 + 4), axis=-1)
    none, one = np.zeros((4, 6), bool), np.zeros((4, 6), bool)
    one[2, 3] = True
    bare = match_lines(GREY, GREY, start, start, reliable=none)
    assert (bare[:, :60] == 128).all()
    far = start.copy()
    far[one] += 20
    marked = match_lines(GREY, GREY, start, far, reliable=one)
    assert (marked[20, 28] != 128).any()
    chosen = (match_lines(GREY, GREY, start, start, count=4)[:, :60] != 128).any(axis=-1)
    quarters = [chosen[y : y + 20, x : x + 30].any() for y in (0, 20) for x in (0, 30)]
    assert all(quarters)
    flow = np.full((40, 60, 2), 5, np.float32)
    assert (arrows(GREY, flow, reliable=np.zeros((40, 60), bool)) == arrows(GREY, flow)[0, 0]).all()


def test_arrows_and_lines_keep_the_image_size():
    flow = np.full((40, 60, 2), 5, np.float32)
    assert arrows(GREY, flow).shape == GREY.shape
    start = np.stack(np.meshgrid(np.arange(6.0) * 8, np.arange(4.0) * 8), axis=-1)
    assert match_lines(GREY, GREY, start, start + 5).shape == (40, 60 + 12 + 60, 3)
