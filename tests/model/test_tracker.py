"""The tracker's parts: poses are exact where geometry says so, and gradients are those of the functions."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.errors import SettingsError
from timecycle.grid import grid_over
from timecycle.model.affinity import affinity
from timecycle.model.localizer import LocalizerConfig, make_localizer
from timecycle.model.sampler import inside, read_affinity, sample, where
from timecycle.model.tracker import Tracker
from timecycle.pose import alignment_error, cell_places, place, to_cells

FRAME = grid_over(120, 120, cells=(15, 15), stride_px=8, first_px=0)
PATCH = grid_over(40, 40, cells=(5, 5), stride_px=8, first_px=0)
SCALE = 40 / 120


def features(*shape, seed=0, channels=64):
    made = torch.randn(*shape[:-2], channels, *shape[-2:], generator=torch.Generator().manual_seed(seed))
    return F.normalize(made, dim=-3)


def theta_of(left: int, top: int, alpha: float = 0.0) -> torch.Tensor:
    """The pose of the patch whose first cell is this cell of the frame."""
    return torch.tensor([[[(left * 8 + 20) / 60 - 1, (top * 8 + 20) / 60 - 1, alpha]]])


def cut(frame, left: int, top: int):
    return frame[:, None, :, top : top + 5, left : left + 5]


@pytest.mark.parametrize(("left", "top"), [(5, 5), (0, 0), (10, 10), (3, 7)])
def test_an_unrotated_patch_samples_one_cell_per_cell(left, top):
    frame = features(2, 15, 15)
    cells = where(theta_of(left, top).expand(2, 1, 3), frame_grid=FRAME, patch_grid=PATCH)
    assert torch.allclose(sample(frame, cells, patch_grid=PATCH), cut(frame, left, top), atol=1e-5)


def test_the_identity_pose_reads_the_central_crop():
    frame = features(1, 15, 15)
    cells = where(torch.zeros(1, 1, 3), frame_grid=FRAME, patch_grid=PATCH)
    assert torch.allclose(sample(frame, cells, patch_grid=PATCH), cut(frame, 5, 5), atol=1e-5)


def test_a_quarter_turn_turns_the_patch():
    """Turning is about the middle of the patch's pixels, not of its cells, which stand on their first pixels."""
    centred = grid_over(40, 40, cells=(5, 5), stride_px=8, first_px=3.5)
    whole = grid_over(120, 120, cells=(15, 15), stride_px=8, first_px=3.5)
    frame = features(1, 15, 15)
    cells = where(torch.tensor([[[0, 0, math.pi / 2]]]), frame_grid=whole, patch_grid=centred)
    turned = sample(frame, cells, patch_grid=centred)
    assert torch.allclose(turned, cut(frame, 5, 5).rot90(1, dims=(3, 4)), atol=1e-5)


def test_outside_the_frame_nothing_is_read():
    cells = where(torch.tensor([[[1.9, 0.0, 0.0]]]), frame_grid=FRAME, patch_grid=PATCH)
    assert not inside(cells, FRAME).any()
    assert not sample(features(1, 15, 15), cells, patch_grid=PATCH).any()
    assert not read_affinity(torch.ones(1, 1, 25, 225), cells, frame_grid=FRAME).any()


def test_an_affinity_is_a_distribution_over_the_frame_and_finds_what_is_there():
    frame = features(2, 15, 15)
    found = affinity(frame, cut(frame, 3, 7), temperature=0.01)
    assert torch.allclose(found.sum(dim=3), torch.ones(2, 1, 25), atol=1e-5)
    expected = torch.arange(225).reshape(15, 15)[7:12, 3:8].flatten()
    assert torch.equal(found.argmax(dim=3)[0, 0], expected)


def test_without_a_temperature_the_affinity_is_almost_uniform():
    frame = features(1, 30, 30)
    found = affinity(frame, frame[:, None, :, :10, :10], temperature=1.0)
    assert found.max() < 0.0031  # e / (e + 899)


