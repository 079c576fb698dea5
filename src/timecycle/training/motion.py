"""How much the picture changes from frame to frame, cell by cell: the crudest sign of motion, and free."""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from timecycle.grid import Grid


def cell_change(clips: UInt8[Tensor, "b n height width 3"], grid: Grid) -> Float[Tensor, "b steps cells"]:
    """The mean absolute difference of each frame to the next, in levels of 255, over each cell."""
    change = (clips[:, 1:].float() - clips[:, :-1].float()).abs().mean(dim=-1)
    return torch.einsum("yh,bnhw,xw->bnyx", grid.y.area(), change, grid.x.area()).flatten(2)
