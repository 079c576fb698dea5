"""Pictures: labels are where they should be, and nothing else changes."""

import numpy as np
import pytest

from timecycle.labels import Coordinates, Keypoints, Masks, Parts, striped
from timecycle.labels.palette import palette
from timecycle.render import Captioned, arrows, contact_sheet, match_lines, overlay

GREY = np.full((40, 60, 3), 128, np.uint8)


def square() -> Masks:
    ids = np.zeros((40, 60), np.uint16)
    ids[10:20, 10:30] = 1
    return Masks(ids)


def test_only_labelled_pixels_change():
    changed = (overlay(GREY, square()) != GREY).any(axis=-1)
    assert (changed == (square().ids > 0)).all()


def test_the_frame_itself_is_left_alone():
    image = GREY.copy()
    overlay(image, square())
    assert (image == GREY).all()


@pytest.mark.parametrize("identity", [1, 255, 256, 300, 65535])
def test_every_id_has_a_colour(identity):
    masks = Masks(np.where(square().ids > 0, identity, 0).astype(np.uint16))
    assert (overlay(GREY, masks) != GREY).any(axis=-1).sum() == 200


def test_the_palette_is_pascal_vocs():
    assert palette()[:5].tolist() == [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0], [0, 0, 128]]
    assert palette()[255].tolist() == [224, 224, 192]
    assert len({tuple(row) for row in palette().tolist()}) == 256


def test_visible_points_are_drawn_and_hidden_ones_are_not():
    points = Keypoints(("a", "b"), np.array([[10, 10], [40, 30]], np.float32), np.array([True, False]))
    changed = (overlay(GREY, points) != GREY).any(axis=-1)
    assert changed[10, 10]
    assert not changed[25:35, 35:45].any()


def test_every_kind_has_a_picture():
    parts = Parts(square().ids, square().ids)
    for labels in (square(), parts, striped(square()), Coordinates.of_image(40, 60)):
        picture = overlay(GREY, labels)
        assert picture.shape == GREY.shape
        assert picture.dtype == np.uint8


def test_a_contact_sheet_shows_all_pictures():
    sheet = contact_sheet([Captioned(GREY, f"frame {i}") for i in range(5)], columns=3, width_px=60)
    assert (sheet == 128).all(axis=-1).sum() == 5 * 40 * 60


def test_arrows_and_lines_keep_the_size():
    flow = np.full((40, 60, 2), 5, np.float32)
    assert arrows(GREY, flow).shape == GREY.shape
    start = np.stack(np.meshgrid(np.arange(6.0) * 8, np.arange(4.0) * 8), axis=-1)
    assert match_lines(GREY, GREY, start, start + 5).shape == (40, 60 + 12 + 60, 3)
