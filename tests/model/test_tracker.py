"""The tracker T = h(g(f)): exact poses where geometry determines them, and exact gradients."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.errors import SettingsError
from timecycle.grid import grid_over
from timecycle.model.affinity import compute_affinity
from timecycle.model.localizer import LocalizerConfig, make_localizer
from timecycle.model.sampler import inside_frame, sample, sample_affinity, sampling_grid
from timecycle.model.tracker import Tracker
from timecycle.pose import alignment_error, apply_pose, cell_centres, to_cells
from wandering import FRAME, PATCH

SCALE = 40 / 120


def features(*shape, seed=0, channels=64):
    values = torch.randn(*shape[:-2], channels, *shape[-2:], generator=torch.Generator().manual_seed(seed))
    return F.normalize(values, dim=-3)


def pose(left: int, top: int, alpha: float = 0.0) -> torch.Tensor:
    """Return the pose of the patch whose first cell is this cell of the frame."""
    return torch.tensor([[[(left * 8 + 20) / 60 - 1, (top * 8 + 20) / 60 - 1, alpha]]])


def cut(frame, left: int, top: int):
    return frame[:, None, :, top : top + 5, left : left + 5]


@pytest.mark.parametrize(("left", "top"), [(5, 5), (0, 0), (10, 10), (3, 7)])
def test_unrotated_patch_samples_one_frame_cell_per_patch_cell(left, top):
    frame = features(2, 15, 15)
    positions = sampling_grid(pose(left, top).expand(2, 1, 3), frame_grid=FRAME, patch_grid=PATCH)
    assert torch.allclose(sample(frame, positions, patch_grid=PATCH), cut(frame, left, top), atol=1e-5)


def test_identity_pose_samples_the_central_crop():
    frame = features(1, 15, 15)
    positions = sampling_grid(torch.zeros(1, 1, 3), frame_grid=FRAME, patch_grid=PATCH)
    assert torch.allclose(sample(frame, positions, patch_grid=PATCH), cut(frame, 5, 5), atol=1e-5)


def test_quarter_turn_rotates_the_patch():
    """A patch rotates about the middle of its pixels, so here cells are centred on theirs."""
    patch_grid = grid_over(40, 40, cells=(5, 5), stride_px=8, first_px=3.5)
    frame_grid = grid_over(120, 120, cells=(15, 15), stride_px=8, first_px=3.5)
    frame = features(1, 15, 15)
    positions = sampling_grid(torch.tensor([[[0, 0, math.pi / 2]]]), frame_grid=frame_grid, patch_grid=patch_grid)
    rotated = sample(frame, positions, patch_grid=patch_grid)
    assert torch.allclose(rotated, cut(frame, 5, 5).rot90(1, dims=(3, 4)), atol=1e-5)


def test_samples_outside_the_frame_are_zero():
    positions = sampling_grid(torch.tensor([[[1.9, 0.0, 0.0]]]), frame_grid=FRAME, patch_grid=PATCH)
    assert not inside_frame(positions, FRAME).any()
    assert not sample(features(1, 15, 15), positions, patch_grid=PATCH).any()
    assert not sample_affinity(torch.ones(1, 1, 25, 225), positions, frame_grid=FRAME).any()


def test_affinity_is_a_distribution_over_the_frame_that_peaks_at_the_match():
    frame = features(2, 15, 15)
    affinity = compute_affinity(frame, cut(frame, 3, 7), temperature=0.01)
    assert torch.allclose(affinity.sum(dim=3), torch.ones(2, 1, 25), atol=1e-5)
    expected = torch.arange(225).reshape(15, 15)[7:12, 3:8].flatten()
    assert torch.equal(affinity.argmax(dim=3)[0, 0], expected)


def test_affinity_without_temperature_is_almost_uniform():
    frame = features(1, 30, 30)
    affinity = compute_affinity(frame, frame[:, None, :, :10, :10], temperature=1.0)
    assert affinity.max() < 0.0031  # e / (e + 899)


def test_patches_tracked_together_give_the_same_as_each_alone():
    frame = features(2, 15, 15)
    tracker = Tracker(LocalizerConfig(), frame_grid=FRAME, patch_grid=PATCH, temperature=0.05)
    patches = torch.cat([cut(frame, 3, 7), cut(frame, 1, 2)], dim=1)
    together = tracker(frame, patches)
    for number in range(2):
        alone = tracker(frame, patches[:, number : number + 1])
        assert torch.allclose(together.theta[:, number], alone.theta[:, 0], atol=1e-5)
        assert torch.allclose(together.patches[:, number], alone.patches[:, 0], atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.floats(-0.6, 0.6), st.floats(-0.6, 0.6), st.floats(-3.0, 3.0), st.sampled_from([(0.0, 0.0), (3.5, 3.5)]))
def test_procrustes_recovers_any_pose_from_exact_matches(tx, ty, alpha, firsts):
    """The affinity of each patch cell has its mean exactly where the pose puts the cell."""
    frame_grid = grid_over(120, 120, cells=(15, 15), stride_px=8, first_px=firsts[0])
    patch_grid = grid_over(40, 40, cells=(5, 5), stride_px=8, first_px=firsts[1])
    theta = torch.tensor([[[tx, ty, alpha]]])
    positions = to_cells(apply_pose(theta, cell_centres(patch_grid), scale=SCALE), frame_grid)
    if not inside_frame(positions, frame_grid).all():
        return
    column, row = positions.unbind(dim=-1)
    weight_x = (1 - (column[..., None] - torch.arange(15)).abs()).clamp_min(0)
    weight_y = (1 - (row[..., None] - torch.arange(15)).abs()).clamp_min(0)
    affinity = (weight_y[..., :, None] * weight_x[..., None, :]).flatten(3)
    localizer = make_localizer(LocalizerConfig(sharpen=1.0), frame_grid=frame_grid, patch_grid=patch_grid)
    assert alignment_error(localizer(affinity), theta, scale=SCALE).item() < 1e-8


def test_uniform_affinity_gives_no_rotation_and_finite_gradients():
    affinity = torch.full((1, 1, 25, 225), 1 / 225, requires_grad=True)
    theta = make_localizer(LocalizerConfig(), frame_grid=FRAME, patch_grid=PATCH)(affinity)
    theta.square().sum().backward()
    assert torch.isfinite(affinity.grad).all()
    assert theta[0, 0, 2].abs() < 1e-3


@pytest.mark.parametrize("kind", ["paper", "release"])
def test_untrained_localizers_estimate_the_centre(kind):
    frame_grid = grid_over(240, 240, cells=(30, 30), stride_px=8, first_px=0)
    patch_grid = grid_over(80, 80, cells=(10, 10), stride_px=8, first_px=0)
    frame = features(2, 30, 30)
    affinity = compute_affinity(frame, frame[:, None, :, 4:14, 9:19], temperature=0.05)
    localizer = make_localizer(LocalizerConfig(kind=kind), frame_grid=frame_grid, patch_grid=patch_grid)
    theta = localizer(affinity)
    assert theta.shape == (2, 1, 3)
    assert theta.abs().max() < 0.2
    parameters = sum(p.numel() for p in localizer.parameters())
    assert parameters == {"paper": 6_661_123, "release": 1_977_347}[kind]


def test_release_localizer_refuses_small_patches():
    with pytest.raises(SettingsError, match="at least 7x7 cells, not 5x5; use larger patches"):
        make_localizer(LocalizerConfig(kind="release"), frame_grid=FRAME, patch_grid=PATCH)


def test_gradients_agree_with_finite_differences():
    frame_grid = grid_over(32, 32, cells=(4, 4), stride_px=8, first_px=0)
    patch_grid = grid_over(16, 16, cells=(2, 2), stride_px=8, first_px=0)
    generator = torch.Generator().manual_seed(0)
    frame = torch.randn(1, 3, 4, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    patch = torch.randn(1, 1, 3, 2, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    theta = torch.tensor([[[0.13, -0.21, 0.3]]], dtype=torch.float64, requires_grad=True)

    def localize(affinity):
        return make_localizer(LocalizerConfig(), frame_grid=frame_grid, patch_grid=patch_grid).double()(affinity)

    def positions(theta):
        return sampling_grid(theta, frame_grid=frame_grid, patch_grid=patch_grid)

    affinity = compute_affinity(frame, patch, temperature=0.5).detach().requires_grad_()
    gradcheck = torch.autograd.gradcheck
    assert gradcheck(lambda x, p: compute_affinity(x, p, temperature=0.5), (frame, patch))
    assert gradcheck(localize, (affinity,))
    assert gradcheck(lambda x, t: sample(x, positions(t), patch_grid=patch_grid), (frame, theta))
    assert gradcheck(lambda a, t: sample_affinity(a, positions(t), frame_grid=frame_grid), (affinity, theta))
