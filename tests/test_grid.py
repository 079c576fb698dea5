"""Feature cells tile the image, conversions are inverse to each other, and mirroring an image mirrors its grid."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.grid import Axis, Grid, grid_over


@st.composite
def axes(draw):
    """Axes of encoders' grids over images of any length, possibly resized."""
    stride = draw(st.sampled_from([1, 4, 8, 14, 16]))
    if draw(st.booleans()):  # convolutions: the first cell on the first pixel
        pixels = draw(st.integers(1, 130))
        axis = Axis(math.ceil(pixels / stride), pixels, stride, 0)
    else:  # patches
        cells = draw(st.integers(1, 12))
        axis = Axis(cells, cells * stride + draw(st.integers(0, stride - 1)), stride, (stride - 1) / 2)
    return axis.rescaled(draw(st.integers(1, 260))) if draw(st.booleans()) else axis


symmetric = pytest.mark.parametrize(
    "axis",
    [
        Axis(1, 1, 8, 0),
        Axis(6, 41, 8, 0),
        Axis(6, 48, 8, 3.5),
        Axis(3, 42, 14, 6.5),
        Axis(6, 41, 8, 0).rescaled(97),
        Axis(6, 48, 8, 3.5).rescaled(101),
    ],
)


def slow_area(axis):
    """Compute `area` by cutting every pixel into a thousand slivers and giving each to the nearest centre."""
    slivers = 1000
    position = (torch.arange(axis.pixels * slivers, dtype=torch.float64) + 0.5) / slivers - 0.5
    nearest = axis.cell_of(position).round().clamp(0, axis.cells - 1).long()
    counts = torch.zeros(axis.cells, axis.pixels)
    counts.index_put_((nearest, torch.arange(axis.pixels).repeat_interleave(slivers)), torch.tensor(1.0), True)
    return counts / counts.sum(dim=1, keepdim=True)


@settings(max_examples=150, deadline=None)
@given(axes())
def test_area_weights_of_every_cell_sum_to_one(axis):
    area = axis.area()
    assert area.shape == (axis.cells, axis.pixels)
    assert (area >= 0).all()
    assert torch.allclose(area.sum(dim=1), torch.ones(axis.cells), atol=1e-6)


@settings(max_examples=150, deadline=None)
@given(axes())
def test_cells_tile_the_image(axis):
    extents = axis.extents_px()
    assert (extents > 0).all()
    assert math.isclose(float(extents.sum()), axis.pixels)
    covered = extents @ axis.area().double()
    assert torch.allclose(covered, torch.ones(axis.pixels, dtype=torch.float64), atol=1e-5)


@settings(max_examples=100, deadline=None)
@given(axes(), axes(), st.integers(0, 10_000))
def test_pooling_preserves_the_pixel_count_of_every_class(y, x, seed):
    ids = torch.randint(0, 4, (y.pixels, x.pixels), generator=torch.Generator().manual_seed(seed))
    for identity in range(4):
        mask = (ids == identity).double()
        pooled = y.area().double() @ mask @ x.area().double().T
        count = y.extents_px() @ pooled @ x.extents_px()
        assert math.isclose(float(count), float(mask.sum()), rel_tol=1e-5, abs_tol=1e-3)


@pytest.mark.parametrize(
    "axis", [Axis(4, 25, 8, 0), Axis(4, 31, 8, 0), Axis(3, 30, 8, 3.5), Axis(5, 33, 8, 0).rescaled(50)]
)
def test_a_cell_covers_the_pixels_nearest_to_its_centre(axis):
    assert torch.allclose(axis.area(), slow_area(axis), atol=2e-3)


@settings(max_examples=100, deadline=None)
@given(axes(), st.integers(1, 300))
def test_rescaling_keeps_the_image_edges_aligned(axis, pixels):
    rescaled = axis.rescaled(pixels)
    assert (rescaled.cells, rescaled.pixels) == (axis.cells, pixels)
    for edge, expected in ((-0.5, -0.5), (axis.pixels - 0.5, pixels - 0.5)):
        cell = axis.cell_of(torch.tensor(edge, dtype=torch.float64))
        assert math.isclose(float(rescaled.pixel_of(cell)), expected, abs_tol=1e-9)


@settings(max_examples=100, deadline=None)
@given(axes(), st.integers(1, 300))
def test_rescaling_back_gives_the_same_grid(axis, pixels):
    again = axis.rescaled(pixels).rescaled(axis.pixels)
    assert (again.cells, again.pixels) == (axis.cells, axis.pixels)
    assert math.isclose(again.stride_px, axis.stride_px)
    assert math.isclose(again.first_px, axis.first_px, abs_tol=1e-9)


