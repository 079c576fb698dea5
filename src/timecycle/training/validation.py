"""Measure on held-out clips, without labels, how well features match.

Warp accuracy: match each frame with a known affine view of itself in other colours; the share of cells whose nearest
neighbour is within a cell of the ground truth. Cycle accuracy: follow nearest neighbours from frame to frame, forward
and back; the share of *moving* cells that return within a cell. The share that never moved is high for a static
solution.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from timecycle.grid import Grid
from timecycle.pose import map_cells
from timecycle.training.learner import cell_change

Features = Float[Tensor, "b c h w"]

_MOVING_GREY = 12  # levels of 255: the least mean change of a moving cell from frame to frame


@dataclass(frozen=True)
class CycleAccuracy:
    """Shares of the moving cells: those that return within a cell, and those that are matched to their old position."""

    returned: float
    static: float


@torch.no_grad()
def warp_accuracy(first: Features, second: Features, maps: Float[Tensor, "b 2 3"], grid: Grid) -> float:
    """Return the share of cells of one view that are matched within a cell of the ground truth in the other."""
    ground_truth = map_cells(maps, grid)
    seen = ((ground_truth >= 0) & (ground_truth <= torch.tensor([grid.x.cells - 1, grid.y.cells - 1]))).all(dim=-1)
    matched = _positions(_nearest(first, second), grid)
    correct = (matched - ground_truth).abs().amax(dim=-1) <= 1
    return float((correct & seen).sum() / seen.sum().clamp_min(1))


@torch.no_grad()
def cycle_accuracy(frames: Float[Tensor, "b n c h w"], moving: Bool[Tensor, "b cells"], grid: Grid) -> CycleAccuracy:
    """Follow nearest neighbours from the first frame to the last and back."""
    count = frames.shape[1]
    index = torch.arange(grid.cells).expand(len(frames), -1)
    start = _positions(index, grid)
    for step in range(1, count):
        index = _nearest(frames[:, step - 1], frames[:, step]).gather(1, index)
    end = _positions(index, grid)
    for step in range(count - 1, 0, -1):
        index = _nearest(frames[:, step], frames[:, step - 1]).gather(1, index)
    returned = (_positions(index, grid) - start).abs().amax(dim=-1) <= 1
    static = (end - start).abs().amax(dim=-1) < 1
    total = moving.sum().clamp_min(1)
    return CycleAccuracy(float((returned & moving).sum() / total), float((static & moving).sum() / total))


def moving_cells(clips: UInt8[Tensor, "b n height width 3"], grid: Grid) -> Bool[Tensor, "b cells"]:
    """Return the cells of the first frame whose pixels change from every frame to the next."""
    return (cell_change(clips, grid) > _MOVING_GREY).all(dim=1)


def _nearest(a: Features, b: Features) -> Int[Tensor, "b cells"]:
    return torch.bmm(a.flatten(2).transpose(1, 2), b.flatten(2)).argmax(dim=2)


def _positions(index: Int[Tensor, "b cells"], grid: Grid) -> Float[Tensor, "b cells 2"]:
    return torch.stack([index % grid.x.cells, index // grid.x.cells], dim=-1).float()
