"""Textures: paint keeps its colour and amount, and stripes are six of equal height."""

import numpy as np
import pytest
import torch
from PIL import Image

from timecycle.errors import LabelError
from timecycle.grid import grid_over
from timecycle.labels.coordinates import Coordinates
from timecycle.labels.masks import Masks
from timecycle.labels.texture import STRIPES, Texture, TextureSpace, striped

GRID = grid_over(65, 97, cells=(9, 13), stride_px=8, first_px=0)


def test_texture_with_alpha_survives_a_file(tmp_path):
    rgba = np.random.default_rng(0).integers(0, 256, (7, 9, 4)).astype(np.uint8)
    Texture(rgba).write(tmp_path / "0.png")
    assert np.array_equal(Texture.read(tmp_path / "0.png").rgba, rgba)
    assert Texture(rgba).size() == (7, 9)


def test_image_without_alpha_paints_every_pixel(tmp_path):
    Image.new("RGB", (5, 4), (1, 2, 3)).save(tmp_path / "0.png")
    assert (Texture.read(tmp_path / "0.png").rgba == [1, 2, 3, 255]).all()


def test_error_for_a_missing_texture_names_the_file(tmp_path):
    with pytest.raises(LabelError, match=r"there is no label file .*0\.png"):
        Texture.read(tmp_path / "0.png")


@pytest.mark.parametrize("height", [6, 7, 11, 12, 50, 97])
def test_six_stripes_from_top_to_bottom_are_equal_within_a_pixel(height):
    ids = np.zeros((110, 20), np.uint16)
    ids[5 : 5 + height, 3:17] = 4
    rgba = striped(Masks(ids)).rgba
    column = [tuple(map(int, colour)) for colour in rgba[5 : 5 + height, 10, :3]]
    assert list(dict.fromkeys(column)) == list(STRIPES)
    heights = [column.count(colour) for colour in STRIPES]
    assert max(heights) - min(heights) <= 1
    assert (rgba[5 : 5 + height, :, :3] == rgba[5 : 5 + height, :1, :3]).all()


def test_stripes_cover_exactly_the_objects_of_the_masks():
    ids = np.random.default_rng(0).choice([0, 0, 1, 300], (30, 40)).astype(np.uint16)
    assert np.array_equal(striped(Masks(ids)).rgba[..., 3], np.where(ids > 0, 255, 0))


def test_object_of_one_row_has_one_stripe():
    ids = np.zeros((9, 9), np.uint16)
    ids[4] = 1
    assert (striped(Masks(ids)).rgba[4] == [*STRIPES[0], 255]).all()


def test_stripes_on_an_empty_mask_are_refused():
    with pytest.raises(LabelError, match="the mask to paint stripes on is empty; mark the object"):
        striped(Masks(np.zeros((4, 4), np.uint16)))


def test_stripes_on_labels_without_a_surface_are_refused():
    with pytest.raises(LabelError, match="on the mask of one frame, not on coordinates; give a mask"):
        striped(Coordinates.of_image(4, 4))


@pytest.mark.parametrize("rgba", [(255, 0, 128, 255), (10, 20, 30, 255), (200, 100, 50, 51), (0, 0, 0, 0)])
def test_uniform_paint_is_decoded_exactly(rgba):
    texture = Texture(np.broadcast_to(np.array(rgba, np.uint8), (65, 97, 4)).copy())
    space = TextureSpace()
    assert (space.decode(space.encode(texture, GRID), GRID).rgba == rgba).all()


def test_colour_under_transparent_pixels_does_not_bleed():
    """Where half a cell is painted, there is half the paint, of the same colour."""
    pixels = np.zeros((65, 97, 4), np.uint8)
    pixels[..., :3] = (0, 255, 0)
    pixels[:, 48:] = (200, 0, 100, 255)
    space = TextureSpace()
    decoded = space.decode(space.encode(Texture(pixels), GRID), GRID).rgba
    painted = decoded[..., 3] > 0
    assert (decoded[painted][:, :3] == (200, 0, 100)).all()
    assert (decoded[:, 60:, 3] == 255).all()
    assert (decoded[:, :40, 3] == 0).all()


def test_encoding_preserves_the_amount_of_paint():
    pixels = np.zeros((65, 97, 4), np.uint8)
    pixels[10:31, 17:60] = 255
    values = TextureSpace().encode(Texture(pixels), GRID)
    amount = torch.einsum("yx,y,x->", values[..., 3].double(), GRID.y.extents_px(), GRID.x.extents_px())
    assert float(amount) == pytest.approx(21 * 43, rel=1e-5)


def test_annotated_texture_constrains_every_channel_and_is_restored():
    annotation, decoded = (Texture(np.full((4, 4, 4), value, np.uint8)) for value in (1, 2))
    space = TextureSpace()
    assert space.annotated_channels(annotation).all()
    assert space.restore_annotated(annotation, decoded) is annotation
    for second in (lambda: space.extended(decoded), lambda: Texture.space([annotation, decoded])):
        with pytest.raises(LabelError, match="textures were given for more than one frame; give one frame"):
            second()


def test_few_flat_colours_are_exclusive_and_stay_sharp():
    """Six stripes are seven channels, as in the paper; encoding and decoding on a grid of pixels restores them."""
    texture = striped(Masks(np.ones((64, 64), np.uint16)))
    space = Texture.space([texture])
    assert space.channels == 7
    values = space.encode(texture, grid_over(64, 64, cells=(64, 64), stride_px=1, first_px=0))
    decoded = space.decode(values, grid_over(64, 64, cells=(64, 64), stride_px=1, first_px=0))
    assert (decoded.rgba == texture.rgba).all()


def test_photograph_uses_mixed_colours():
    pixels = np.random.default_rng(0).integers(0, 255, (20, 20, 4)).astype(np.uint8)
    assert isinstance(Texture.space([Texture(pixels)]), TextureSpace)
