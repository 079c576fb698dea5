"""Elastic warps of a view that change from frame to frame: bodies are not rigid, and features must not rely on it.

A warp displaces every point p of a view by w(p), a sum of a few waves whose phases advance with the frame. The warped
frame shows at p what the frame showed at p + w(p).
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor
from torch.nn.functional import grid_sample

from timecycle.pose import pixel_centres

_WAVES = 4
_CYCLES = (0.3, 1.3)  # across the view
_MAX_PHASE_STEP = math.pi / 3  # from frame to frame

Points = Float32[Tensor, "points 2"]


@dataclass(frozen=True, eq=False)
class ElasticWarp:
    """The waves of one view."""

    size: float  # the largest displacement of a point, of the view's half side
    shares: Float32[Tensor, "waves 2"]  # of x and y; absolute values add up to 1
    cycles: Float32[Tensor, "waves 2"]
    phases: Float32[Tensor, "waves"]
    phase_steps: Float32[Tensor, "waves"]  # from frame to frame

    def displace(self, points: Points, frame: int) -> Points:
        """Return p + w(p) in a frame."""
        phases = math.pi * points @ self.cycles.T + self.phases + frame * self.phase_steps
        return points + self.size * torch.sin(phases) @ self.shares


def choose_warp(size: float, rng: np.random.Generator) -> ElasticWarp:
    """Draw a warp whose displacements are at most `size`."""
    shares = rng.standard_normal((_WAVES, 2))
    angles = rng.uniform(0, 2 * math.pi, _WAVES)
    cycles = rng.uniform(*_CYCLES, _WAVES)[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    phases, steps = rng.uniform(0, 2 * math.pi, _WAVES), rng.uniform(-_MAX_PHASE_STEP, _MAX_PHASE_STEP, _WAVES)
    arrays = (shares / np.abs(shares).sum(axis=0), cycles, phases, steps)
    return ElasticWarp(size, *(torch.from_numpy(array).float() for array in arrays))


def apply_warp(
    frames: UInt8[np.ndarray, "frames side side 3"], warp: ElasticWarp, *, first: int = 0
) -> UInt8[np.ndarray, "frames side side 3"]:
    """Warp the frames from `first` on; earlier ones stay as they are."""
    side = frames.shape[1]
    points = pixel_centres(side)
    grids = [warp.displace(points, frame).reshape(side, side, 2) for frame in range(first, len(frames))]
    if not grids:
        return frames
    images = torch.from_numpy(frames[first:]).permute(0, 3, 1, 2).float()
    sampled = grid_sample(images, torch.stack(grids), padding_mode="reflection", align_corners=False)
    pixels = sampled.permute(0, 2, 3, 1).round().clamp(0, 255).to(torch.uint8).numpy()
    return np.concatenate([frames[:first], pixels])
