"""Segments: they partition the cells, keep objects apart, and cost nothing to a walk that stays on its own."""

import math

import pytest
import torch

from test_walks import GRID, shifted, views
from timecycle.errors import SettingsError
from timecycle.objectives.segments import find_segments, segment_loss
from timecycle.objectives.walks import Regions, WalksConfig, return_targets, walk_losses
from timecycle.training.settings import TrainConfig

SIDE = GRID.x.pixels


def generators(count: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in range(count)]


def found(images: torch.Tensor, objects: torch.Tensor | None = None, most: int = 12) -> torch.Tensor:
    ids = torch.zeros(len(images), GRID.cells, dtype=torch.long) if objects is None else objects
    return find_segments(images, ids, GRID, object_count=3, most=most, generators=generators(len(images)))


def noise(count: int = 3) -> torch.Tensor:
    return torch.randint(0, 256, (count, SIDE, SIDE, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))


def halves() -> torch.Tensor:
    image = torch.zeros(1, SIDE, SIDE, 3, dtype=torch.uint8)
    image[:, :, SIDE // 2 :] = 255
    return image


def test_every_cell_has_one_segment():
    segments = found(noise())
    assert (segments.sum(dim=2) == 1).all()
    used = (segments.sum(dim=1) > 0).sum(dim=1)
    assert (used >= 2).all()
    assert (used <= 12).all()


def test_objects_never_share_a_segment():
    objects = torch.randint(0, 3, (3, GRID.cells), generator=torch.Generator().manual_seed(2))
    segments = found(noise(), objects)
    shared = torch.stack([segments[objects == one].sum(dim=0) > 0 for one in range(3)])
    assert (shared.sum(dim=0) <= 1).all()


def test_a_segment_does_not_cross_a_strong_edge():
    segments = found(halves(), most=6)[0].reshape(GRID.y.cells, GRID.x.cells, -1)
    middle = GRID.x.cells // 2
    left, right = (part.flatten(0, 1).sum(dim=0) > 0 for part in (segments[:, :middle], segments[:, middle + 1 :]))
    assert not (left & right).any()


def test_segments_of_a_clip_do_not_depend_on_the_clips_beside_it():
    images = noise()
    assert torch.equal(found(images)[:1], found(images[:1]))


def test_segments_do_not_depend_on_exposure():
    dim = (noise() // 4 * 2).to(torch.uint8)
    assert torch.equal(found(dim), found((dim // 2).to(torch.uint8)))


@pytest.mark.parametrize("most", [2, 5])
def test_a_plain_image_has_segments_too(most):
    segments = found(torch.full((1, SIDE, SIDE, 3), 90, dtype=torch.uint8), most=most)
    assert torch.isfinite(segments).all()
    assert (segments.sum(dim=2) == 1).all()


def test_a_walk_costs_nothing_where_it_stays_on_its_segment():
    segments = found(noise(1))
    target = return_targets(shifted(0, 0, 1), GRID)
    within = segments @ segments.transpose(1, 2)  # to any cell of the segment, equally
    walk = within / within.sum(dim=2, keepdim=True)
    assert segment_loss(walk, target.weight, target.valid, segments) < 1e-3
    assert segment_loss(target.weight, target.weight, target.valid, segments) < 1e-3


def test_a_uniform_walk_costs_the_share_of_the_segment():
    segments = torch.zeros(1, GRID.cells, 2)
    segments[:, : GRID.cells // 5, 0] = 1
    segments[:, GRID.cells // 5 :, 1] = 1
    target = return_targets(shifted(0, 0, 1), GRID)
    walk = torch.full((1, GRID.cells, GRID.cells), 1 / GRID.cells)
    root = math.sqrt(0.2 * GRID.cells), math.sqrt(0.8 * GRID.cells)  # the weights of the two segments
    expected = (-math.log(0.2) * root[0] - math.log(0.8) * root[1]) / sum(root)
    assert segment_loss(walk, target.weight, target.valid, segments) == pytest.approx(expected, rel=1e-3)


def test_perfect_features_end_on_their_segment():
    out, back, points = views(shift=(0, 0), moves=[(0, 0)] * 4)
    config = WalksConfig(temperature=0.005, segments=1.0)
    regions = Regions(segments=found(noise()))
    losses = walk_losses(out, back, points, grid=GRID, config=config, regions=regions).losses
    assert losses["segments"] < 0.01


def test_gradients_reach_both_views():
    out, back, points = (tensor.clone().requires_grad_() for tensor in views())
    config = WalksConfig(walk=0, same_frame=0, segments=1)
    walk_losses(
        out, back, points.detach(), grid=GRID, config=config, regions=Regions(segments=found(noise()))
    ).total.backward()
    for view in (out, back):
        assert torch.isfinite(view.grad).all()
        assert view.grad.abs().sum() > 0


def test_impossible_numbers_of_segments_are_refused():
    with pytest.raises(SettingsError, match=r"walks\.most_segments is 1; give 2 or more"):
        WalksConfig(most_segments=1)
    with pytest.raises(SettingsError, match=r"most_segments is 300 and a view has 256 cells; give at most 256"):
        TrainConfig(objective="walks", view_px=128, walks=WalksConfig(segments=1, most_segments=300))
