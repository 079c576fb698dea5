"""Bends: what a bent frame shows at p is what the frame showed at p + w(p), and nothing moves farther than allowed."""

import numpy as np
import pytest
import torch
from torch.nn.functional import grid_sample

from timecycle.data.bends import bent, choose_bend
from timecycle.pose import square_places

SIDE = 64


def smooth_frames(count: int) -> np.ndarray:
    """Colours that change slowly: interpolation then costs little."""
    points = square_places(SIDE).reshape(SIDE, SIDE, 2).numpy()
    red, green = 127 + 120 * np.sin(2 * points[..., 0]), 127 + 120 * np.cos(2 * points[..., 1])
    frame = np.stack([red, green, (red + green) / 2], axis=-1).round().astype(np.uint8)
    return np.stack([frame] * count)


@pytest.mark.parametrize("seed", range(5))
def test_a_bent_frame_shows_what_lay_where_its_points_came_from(seed):
    frames, bend = smooth_frames(3), choose_bend(0.2, np.random.default_rng(seed))
    shown = bent(frames, bend)
    inner = (square_places(SIDE).abs().amax(dim=1) < 0.75).numpy()  # what came from beyond the edge is mirrored
    for index in range(3):
        places = bend.moved(square_places(SIDE), index)
        image = torch.from_numpy(frames[index]).permute(2, 0, 1)[None].float()
        expected = grid_sample(image, places[None, None], align_corners=False)[0, :, 0].T.numpy()
        assert np.abs(shown[index].reshape(-1, 3)[inner] - expected[inner]).max() <= 1


@pytest.mark.parametrize("size", [0.05, 0.3])
def test_no_point_moves_farther_than_allowed(size):
    points = square_places(SIDE)
    for seed in range(5):
        bend = choose_bend(size, np.random.default_rng(seed))
        for frame in (0, 1, 7):
            assert float((bend.moved(points, frame) - points).abs().max()) <= size + 1e-5


def test_a_bend_runs_on_from_frame_to_frame():
    bend = choose_bend(0.2, np.random.default_rng(0))
    points = square_places(8)
    assert not torch.allclose(bend.moved(points, 0), bend.moved(points, 1))


def test_frames_before_the_first_stay_as_they_are():
    frames, bend = smooth_frames(3), choose_bend(0.2, np.random.default_rng(0))
    shown = bent(frames, bend, first=1)
    assert np.array_equal(shown[0], frames[0])
    assert not np.array_equal(shown[1], frames[1])
    assert np.array_equal(bent(frames[:1], bend, first=1), frames[:1])


def test_a_bend_of_size_0_changes_nothing():
    frames = smooth_frames(2)
    assert np.array_equal(bent(frames, choose_bend(0.0, np.random.default_rng(0))), frames)
