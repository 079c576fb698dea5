"""Views that bend, each frame a little differently: bodies are not rigid, and what follows them must not ask for it.

A bend moves every point p of a view by w(p), a sum of a few waves that run on from frame to frame. The bent frame shows
at p what the frame showed at p + w(p).
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor
from torch.nn.functional import grid_sample

from timecycle.pose import square_places

_WAVES = 4
_CYCLES = (0.3, 1.3)  # across the view
_TURN = math.pi / 3  # at most, from frame to frame

Points = Float32[Tensor, "points 2"]


@dataclass(frozen=True, eq=False)
class Bend:
    """The waves of one view."""

    size: float  # the farthest that a point may move, of the view's half side
    shares: Float32[Tensor, "waves 2"]  # of x and y; both add up to at most 1
    cycles: Float32[Tensor, "waves 2"]
    phases: Float32[Tensor, "waves"]
    turns: Float32[Tensor, "waves"]

    def moved(self, points: Points, frame: int) -> Points:
        """p + w(p) in a frame."""
        phases = math.pi * points @ self.cycles.T + self.phases + frame * self.turns
        return points + self.size * torch.sin(phases) @ self.shares


def choose_bend(size: float, rng: np.random.Generator) -> Bend:
    shares = rng.standard_normal((_WAVES, 2))
    angles = rng.uniform(0, 2 * math.pi, _WAVES)
    cycles = rng.uniform(*_CYCLES, _WAVES)[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    phases, turns = rng.uniform(0, 2 * math.pi, _WAVES), rng.uniform(-_TURN, _TURN, _WAVES)
    numbers = (shares / np.abs(shares).sum(axis=0), cycles, phases, turns)
    return Bend(size, *(torch.from_numpy(part).float() for part in numbers))


def bent(
    frames: UInt8[np.ndarray, "frames side side 3"], bend: Bend, *, first: int = 0
) -> UInt8[np.ndarray, "frames side side 3"]:
    """The frames, bent; those before `first` stay as they are."""
    side = frames.shape[1]
    points = square_places(side)
    grids = [bend.moved(points, frame).reshape(side, side, 2) for frame in range(first, len(frames))]
    if not grids:
        return frames
    images = torch.from_numpy(frames[first:]).permute(0, 3, 1, 2).float()
    shown = grid_sample(images, torch.stack(grids), padding_mode="reflection", align_corners=False)
    pixels = shown.permute(0, 2, 3, 1).round().clamp(0, 255).to(torch.uint8).numpy()
    return np.concatenate([frames[:first], pixels])
