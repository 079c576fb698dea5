"""Elastic warps: a warped frame shows at p what the frame showed at p + w(p), and displacements are bounded."""

import numpy as np
import pytest
import torch
from torch.nn.functional import grid_sample

from timecycle.data.augment.elastic import apply_warp, choose_warp
from timecycle.pose import pixel_centres

SIDE = 64


def smooth_frames(count: int) -> np.ndarray:
    """Make frames of slowly changing colours, on which interpolation errors are small."""
    points = pixel_centres(SIDE).reshape(SIDE, SIDE, 2).numpy()
    red, green = 127 + 120 * np.sin(2 * points[..., 0]), 127 + 120 * np.cos(2 * points[..., 1])
    frame = np.stack([red, green, (red + green) / 2], axis=-1).round().astype(np.uint8)
    return np.stack([frame] * count)


@pytest.mark.parametrize("seed", range(5))
def test_warped_frame_shows_the_displaced_points(seed):
    frames, warp = smooth_frames(3), choose_warp(0.2, np.random.default_rng(seed))
    shown = apply_warp(frames, warp)
    inner = (pixel_centres(SIDE).abs().amax(dim=1) < 0.75).numpy()  # points from beyond the edge are reflected
    for index in range(3):
        points = warp.displace(pixel_centres(SIDE), index)
        image = torch.from_numpy(frames[index]).permute(2, 0, 1)[None].float()
        expected = grid_sample(image, points[None, None], align_corners=False)[0, :, 0].T.numpy()
        assert np.abs(shown[index].reshape(-1, 3)[inner] - expected[inner]).max() <= 1


@pytest.mark.parametrize("size", [0.05, 0.3])
def test_no_displacement_exceeds_the_size(size):
    points = pixel_centres(SIDE)
    for seed in range(5):
        warp = choose_warp(size, np.random.default_rng(seed))
        for frame in (0, 1, 7):
            assert float((warp.displace(points, frame) - points).abs().max()) <= size + 1e-5


def test_warp_changes_from_frame_to_frame():
    warp = choose_warp(0.2, np.random.default_rng(0))
    points = pixel_centres(8)
    assert not torch.allclose(warp.displace(points, 0), warp.displace(points, 1))


def test_frames_before_the_first_are_not_warped():
    frames, warp = smooth_frames(3), choose_warp(0.2, np.random.default_rng(0))
    shown = apply_warp(frames, warp, first=1)
    assert np.array_equal(shown[0], frames[0])
    assert not np.array_equal(shown[1], frames[1])
    assert np.array_equal(apply_warp(frames[:1], warp, first=1), frames[:1])


def test_warp_of_size_0_changes_nothing():
    frames = smooth_frames(2)
    assert np.array_equal(apply_warp(frames, choose_warp(0.0, np.random.default_rng(0))), frames)
