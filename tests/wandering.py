"""Features with exact ground truth: frames that wander cell by cell over a large map of random descriptors."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from timecycle.grid import grid_over

FRAME = grid_over(120, 120, cells=(15, 15), stride_px=8, first_px=0)
PATCH = grid_over(40, 40, cells=(5, 5), stride_px=8, first_px=0)


def world(*, batch: int = 3, channels: int = 128, seed: int = 0) -> Tensor:
    """Return random descriptors of unit length, (batch, channels, 40, 40)."""
    values = torch.randn(batch, channels, 40, 40, generator=torch.Generator().manual_seed(seed))
    return F.normalize(values, dim=1)


def frames(world_map: Tensor, shifts: list[tuple[int, int]]) -> Tensor:
    """Cut frames of 15x15 cells out of the world; the first cell of each is (10, 10) + shift (x, y)."""
    return torch.stack([world_map[:, :, 10 + y : 25 + y, 10 + x : 25 + x] for x, y in shifts], dim=1)


def patch(frame: Tensor, left: int, top: int) -> Tensor:
    """Cut the 5x5 cells out of a frame that begin at this cell."""
    return frame[:, :, top : top + 5, left : left + 5]


def theta(left: int, top: int, batch: int) -> Tensor:
    """Return the pose of that patch."""
    return torch.tensor([[(left * 8 + 20) / 60 - 1, (top * 8 + 20) / 60 - 1, 0.0]]).repeat(batch, 1)
