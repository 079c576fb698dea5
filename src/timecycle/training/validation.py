"""How well features follow what moves, told without labels on clips that are not trained on.

Warp: each frame against a known affine view of itself with other colours; the share of cells whose nearest neighbour is
within a cell of where the warp puts them. Cycle: nearest neighbours from frame to frame out and back; the share of
*moving* cells that come home within a cell, and the share of them that never left, which a static solution makes high.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from timecycle.grid import Grid
from timecycle.pose import mapped_cells
from timecycle.training.motion import cell_change

Features = Float[Tensor, "b c h w"]

_MOVING_GREY = 12  # levels of 255 by which a moving cell changes from a frame to the next, on average


@dataclass(frozen=True)
class Cycle:
    """What became of moving cells: the share that came home within a cell, and the share that never left."""

    home: float
    stayed: float


@torch.no_grad()
def warp_accuracy(first: Features, second: Features, maps: Float[Tensor, "b 2 3"], grid: Grid) -> float:
    """The share of cells of one view found within a cell of their true place in the other."""
    truth = mapped_cells(maps, grid)
    seen = ((truth >= 0) & (truth <= torch.tensor([grid.x.cells - 1, grid.y.cells - 1]))).all(dim=-1)
    found = _cells_of(_nearest(first, second), grid)
    near = (found - truth).abs().amax(dim=-1) <= 1
    return float((near & seen).sum() / seen.sum().clamp_min(1))


@torch.no_grad()
def cycle_accuracy(frames: Float[Tensor, "b n c h w"], moving: Bool[Tensor, "b cells"], grid: Grid) -> Cycle:
    """Follow nearest neighbours from the first frame to the last and back."""
    count = frames.shape[1]
    place = torch.arange(grid.cells).expand(len(frames), -1)
    start = _cells_of(place, grid)
    for step in range(1, count):
        place = _nearest(frames[:, step - 1], frames[:, step]).gather(1, place)
    far = _cells_of(place, grid)
    for step in range(count - 1, 0, -1):
        place = _nearest(frames[:, step], frames[:, step - 1]).gather(1, place)
    home = (_cells_of(place, grid) - start).abs().amax(dim=-1) <= 1
    stayed = (far - start).abs().amax(dim=-1) < 1
    total = moving.sum().clamp_min(1)
    return Cycle(float((home & moving).sum() / total), float((stayed & moving).sum() / total))


def moving_cells(clips: UInt8[Tensor, "b n height width 3"], grid: Grid) -> Bool[Tensor, "b cells"]:
    """Cells of the first frame whose picture changes from every frame to the next."""
    return (cell_change(clips, grid) > _MOVING_GREY).all(dim=1)


def _nearest(a: Features, b: Features) -> Int[Tensor, "b cells"]:
    return torch.bmm(a.flatten(2).transpose(1, 2), b.flatten(2)).argmax(dim=2)


def _cells_of(index: Int[Tensor, "b cells"], grid: Grid) -> Float[Tensor, "b cells 2"]:
    return torch.stack([index % grid.x.cells, index // grid.x.cells], dim=-1).float()
