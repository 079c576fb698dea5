"""Choose the patch that a tracking cycle starts from: where something moves, or uniformly at random.

A static tracker is right wherever nothing moves. So patches come from the windows of the last frame that changed most
since the frame before, or, as in the paper, from anywhere. All corners of a patch lie inside the frame: padded corners
would reveal to the tracker that the border is near.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64, UInt8
from torch import Tensor
from torch.nn.functional import grid_sample

from timecycle.errors import SettingsError
from timecycle.pose import apply_pose, pixel_centres

Choice = Literal["motion", "uniform"]


@dataclass(frozen=True, kw_only=True)
class PatchConfig:
    """How the start patch is chosen."""

    patch_px: int = 40  # against a crop of 120: a third, as in the paper
    choice: Choice = "motion"  # uniform: every position that holds the whole patch is equally likely
    rotation_degrees: float = 45  # largest, to either side
    candidates: int = 7  # motion: windows per axis that are compared
    keep: int = 10  # the windows that changed most, of which one is drawn
    jitter: float = 1 / 12  # of the range of window positions: half a step between 7 windows

    def __post_init__(self) -> None:
        if self.choice not in get_args(Choice):
            raise SettingsError(f"patches.choice is {self.choice!r}", remedy="choose one of motion, uniform")
        if self.patch_px < 1 or self.candidates < 1 or not 1 <= self.keep <= self.candidates**2:
            raise SettingsError(
                f"patch_px is {self.patch_px}, candidates {self.candidates}, keep {self.keep}",
                remedy="give at least 1 of each, and keep at most candidates x candidates",
            )
        if not 0 <= self.rotation_degrees <= 180 or self.jitter < 0:
            raise SettingsError(
                f"rotation_degrees is {self.rotation_degrees} and jitter {self.jitter}",
                remedy="give a rotation from 0 to 180 and a jitter from 0",
            )

    def check_fits(self, side_px: int) -> None:
        """Refuse patches that do not fit into the frame at their largest rotation."""
        widest = self.patch_px * (math.sqrt(2) if self.rotation_degrees >= 45 else _extent(self.rotation_degrees))
        if widest > side_px:
            raise SettingsError(
                f"a patch of {self.patch_px} pixels turned by {self.rotation_degrees:g} degrees does not fit into "
                f"frames of {side_px}",
                remedy="take smaller patches or larger crops",
            )


def choose_patch(
    frames: UInt8[np.ndarray, "frames side side 3"], config: PatchConfig, rng: np.random.Generator
) -> Float32[Tensor, "3"]:
    """Draw the pose theta of a patch of the last frame: on a window that changed much since the frame before, or
    uniformly."""
    side = frames.shape[1]
    config.check_fits(side)
    alpha = math.radians(rng.uniform(-config.rotation_degrees, config.rotation_degrees))
    extent = config.patch_px / 2 * (abs(math.cos(alpha)) + abs(math.sin(alpha)))  # from the centre to the farthest side
    if config.choice == "uniform":
        centre = _uniform_centre(side, config, extent, rng)
    else:
        centre = np.clip(_moving_corner(frames, config, rng) + config.patch_px / 2, extent, side - extent)
    x, y = 2 * centre / side - 1
    return torch.tensor([x, y, alpha], dtype=torch.float32)


def _uniform_centre(
    side: int, config: PatchConfig, extent: float, rng: np.random.Generator
) -> Float64[np.ndarray, "2"]:
    """Draw a centre that keeps the whole patch in the frame; without rotation, patches lie on whole pixels."""
    if config.rotation_degrees == 0:
        return rng.integers(side - config.patch_px + 1, size=2) + config.patch_px / 2
    return rng.uniform(extent, side - extent, size=2)


def _moving_corner(
    frames: UInt8[np.ndarray, "frames side side 3"], config: PatchConfig, rng: np.random.Generator
) -> Float64[np.ndarray, "2"]:
    """Draw the corner (x, y) of one of the windows that changed most, with jitter."""
    room = frames.shape[1] - config.patch_px
    starts = np.linspace(0, room, config.candidates).round().astype(int)
    scores = _change(frames[-2], frames[-1], starts, config.patch_px)
    best = np.argsort(-scores, axis=None, kind="stable")[: config.keep]
    row, column = divmod(int(best[rng.integers(len(best))]), config.candidates)
    shift = rng.uniform(-config.jitter, config.jitter, size=2) * room
    corner: np.ndarray = np.array([starts[column], starts[row]]) + shift
    return corner


def cut_patch(
    frame: UInt8[np.ndarray, "side side 3"], theta: Float32[Tensor, "3"], patch_px: int
) -> UInt8[np.ndarray, "{patch_px} {patch_px} 3"]:
    """Sample the pixels under a pose bilinearly; without rotation and at whole pixels this copies them."""
    grid = apply_pose(theta, pixel_centres(patch_px), scale=patch_px / frame.shape[0]).reshape(1, patch_px, patch_px, 2)
    image = torch.from_numpy(frame).permute(2, 0, 1)[None].float()
    patch = grid_sample(image, grid, padding_mode="border", align_corners=False)
    return patch[0].permute(1, 2, 0).round().to(torch.uint8).numpy()


def _extent(degrees: float) -> float:
    """Return the width of a rotated unit square."""
    return math.cos(math.radians(degrees)) + math.sin(math.radians(degrees))


def _change(
    before: UInt8[np.ndarray, "side side 3"],
    after: UInt8[np.ndarray, "side side 3"],
    starts: Int64[np.ndarray, " n"],
    patch_px: int,
) -> Int64[np.ndarray, "n n"]:
    """Return the summed absolute difference in every window, by rows and columns of windows."""
    difference = np.abs(after.astype(np.int16) - before).sum(axis=2, dtype=np.int64)
    sums = np.pad(difference.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))  # integral image
    ends = starts + patch_px
    rows: np.ndarray = sums[ends] - sums[starts]
    windows: np.ndarray = rows[:, ends] - rows[:, starts]
    return windows
