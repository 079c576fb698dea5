"""Paint keeps its colour and its amount, and stripes are six of equal height."""

import numpy as np
import pytest
import torch
from PIL import Image

from timecycle.errors import LabelError
from timecycle.grid import grid_over
from timecycle.labels.masks import Masks
from timecycle.labels.texture import STRIPES, Texture, TextureSpace, striped

GRID = grid_over(65, 97, cells=(9, 13), stride_px=8, first_px=0)


def test_a_texture_comes_back_from_a_file_alpha_included(tmp_path):
    rgba = np.random.default_rng(0).integers(0, 256, (7, 9, 4)).astype(np.uint8)
    Texture(rgba).write(tmp_path / "0.png")
    assert np.array_equal(Texture.read(tmp_path / "0.png").rgba, rgba)
    assert Texture(rgba).size() == (7, 9)


def test_an_image_without_alpha_paints_every_pixel(tmp_path):
    Image.new("RGB", (5, 4), (1, 2, 3)).save(tmp_path / "0.png")
    assert (Texture.read(tmp_path / "0.png").rgba == [1, 2, 3, 255]).all()


def test_a_missing_texture_is_named(tmp_path):
    with pytest.raises(LabelError, match=r"there is no label file .*0\.png"):
        Texture.read(tmp_path / "0.png")


@pytest.mark.parametrize("height", [6, 7, 11, 12, 50, 97])
def test_stripes_are_six_from_top_to_bottom_and_equal_within_a_pixel(height):
    ids = np.zeros((110, 20), np.uint16)
    ids[5 : 5 + height, 3:17] = 4
    rgba = striped(Masks(ids)).rgba
    column = [tuple(map(int, colour)) for colour in rgba[5 : 5 + height, 10, :3]]
    assert list(dict.fromkeys(column)) == list(STRIPES)
    heights = [column.count(colour) for colour in STRIPES]
    assert max(heights) - min(heights) <= 1
    assert (rgba[5 : 5 + height, :, :3] == rgba[5 : 5 + height, :1, :3]).all()


def test_stripes_cover_exactly_what_the_masks_mark():
    ids = np.random.default_rng(0).choice([0, 0, 1, 300], (30, 40)).astype(np.uint16)
    assert np.array_equal(striped(Masks(ids)).rgba[..., 3], np.where(ids > 0, 255, 0))


def test_an_object_of_one_row_has_one_stripe():
    ids = np.zeros((9, 9), np.uint16)
    ids[4] = 1
    assert (striped(Masks(ids)).rgba[4] == [*STRIPES[0], 255]).all()


def test_stripes_on_nothing_are_refused():
    with pytest.raises(LabelError, match="the mask to paint stripes on is empty; mark the object"):
        striped(Masks(np.zeros((4, 4), np.uint16)))


@pytest.mark.parametrize("rgba", [(255, 0, 128, 255), (10, 20, 30, 255), (200, 100, 50, 51), (0, 0, 0, 0)])
def test_even_paint_comes_back_exactly(rgba):
    texture = Texture(np.broadcast_to(np.array(rgba, np.uint8), (65, 97, 4)).copy())
    space = TextureSpace()
    assert (space.from_soft(space.to_soft(texture, GRID), GRID).rgba == rgba).all()


def test_unpainted_pixels_lend_no_colour_to_painted_ones():
    """Where half a cell is painted, there is half the paint, of the same colour."""
    pixels = np.zeros((65, 97, 4), np.uint8)
    pixels[..., :3] = (0, 255, 0)
    pixels[:, 48:] = (200, 0, 100, 255)
    space = TextureSpace()
    found = space.from_soft(space.to_soft(Texture(pixels), GRID), GRID).rgba
    painted = found[..., 3] > 0
    assert (found[painted][:, :3] == (200, 0, 100)).all()
    assert (found[:, 60:, 3] == 255).all()
    assert (found[:, :40, 3] == 0).all()


def test_the_amount_of_paint_is_kept():
    pixels = np.zeros((65, 97, 4), np.uint8)
    pixels[10:31, 17:60] = 255
    soft = TextureSpace().to_soft(Texture(pixels), GRID)
    amount = torch.einsum("yx,y,x->", soft[..., 3].double(), GRID.y.extents_px(), GRID.x.extents_px())
    assert float(amount) == pytest.approx(21 * 43, rel=1e-5)


def test_a_given_texture_speaks_for_every_channel_and_comes_back_as_given():
    given, decided = (Texture(np.full((4, 4, 4), value, np.uint8)) for value in (1, 2))
    space = TextureSpace()
    assert space.speaks(given).all()
    assert space.put_back(given, decided) is given
    for second in (lambda: space.widened(decided), lambda: Texture.space([given, decided])):
        with pytest.raises(LabelError, match="textures were given for more than one frame; give one frame"):
            second()


def test_a_few_flat_colours_compete_and_stay_crisp():
    """Six stripes are seven channels, as in the paper; carried nowhere, they come back as they were painted."""
    texture = striped(Masks(np.ones((64, 64), np.uint16)))
    space = Texture.space([texture])
    assert space.channels == 7
    soft = space.to_soft(texture, grid_over(64, 64, cells=(64, 64), stride_px=1, first_px=0))
    back = space.from_soft(soft, grid_over(64, 64, cells=(64, 64), stride_px=1, first_px=0))
    assert (back.rgba == texture.rgba).all()


def test_a_photograph_is_mixed():
    pixels = np.random.default_rng(0).integers(0, 255, (20, 20, 4)).astype(np.uint8)
    assert isinstance(Texture.space([Texture(pixels)]), TextureSpace)