def test_several_patches_visit_a_frame_as_each_would_alone():
    frame = features(2, 15, 15)
    tracker = Tracker(LocalizerConfig(), frame_grid=FRAME, patch_grid=PATCH, temperature=0.05)
    both = torch.cat([cut(frame, 3, 7), cut(frame, 1, 2)], dim=1)
    together = tracker(frame, both)
    for number in range(2):
        alone = tracker(frame, both[:, number : number + 1])
        assert torch.allclose(together.theta[:, number], alone.theta[:, 0], atol=1e-5)
        assert torch.allclose(together.patches[:, number], alone.patches[:, 0], atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.floats(-0.6, 0.6), st.floats(-0.6, 0.6), st.floats(-3.0, 3.0), st.sampled_from([(0.0, 0.0), (3.5, 3.5)]))
def test_procrustes_recovers_any_pose_from_exact_matches(tx, ty, alpha, firsts):
    """Affinities that put each patch cell's mean exactly where a pose puts it give the pose back."""
    frame_grid = grid_over(120, 120, cells=(15, 15), stride_px=8, first_px=firsts[0])
    patch_grid = grid_over(40, 40, cells=(5, 5), stride_px=8, first_px=firsts[1])
    theta = torch.tensor([[[tx, ty, alpha]]])
    cells = to_cells(place(theta, cell_places(patch_grid), scale=SCALE), frame_grid)
    if not inside(cells, frame_grid).all():
        return
    column, row = cells.unbind(dim=-1)
    across = (1 - (column[..., None] - torch.arange(15)).abs()).clamp_min(0)
    down = (1 - (row[..., None] - torch.arange(15)).abs()).clamp_min(0)
    found = (down[..., :, None] * across[..., None, :]).flatten(3)
    localizer = make_localizer(LocalizerConfig(sharpen=1.0), frame_grid=frame_grid, patch_grid=patch_grid)
    assert alignment_error(localizer(found), theta, scale=SCALE).item() < 1e-8


def test_vague_matches_have_no_rotation_and_finite_gradients():
    found = torch.full((1, 1, 25, 225), 1 / 225, requires_grad=True)
    theta = make_localizer(LocalizerConfig(), frame_grid=FRAME, patch_grid=PATCH)(found)
    theta.square().sum().backward()
    assert torch.isfinite(found.grad).all()
    assert theta[0, 0, 2].abs() < 1e-3


@pytest.mark.parametrize("kind", ["paper", "release"])
def test_learned_localizers_first_guess_the_centre(kind):
    frame_grid = grid_over(240, 240, cells=(30, 30), stride_px=8, first_px=0)
    patch_grid = grid_over(80, 80, cells=(10, 10), stride_px=8, first_px=0)
    frame = features(2, 30, 30)
    found = affinity(frame, frame[:, None, :, 4:14, 9:19], temperature=0.05)
    localizer = make_localizer(LocalizerConfig(kind=kind), frame_grid=frame_grid, patch_grid=patch_grid)
    theta = localizer(found)
    assert theta.shape == (2, 1, 3)
    assert theta.abs().max() < 0.2
    parameters = sum(p.numel() for p in localizer.parameters())
    assert parameters == {"paper": 6_661_123, "release": 1_977_347}[kind]


def test_the_release_localizer_refuses_small_patches():
    with pytest.raises(SettingsError, match="at least 7x7 cells, not 5x5; use larger patches"):
        make_localizer(LocalizerConfig(kind="release"), frame_grid=FRAME, patch_grid=PATCH)


def test_gradients_are_those_of_the_functions():
    frame_grid = grid_over(32, 32, cells=(4, 4), stride_px=8, first_px=0)
    patch_grid = grid_over(16, 16, cells=(2, 2), stride_px=8, first_px=0)
    generator = torch.Generator().manual_seed(0)
    frame = torch.randn(1, 3, 4, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    patch = torch.randn(1, 1, 3, 2, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    theta = torch.tensor([[[0.13, -0.21, 0.3]]], dtype=torch.float64, requires_grad=True)

    def pose(found):
        return make_localizer(LocalizerConfig(), frame_grid=frame_grid, patch_grid=patch_grid).double()(found)

    def places(t):
        return where(t, frame_grid=frame_grid, patch_grid=patch_grid)

    found = affinity(frame, patch, temperature=0.5).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: affinity(a, b, temperature=0.5), (frame, patch))
    assert torch.autograd.gradcheck(pose, (found,))
    assert torch.autograd.gradcheck(lambda f, t: sample(f, places(t), patch_grid=patch_grid), (frame, theta))
    assert torch.autograd.gradcheck(lambda f, t: read_affinity(f, places(t), frame_grid=frame_grid), (found, theta))
