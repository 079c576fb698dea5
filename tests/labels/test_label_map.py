"""Label maps: pooling is exact in area, argmax equals a full upsampling, annotations win over propagated labels."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.grid import grid_over
from timecycle.labels.label_map import pool, upsample, upsample_argmax
from timecycle.labels.space import combine, normalise


def resnet_grid(height, width, *, image_size=None):
    grid = grid_over(height, width, cells=(-(-height // 8), -(-width // 8)), stride_px=8, first_px=0)
    return grid if image_size is None else grid.rescaled(*image_size)


sizes = st.tuples(st.integers(1, 70), st.integers(1, 50))
grids = st.builds(
    lambda size, image_size: resnet_grid(*size, image_size=image_size), sizes, st.one_of(st.none(), sizes)
)


def random_values(grid, channels, seed):
    """Few exact levels, so that ties are frequent, and many channels without any weight."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 3, (grid.y.cells, grid.x.cells, channels), generator=generator) / 2
    return values * (torch.rand(channels, generator=generator) < 0.5)


def shares(shape, generator, sharpness=1.0):
    return torch.softmax(torch.randn(shape, generator=generator) * sharpness, dim=-1)


@settings(max_examples=60, deadline=None)
@given(grids, st.integers(0, 10_000))
def test_pooling_preserves_the_total_of_every_channel(grid, seed):
    values = torch.rand(3, grid.y.pixels, grid.x.pixels, generator=torch.Generator().manual_seed(seed))
    cells = grid.y.extents_px()[:, None] * grid.x.extents_px()
    totals = torch.einsum("yxc,yx->c", pool(values, grid).double(), cells)
    assert torch.allclose(totals, values.sum(dim=(1, 2)).double(), rtol=1e-4)


@settings(max_examples=30, deadline=None)
@given(grids, st.floats(-5, 5))
def test_pooling_and_upsampling_keep_a_constant(grid, value):
    plane = torch.full((1, grid.y.pixels, grid.x.pixels), value)
    assert torch.allclose(pool(plane, grid), torch.tensor(value), atol=1e-5)
    assert torch.allclose(upsample(pool(plane, grid), grid), torch.tensor(value), atol=1e-5)


def test_upsampling_equals_torch_align_corners_when_outer_cells_are_centred_on_outer_pixels():
    grid = resnet_grid(33, 49)
    values = torch.rand(5, 7, 3, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.interpolate(
        values.permute(2, 0, 1)[None], size=(33, 49), mode="bilinear", align_corners=True
    )[0]
    assert torch.allclose(upsample(values, grid), expected, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(grids, st.integers(1, 40), st.integers(0, 10_000))
def test_argmax_equals_argmax_of_a_full_upsampling(grid, channels, seed):
    values = random_values(grid, channels, seed)
    assert torch.equal(upsample_argmax(values, grid), upsample(values, grid).argmax(dim=0))


def test_argmax_equals_argmax_of_a_full_upsampling_with_hundreds_of_channels():
    grid = resnet_grid(70, 90, image_size=(111, 143))
    values = torch.zeros(9, 12, 300)
    generator = torch.Generator().manual_seed(1)
    chosen = torch.randint(0, 300, (9, 12, 2), generator=generator)
    values.scatter_(2, chosen, torch.rand(9, 12, 2, generator=generator))
    winners = upsample_argmax(values, grid)
    assert torch.equal(winners, upsample(values, grid).argmax(dim=0))
    assert len(winners.unique()) > 50


def test_lower_channel_wins_a_tie():
    grid = resnet_grid(17, 17)
    values = torch.zeros(3, 3, 6)
    values[..., 2] = values[..., 4] = 0.5
    assert (upsample_argmax(values, grid) == 2).all()
    values[..., 0] = 0.5
    assert (upsample_argmax(values, grid) == 0).all()


def test_label_map_without_weight_is_channel_0():
    assert (upsample_argmax(torch.zeros(3, 4, 5), resnet_grid(20, 30)) == 0).all()


# Annotated and propagated labels combined


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(0, 10_000))
def test_combined_exclusive_channels_sum_to_one_and_keep_the_annotation(flags, seed):
    annotated_channels = torch.tensor([True, *flags])  # the background is always annotated
    generator = torch.Generator().manual_seed(seed)
    annotated = shares((4, 5, len(annotated_channels)), generator, 5)
    annotated = normalise(annotated * annotated_channels)
    propagated = shares((4, 5, len(annotated_channels)), generator, 5)
    combined = combine(annotated, propagated, annotated_channels=annotated_channels, exclusive=True)
    assert (combined >= 0).all()
    assert torch.allclose(combined.sum(dim=-1), torch.ones(4, 5), atol=1e-5)
    objects = annotated_channels.clone()
    objects[0] = False
    assert torch.allclose(combined[..., objects], annotated[..., objects], atol=1e-5)


def test_propagated_objects_keep_the_share_that_annotated_objects_leave():
    annotated_channels = torch.tensor([True, True, False])
    annotated = torch.tensor([[[0.0, 1, 0], [1, 0, 0], [0.5, 0.5, 0]]])
    propagated = torch.tensor([[[0.0, 0, 1], [0.25, 0, 0.75], [0, 0, 1]]])
    combined = combine(annotated, propagated, annotated_channels=annotated_channels, exclusive=True)
    assert torch.allclose(combined, torch.tensor([[[0.0, 1, 0], [0.25, 0, 0.75], [0, 0.5, 0.5]]]))


def test_annotation_of_all_channels_replaces_the_propagated_labels():
    generator = torch.Generator().manual_seed(0)
    annotated, propagated = shares((3, 3, 4), generator), shares((3, 3, 4), generator)
    annotated_channels = torch.ones(4, dtype=torch.bool)
    assert torch.equal(combine(annotated, propagated, annotated_channels=annotated_channels, exclusive=True), annotated)


def test_non_exclusive_channels_are_combined_independently():
    generator = torch.Generator().manual_seed(0)
    annotated, propagated = torch.rand(3, 3, 4, generator=generator), torch.rand(3, 3, 4, generator=generator)
    annotated_channels = torch.tensor([False, True, False, True])
    combined = combine(annotated, propagated, annotated_channels=annotated_channels, exclusive=False)
    assert torch.equal(combined[..., annotated_channels], annotated[..., annotated_channels])
    assert torch.equal(combined[..., ~annotated_channels], propagated[..., ~annotated_channels])


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(0, 10_000))
def test_normalised_label_maps_sum_to_one_and_normalising_is_idempotent(channels, seed):
    values = torch.rand(3, 4, channels, generator=torch.Generator().manual_seed(seed)) * 2 - 0.5
    normalised = normalise(values)
    assert (normalised >= 0).all()
    assert torch.allclose(normalised.sum(dim=-1), torch.ones(3, 4), atol=1e-6)
    assert torch.allclose(normalise(normalised), normalised, atol=1e-6)


@pytest.mark.parametrize(
    ("claims", "expected"),
    [([0.9, 0.2, 0.3], [0.5, 0.2, 0.3]), ([0.9, 1.0, 3.0], [0, 0.25, 0.75]), ([0.0, 0.0, 0.0], [1, 0, 0])],
)
def test_normalising_scales_objects_to_a_cell_and_gives_the_rest_to_the_background(claims, expected):
    assert torch.allclose(normalise(torch.tensor([[claims]])), torch.tensor([[expected]], dtype=torch.float32))
