"""Start patches: exact at whole pixels, inside the frame, and where something moves."""

import math

import numpy as np
import pytest
import torch

from timecycle.config import train_config
from timecycle.data.augment.patches import PatchConfig, choose_patch, cut_patch
from timecycle.data.corpus.order import generator
from timecycle.errors import SettingsError
from timecycle.pose import apply_pose
from timecycle.synthetic import WorldConfig, make_world

SIDE, PATCH = 120, 40
CONFIG = PatchConfig()


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def pose_of(left: float, top: float, alpha: float = 0.0) -> torch.Tensor:
    x, y = (2 * (corner + PATCH / 2) / SIDE - 1 for corner in (left, top))
    return torch.tensor([x, y, alpha])


def test_identity_pose_reads_the_central_crop_exactly():
    frame = noise(SIDE, SIDE, 3)
    assert np.array_equal(cut_patch(frame, torch.zeros(3), PATCH), frame[40:80, 40:80])


def test_patch_at_whole_pixels_is_an_exact_crop():
    frame = noise(SIDE, SIDE, 3)
    for left, top in ((0, 0), (80, 80), (3, 51), (17, 0)):
        expected = frame[top : top + PATCH, left : left + PATCH]
        assert np.array_equal(cut_patch(frame, pose_of(left, top), PATCH), expected)


@pytest.mark.parametrize("quarters", [1, 2, -1])
def test_quarter_turns_are_exact(quarters: int):
    frame = noise(SIDE, SIDE, 3)
    turned = cut_patch(frame, pose_of(30, 20, quarters * math.pi / 2), PATCH)
    # From x towards y is clockwise on the screen: the patch's right side points down, so its content rotates back.
    assert np.array_equal(turned, np.rot90(frame[20:60, 30:70], quarters))


def test_shift_by_half_a_pixel_averages_two_pixels():
    frame = noise(SIDE, SIDE, 3)
    halved = cut_patch(frame, pose_of(10.5, 20), PATCH)
    mean = (frame[20:60, 10:50].astype(float) + frame[20:60, 11:51]) / 2
    assert np.abs(halved - mean).max() <= 0.51


def test_all_corners_lie_inside_the_frame():
    frames = noise(2, SIDE, SIDE, 3)
    corners = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    poses = torch.stack(
        [choose_patch(frames, CONFIG, generator(seed=0, epoch=0, position=position)) for position in range(200)]
    )
    placed = torch.cat([apply_pose(pose, corners, scale=PATCH / SIDE) for pose in poses])
    assert placed.abs().max() <= 1 + 1e-6
    alphas = poses[:, 2].rad2deg()
    assert alphas.min() < -35
    assert alphas.max() > 35
    assert alphas.abs().max() <= 45


def test_patch_lies_where_the_last_two_frames_differ():
    frames = np.full((3, SIDE, SIDE, 3), 90, np.uint8)
    frames[0] = 200  # earlier changes do not count
    frames[2, 70:100, 15:45] = 160
    one = PatchConfig(keep=1, rotation_degrees=0, jitter=0)
    x, y, alpha = choose_patch(frames, one, generator(seed=0, epoch=0, position=0)).tolist()
    left, top = ((value + 1) * SIDE / 2 - PATCH / 2 for value in (x, y))
    assert 45 - PATCH <= left <= 15
    assert 100 - PATCH <= top <= 70
    assert alpha == 0


def test_patches_land_on_moving_objects_more_often_than_chance():
    hits, chance = [], []
    for seed in range(6):
        config = WorldConfig(height_px=SIDE, width_px=SIDE, frames=24, seed=seed, camera_px_per_frame=0)
        world = make_world(config)
        frames = np.stack([world.frame(t) for t in (8, 12)])
        covered = world.mask(12) > 0
        chance.append(covered[10:110, 10:110].mean())
        for position in range(25):
            x, y, _ = choose_patch(frames, CONFIG, generator(seed=0, epoch=seed, position=position)).tolist()
            hits.append(covered[int((y + 1) * SIDE / 2), int((x + 1) * SIDE / 2)])
    assert np.mean(hits) > 1.5 * np.mean(chance)


def test_patches_of_the_paper_preset_are_uniform_random_crops():
    config = train_config("paper")
    side, size = config.clips.crop_px, config.patches.patch_px
    frames = np.zeros((2, side, side, 3), np.uint8)
    frames[1, :90, :90] = 200  # motion must not attract them
    rng = np.random.default_rng(0)
    poses = torch.stack([choose_patch(frames, config.patches, rng) for _ in range(6000)])
    corners = ((poses[:, :2] + 1) * side / 2 - size / 2).numpy()
    assert np.abs(corners - corners.round()).max() < 1e-3, "patches lie on whole pixels"
    corners = corners.round().astype(int)
    assert corners.min() == 0
    assert corners.max() == side - size
    touching = ((corners == 0) | (corners == side - size)).any(axis=1).mean()
    assert touching == pytest.approx(1 - (1 - 2 / (side - size + 1)) ** 2, abs=0.01)
    for axis in (0, 1):
        counts = np.histogram(corners[:, axis], bins=7, range=(0, side - size + 1))[0]
        assert np.abs(counts / len(corners) - 1 / 7).max() < 0.02


def test_rotated_uniform_patches_lie_inside_the_frame():
    rng = np.random.default_rng(0)
    config = PatchConfig(choice="uniform")
    poses = torch.stack([choose_patch(noise(2, SIDE, SIDE, 3), config, rng) for _ in range(300)])
    corners = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    placed = torch.stack([apply_pose(pose, corners, scale=PATCH / SIDE) for pose in poses])
    assert placed.abs().max() <= 1 + 1e-6
    assert (placed.abs().amax(dim=(1, 2)) > 1 - 1e-4).float().mean() < 0.02


def test_patch_depends_only_on_frames_and_generator():
    frames = noise(2, SIDE, SIDE, 3)
    first, again, other = (choose_patch(frames, CONFIG, generator(seed=s, epoch=1, position=2)) for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_patch_that_does_not_fit_is_refused():
    rng = generator(seed=0, epoch=0, position=0)
    with pytest.raises(SettingsError, match="patch of 40 pixels turned by 45 degrees does not fit into frames of 50"):
        choose_patch(noise(2, 50, 50, 3), CONFIG, rng)
    assert choose_patch(noise(2, 50, 50, 3), PatchConfig(rotation_degrees=0), rng)[2] == 0
    with pytest.raises(SettingsError, match="keep at most candidates x candidates"):
        PatchConfig(candidates=2, keep=5)
    with pytest.raises(SettingsError, match="give a rotation from 0 to 180"):
        PatchConfig(rotation_degrees=-1)