@settings(max_examples=100, deadline=None)
@given(axes(), st.lists(st.floats(-1000, 1000), min_size=1, max_size=20))
def test_pixel_of_and_cell_of_are_inverse(axis, pixels):
    pixel = torch.tensor(pixels, dtype=torch.float64)
    assert torch.allclose(axis.pixel_of(axis.cell_of(pixel)), pixel, atol=1e-9)
    assert torch.allclose(axis.cell_of(axis.pixel_of(pixel)), pixel, atol=1e-9)


@settings(max_examples=150, deadline=None)
@given(axes(), st.floats(-3, 3), st.floats(-50, 50))
def test_interpolation_reproduces_a_linear_function_between_the_outer_centres(axis, slope, offset):
    centres = axis.pixel_of(torch.arange(axis.cells, dtype=torch.float64))
    values = slope * centres + offset
    taps = axis.taps()
    read = torch.lerp(values[taps.low], values[taps.high], taps.weight.double())
    pixel = torch.arange(axis.pixels, dtype=torch.float64).clamp(centres[0], centres[-1])
    assert torch.allclose(read, slope * pixel + offset, atol=1e-3)


@settings(max_examples=150, deadline=None)
@given(axes())
def test_interpolation_uses_neighbouring_cells_with_weights_between_zero_and_one(axis):
    taps = axis.taps()
    assert (taps.weight >= 0).all()
    assert (taps.weight <= 1).all()
    assert ((taps.high == taps.low + 1) | (taps.high == taps.low)).all()
    assert (taps.low >= 0).all()
    assert (taps.high < axis.cells).all()
    assert (taps.low.diff() >= 0).all()


@symmetric
def test_a_mirrored_image_has_mirrored_areas_and_extents(axis):
    assert torch.allclose(axis.area(), axis.area().flip(0, 1), atol=1e-6)
    assert torch.allclose(axis.extents_px(), axis.extents_px().flip(0))


@symmetric
def test_a_mirrored_image_has_a_mirrored_interpolation(axis):
    values = torch.rand(axis.cells, generator=torch.Generator().manual_seed(0))
    taps = axis.taps()
    there = torch.lerp(values[taps.low], values[taps.high], taps.weight)
    back = torch.lerp(values.flip(0)[taps.low], values.flip(0)[taps.high], taps.weight)
    assert torch.allclose(there, back.flip(0), atol=1e-5)


def test_two_cells_over_nine_pixels_match_a_hand_computation():
    axis = Axis(2, 9, 8, 0)  # centres on pixels 0 and 8, meeting in the middle of pixel 4
    assert axis.extents_px().tolist() == [4.5, 4.5]
    assert torch.allclose(axis.area()[0], torch.tensor([1, 1, 1, 1, 0.5, 0, 0, 0, 0]) / 4.5)
    assert torch.allclose(axis.taps().weight, torch.arange(9) / 8)


def test_centres_are_xy_points_by_row_and_column():
    grid = grid_over(33, 57, cells=(5, 8), stride_px=8, first_px=0)
    assert grid == Grid(Axis(5, 33, 8, 0), Axis(8, 57, 8, 0))
    assert grid.cells == 40
    assert grid.centres().shape == (5, 8, 2)
    assert grid.centres()[2, 7].tolist() == [56, 16]


def test_a_rescaled_grid_keeps_its_cells():
    grid = grid_over(33, 57, cells=(5, 8), stride_px=8, first_px=0).rescaled(66, 171)
    assert (grid.y.pixels, grid.x.pixels, grid.cells) == (66, 171, 40)
    assert (grid.y.stride_px, grid.x.stride_px) == (16, 24)
    assert grid.centres()[0, 0].tolist() == [1, 0.5]


@settings(max_examples=150, deadline=None)
@given(axes(), st.integers(1, 5))
def test_parts_of_cells_lie_evenly_around_the_centre_of_their_cell(axis, parts):
    fine = axis.subdivided(parts)
    centres = fine.pixel_of(torch.arange(fine.cells, dtype=torch.float64)).reshape(axis.cells, parts)
    assert torch.allclose(centres.mean(dim=1), axis.pixel_of(torch.arange(axis.cells, dtype=torch.float64)))
    assert torch.allclose(fine.area().sum(dim=1), torch.ones(fine.cells), atol=1e-6)
    assert float(fine.extents_px().sum()) == pytest.approx(axis.pixels)


@settings(max_examples=150, deadline=None)
@given(axes(), st.integers(1, 4))
def test_cells_average_their_parts(axis, parts):
    fine = axis.subdivided(parts)
    extents = fine.extents_px().float()[:, None]
    inside = (fine.area() * extents).reshape(axis.cells, parts, axis.pixels).sum(dim=1)
    assert torch.allclose(inside, axis.area() * axis.extents_px().float()[:, None], atol=1e-4)
