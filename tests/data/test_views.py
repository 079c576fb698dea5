"""Views and elastic warps: maps are exact; a warped frame shows at p what the frame showed at p + w(p)."""

import numpy as np
import pytest
import torch
from torch.nn.functional import grid_sample

from timecycle.data.augment.views import (
    ViewConfig,
    apply_view,
    apply_warp,
    choose_view,
    choose_warp,
    photometric,
    to_grey,
    view_to_view,
)
from timecycle.data.corpus.order import generator
from timecycle.errors import SettingsError
from timecycle.pose import pixel_centres
from timecycle.synthetic import WorldConfig, make_world

NO_COLOURS = dict.fromkeys(("brightness", "contrast", "saturation", "hue", "grayscale", "channel_drop", "blur"), 0.0)
PLAIN = ViewConfig(**NO_COLOURS)
IDENTITY = torch.eye(2, 3)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def views(count: int, *, cover: float = 1.0, config: ViewConfig = PLAIN) -> list[torch.Tensor]:
    return [choose_view(config, generator(seed=0, epoch=0, position=p), cover=cover) for p in range(count)]


def mapped(affine: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    return points @ affine[..., :2].mT + affine[..., None, :, 2]


# Geometry


def test_identity_view_returns_the_frames_exactly():
    for side in (31, 64, 128):
        frames = noise(3, side, side, 3)
        assert np.array_equal(apply_view(frames, IDENTITY, side), frames)


def test_shift_by_whole_pixels_is_an_exact_crop():
    frames = noise(2, 96, 96, 3)
    affine = torch.tensor([[2 / 3, 0, 2 * 5 / 96], [0, 2 / 3, -2 * 7 / 96]])
    assert np.array_equal(apply_view(frames, affine, 64), frames[:, 16 - 7 : 80 - 7, 16 + 5 : 80 + 5])


def test_outside_is_the_reflection_and_never_black():
    frames = np.full((1, 64, 64, 3), 200, np.uint8)
    affine = torch.tensor([[1.2, -0.5, 0.3], [0.5, 1.2, -0.2]])
    assert apply_view(frames, affine, 64).min() == 200
    frames = noise(1, 64, 64, 3)
    shifted = apply_view(frames, torch.tensor([[1.0, 0, -2 * 8 / 64], [0, 1.0, 0]]), 64)
    assert np.array_equal(shifted[:, :, :8], frames[:, :, :8][:, :, ::-1])


def test_view_to_view_maps_points_to_the_same_source_point():
    first, second = torch.stack(views(10)), torch.stack(views(20)[10:])
    points = torch.rand(10, 30, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    there = mapped(view_to_view(first, second), points)
    assert torch.allclose(mapped(second, there), mapped(first, points), atol=1e-5)
    assert torch.allclose(mapped(view_to_view(second, first), there), points, atol=1e-5)
    assert torch.allclose(view_to_view(first, first), IDENTITY.expand(10, 2, 3), atol=1e-6)


def test_view_of_a_ramp_shows_its_source_coordinates():
    side = 128
    line = (np.arange(side) * 2 + 1) / side - 1
    ramp = np.stack([*np.meshgrid(line, line), np.zeros((side, side))], axis=-1)
    frames = np.rint((ramp + 1) * 127).astype(np.uint8)[None]
    # A linear ramp stays linear when resized, so that every pixel encodes its source position.
    for affine in views(8, cover=0.5):
        shown = apply_view(frames, affine, 32)[0, :, :, :2].reshape(-1, 2) / 127 - 1
        centres = (np.arange(32) * 2 + 1) / 32 - 1
        points = torch.tensor(np.stack(np.meshgrid(centres, centres), axis=-1).reshape(1, -1, 2)).float()
        assert np.abs(shown - mapped(affine[None], points)[0].numpy()).max() < 0.02


def test_views_that_fit_lie_inside_the_source():
    corners = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    small = torch.stack([mapped(affine, corners) for affine in views(200, cover=0.5)])
    assert small.abs().max() <= 1 + 1e-6
    for affine in views(200):
        if mapped(affine, corners).abs().max() > 1 + 1e-6:
            assert not affine[:, 2].any()  # too large for the source: it stays in the middle
    scales = torch.stack(views(200)).select(2, 0).norm(dim=1)
    assert 0.69 < scales.min() < 0.75
    assert 1.3 < scales.max() < 1.41


def test_shrinking_averages_pixels_instead_of_skipping_them():
    checks = (np.indices((128, 128)).sum(axis=0) % 2 * 255).astype(np.uint8)
    frames = np.repeat(checks[None, :, :, None], 3, axis=3)
    assert np.abs(apply_view(frames, IDENTITY, 48).astype(int) - 127).mean() < 8


def test_invalid_view_settings_are_refused():
    with pytest.raises(SettingsError, match="the smallest, then the largest scale"):
        ViewConfig(scale=(1.4, 0.7))
    with pytest.raises(SettingsError, match=r"grayscale is 1\.5; give 0 to 1"):
        ViewConfig(grayscale=1.5)


# Colours


@pytest.fixture(scope="module")
def frames() -> np.ndarray:
    return make_world(WorldConfig(height_px=48, width_px=48, frames=3)).video()


def changed(frames: np.ndarray, position: int = 0, **settings: float) -> np.ndarray:
    config = ViewConfig(**{**NO_COLOURS, **settings})
    return photometric(frames, config, generator(seed=0, epoch=0, position=position))


def test_settings_of_zero_change_no_pixel(frames: np.ndarray):
    same = changed(frames)
    assert np.array_equal(same, frames)
    assert not np.shares_memory(same, frames)


def test_all_frames_of_a_view_get_the_same_colours(frames: np.ndarray):
    static = np.repeat(frames[:1], 3, axis=0)
    for position in range(5):
        result = photometric(static, ViewConfig(), generator(seed=0, epoch=0, position=position))
        assert np.array_equal(result[0], result[1])
        assert np.array_equal(result[0], result[2])


def test_greys_stay_grey_under_saturation_and_hue():
    grey = np.repeat(noise(2, 16, 16, 1), 3, axis=3)
    result = changed(grey, saturation=0.9, hue=0.5).astype(int)
    assert np.abs(result - grey).max() <= 1


def test_brightness_scales_and_contrast_keeps_the_mean(frames: np.ndarray):
    dark = np.clip(frames, 60, 120)
    bright = changed(dark, brightness=0.4).astype(float)
    factor = bright.mean() / dark.mean()
    assert 0.6 <= factor <= 1.4
    assert abs(factor - 1) > 0.02
    assert np.abs(bright - factor * dark).max() < 1.5
    weights = [0.299, 0.587, 0.114]
    flat = changed(dark, contrast=0.4).astype(float)
    assert abs((flat @ weights).mean() - (dark @ weights).mean()) < 0.5
    assert abs(flat.std() / dark.std() - 1) > 0.02


def test_grayscale_channel_drop_and_blur_are_applied(frames: np.ndarray):
    grey = changed(frames, grayscale=1)
    assert np.array_equal(grey[..., 0], grey[..., 1])
    assert np.array_equal(grey[..., 0], grey[..., 2])
    dropped = changed(frames, channel_drop=1)
    spreads = dropped.std(axis=(0, 1, 2))
    assert (spreads == 0).sum() == 1
    channel = int(spreads.argmin())
    assert abs(dropped[..., channel].mean() - frames[..., channel].mean()) <= 0.5
    blurred = changed(frames, blur=1).astype(float)
    assert np.abs(np.diff(blurred, axis=2)).mean() < 0.9 * np.abs(np.diff(frames.astype(float), axis=2)).mean()


def test_grey_frames_keep_their_brightness(frames: np.ndarray):
    grey = to_grey(frames)
    assert (grey == grey[..., :1]).all()
    assert np.array_equal(to_grey(grey), grey)
    assert grey[..., 0] == pytest.approx(frames @ [0.299, 0.587, 0.114], abs=0.51)


def test_grayscale_has_its_probability(frames: np.ndarray):
    share = np.mean([not np.array_equal(changed(frames, position, grayscale=0.3), frames) for position in range(200)])
    assert 0.2 < share < 0.4


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
