"""Soft maps are exact in area, decided like a full upsampling, and given labels win over carried ones."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.grid import grid_over
from timecycle.labels.soft import pool, upsample, upsample_argmax
from timecycle.labels.space import combine, settle


def resnet_grid(height, width, *, shown=None):
    grid = grid_over(height, width, cells=(-(-height // 8), -(-width // 8)), stride_px=8, first_px=0)
    return grid if shown is None else grid.rescaled(*shown)


sizes = st.tuples(st.integers(1, 70), st.integers(1, 50))
grids = st.builds(lambda size, shown: resnet_grid(*size, shown=shown), sizes, st.one_of(st.none(), sizes))


def random_soft(grid, channels, seed):
    """Few exact levels, so that ties are frequent, and many channels without any weight."""
    generator = torch.Generator().manual_seed(seed)
    soft = torch.randint(0, 3, (grid.y.cells, grid.x.cells, channels), generator=generator) / 2
    return soft * (torch.rand(channels, generator=generator) < 0.5)


def shares(shape, generator, sharpness=1.0):
    return torch.softmax(torch.randn(shape, generator=generator) * sharpness, dim=-1)


@settings(max_examples=60, deadline=None)
@given(grids, st.integers(0, 10_000))
def test_pooling_keeps_the_total_of_every_channel(grid, seed):
    values = torch.rand(3, grid.y.pixels, grid.x.pixels, generator=torch.Generator().manual_seed(seed))
    cells = grid.y.extents_px()[:, None] * grid.x.extents_px()
    totals = torch.einsum("yxc,yx->c", pool(values, grid).double(), cells)
    assert torch.allclose(totals, values.sum(dim=(1, 2)).double(), rtol=1e-4)


@settings(max_examples=30, deadline=None)
@given(grids, st.floats(-5, 5))
def test_a_constant_stays_constant_both_ways(grid, value):
    plane = torch.full((1, grid.y.pixels, grid.x.pixels), value)
    assert torch.allclose(pool(plane, grid), torch.tensor(value), atol=1e-5)
    assert torch.allclose(upsample(pool(plane, grid), grid), torch.tensor(value), atol=1e-5)


def test_interpolation_is_torchs_own_where_the_outer_centres_are_the_outer_pixels():
    grid = resnet_grid(33, 49)
    soft = torch.rand(5, 7, 3, generator=torch.Generator().manual_seed(0))
    wanted = torch.nn.functional.interpolate(
        soft.permute(2, 0, 1)[None], size=(33, 49), mode="bilinear", align_corners=True
    )[0]
    assert torch.allclose(upsample(soft, grid), wanted, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(grids, st.integers(1, 40), st.integers(0, 10_000))
def test_the_decision_is_that_of_a_full_upsampling(grid, channels, seed):
    soft = random_soft(grid, channels, seed)
    assert torch.equal(upsample_argmax(soft, grid), upsample(soft, grid).argmax(dim=0))


def test_the_decision_is_that_of_a_full_upsampling_with_hundreds_of_channels():
    grid = resnet_grid(70, 90, shown=(111, 143))
    soft = torch.zeros(9, 12, 300)
    generator = torch.Generator().manual_seed(1)
    chosen = torch.randint(0, 300, (9, 12, 2), generator=generator)
    soft.scatter_(2, chosen, torch.rand(9, 12, 2, generator=generator))
    decided = upsample_argmax(soft, grid)
    assert torch.equal(decided, upsample(soft, grid).argmax(dim=0))
    assert len(decided.unique()) > 50


def test_a_tie_goes_to_the_lower_channel():
    grid = resnet_grid(17, 17)
    soft = torch.zeros(3, 3, 6)
    soft[..., 2] = soft[..., 4] = 0.5
    assert (upsample_argmax(soft, grid) == 2).all()
    soft[..., 0] = 0.5
    assert (upsample_argmax(soft, grid) == 0).all()


def test_a_map_without_any_weight_is_channel_nought():
    assert (upsample_argmax(torch.zeros(3, 4, 5), resnet_grid(20, 30)) == 0).all()


# Given and carried labels together


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(0, 10_000))
def test_exclusive_channels_sum_to_one_and_those_spoken_for_are_as_given(flags, seed):
    speaks = torch.tensor([True, *flags])  # the background is always spoken for
    generator = torch.Generator().manual_seed(seed)
    given_soft = shares((4, 5, len(speaks)), generator, 5)
    given_soft = settle(given_soft * speaks)
    carried = shares((4, 5, len(speaks)), generator, 5)
    mixed = combine(given_soft, carried, speaks=speaks, exclusive=True)
    assert (mixed >= 0).all()
    assert torch.allclose(mixed.sum(dim=-1), torch.ones(4, 5), atol=1e-5)
    objects = speaks.clone()
    objects[0] = False
    assert torch.allclose(mixed[..., objects], given_soft[..., objects], atol=1e-5)


def test_a_given_object_pushes_carried_ones_aside_and_leaves_them_the_rest():
    speaks = torch.tensor([True, True, False])
    given_soft = torch.tensor([[[0.0, 1, 0], [1, 0, 0], [0.5, 0.5, 0]]])
    carried = torch.tensor([[[0.0, 0, 1], [0.25, 0, 0.75], [0, 0, 1]]])
    mixed = combine(given_soft, carried, speaks=speaks, exclusive=True)
    assert torch.allclose(mixed, torch.tensor([[[0.0, 1, 0], [0.25, 0, 0.75], [0, 0.5, 0.5]]]))


def test_a_frame_that_speaks_for_everything_is_taken_as_given():
    generator = torch.Generator().manual_seed(0)
    given_soft, carried = shares((3, 3, 4), generator), shares((3, 3, 4), generator)
    speaks = torch.ones(4, dtype=torch.bool)
    assert torch.equal(combine(given_soft, carried, speaks=speaks, exclusive=True), given_soft)


def test_channels_that_do_not_compete_are_taken_one_by_one():
    generator = torch.Generator().manual_seed(0)
    given_soft, carried = torch.rand(3, 3, 4, generator=generator), torch.rand(3, 3, 4, generator=generator)
    speaks = torch.tensor([False, True, False, True])
    mixed = combine(given_soft, carried, speaks=speaks, exclusive=False)
    assert torch.equal(mixed[..., speaks], given_soft[..., speaks])
    assert torch.equal(mixed[..., ~speaks], carried[..., ~speaks])


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(0, 10_000))
def test_settled_maps_sum_to_one_and_settling_again_changes_nothing(channels, seed):
    soft = torch.rand(3, 4, channels, generator=torch.Generator().manual_seed(seed)) * 2 - 0.5
    settled = settle(soft)
    assert (settled >= 0).all()
    assert torch.allclose(settled.sum(dim=-1), torch.ones(3, 4), atol=1e-6)
    assert torch.allclose(settle(settled), settled, atol=1e-6)


@pytest.mark.parametrize(
    ("claims", "wanted"),
    [([0.9, 0.2, 0.3], [0.5, 0.2, 0.3]), ([0.9, 1.0, 3.0], [0, 0.25, 0.75]), ([0.0, 0.0, 0.0], [1, 0, 0])],
)
def test_objects_share_a_cell_and_the_background_takes_the_rest(claims, wanted):
    assert torch.allclose(settle(torch.tensor([[claims]])), torch.tensor([[wanted]], dtype=torch.float32))
