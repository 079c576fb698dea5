"""Dense correspondence against the exact flow of the synthetic world."""

import numpy as np
import pytest
import torch

from oracle import OracleEncoder
from timecycle.errors import SettingsError
from timecycle.grid import grid_over
from timecycle.matching.window import Window
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.flow import at_pixels, consistent, match, warp
from timecycle.synthetic import WorldConfig, make_world


@pytest.fixture(scope="module")
def world():
    return make_world(WorldConfig(height_px=121, width_px=161, frames=20))


def test_flow_error_is_below_the_size_of_a_cell(world):
    encoder = OracleEncoder(world, stride_px=8)
    matched = match(encoder.encode(world.frame(0)), encoder.encode(world.frame(3)))
    ground_truth = world.flow(0, 3)
    error = np.linalg.norm(matched.flow - ground_truth.displacement, axis=-1)[ground_truth.visible]
    assert np.median(error) < 1.5


def test_an_image_matched_with_itself_does_not_move(world):
    features = OracleEncoder(world).encode(world.frame(0))
    moved = np.abs(match(features, features).flow)
    assert np.median(moved) < 0.1
    assert moved.max() <= 4  # at an object's edge the parabola leans, never by more than half a cell


def test_refinement_recovers_a_shift_of_a_third_of_a_cell():
    """Descriptors that vary smoothly with position: the top of the parabola is the true position."""
    positions = torch.arange(20, dtype=torch.float32)
    frequencies = torch.linspace(0.05, 0.5, 16)

    def waves(shift: float) -> torch.Tensor:
        phase = (positions[:, None] + shift) * frequencies
        return torch.cat([phase.sin(), phase.cos()], dim=-1)

    def features(shift: float) -> FeatureMap:
        across, down = waves(shift)[None].expand(20, 20, 32), waves(0.0)[:, None].expand(20, 20, 32)
        cells = torch.nn.functional.normalize(torch.cat([across, down], dim=-1), dim=-1)
        return FeatureMap(cells.contiguous(), grid_over(153, 153, cells=(20, 20), stride_px=8, first_px=0))

    inner = match(features(1 / 3), features(0)).flow[40:110, 40:110]
    assert inner[..., 0] == pytest.approx(8 / 3, abs=0.6)
    assert inner[..., 1] == pytest.approx(0, abs=0.6)


def test_forward_backward_consistent_matches_are_right(world):
    encoder = OracleEncoder(world, stride_px=8)
    maps = [encoder.encode(world.frame(t)) for t in (0, 3)]
    there, back = match(*maps), match(*reversed(maps))
    there.end[4, 5] += 60  # one that goes astray
    sure = consistent(there, back)
    assert not sure[4, 5]
    assert sure.mean() > 0.5
    ground_truth = world.flow(0, 3)
    x, y = np.moveaxis(np.rint(there.start[sure]).astype(int), -1, 0)
    error = np.linalg.norm((there.end - there.start)[sure] - ground_truth.displacement[y, x], axis=-1)[
        ground_truth.visible[y, x]
    ]
    assert np.quantile(error, 0.95) < 8
    shown = at_pixels(sure, there) & ground_truth.visible
    error = np.linalg.norm(there.flow - ground_truth.displacement, axis=-1)
    assert shown.mean() > 0.5
    assert np.quantile(error[shown], 0.95) < 8


def test_warping_by_the_true_flow_rebuilds_the_image(world):
    ground_truth = world.flow(0, 2)
    rebuilt = warp(world.frame(2), ground_truth.displacement)
    error = np.abs(rebuilt.astype(int) - world.frame(0).astype(int)).mean(axis=-1)
    assert np.median(error[ground_truth.visible]) < 3


def test_warping_by_zero_flow_changes_nothing(world):
    still = np.zeros((121, 161, 2), np.float32)
    assert (warp(world.frame(0), still) == world.frame(0)).all()


def test_a_window_keeps_matches_near(world):
    encoder = OracleEncoder(world, stride_px=4)
    matched = match(encoder.encode(world.frame(0)), encoder.encode(world.frame(8)), window=Window(2.0))
    moved = np.linalg.norm(matched.end - matched.start, axis=-1)
    assert moved.max() <= 2 * 4 + 4  # the window, and half a cell of refinement on each axis


def test_a_window_between_images_of_other_sizes_is_refused(world):
    a = OracleEncoder(world, stride_px=4).encode(world.frame(0))
    b = OracleEncoder(world, stride_px=8).encode(world.frame(0))
    with pytest.raises(SettingsError, match="a window was asked for between images of different sizes"):
        match(a, b, window=Window(3.0))
