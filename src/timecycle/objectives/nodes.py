"""Nodes: overlapping squares of feature cells, between which walks can step instead of between single cells.

The mean descriptor of a square changes little when its content deforms by less than a cell, so its walks teach what
belongs to a region rather than the exact position of a texture.
"""

from collections.abc import Callable
from dataclasses import replace

import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.grid import Axis, Grid
from timecycle.pose import to_cells

_MAX_STRETCH = 3.0  # cells between the targets of two neighbours; farther apart, they do not move together


def node_grid(grid: Grid, side: int) -> Grid:
    """Return the grid of the nodes of `side` x `side` cells, each half covered by the next."""
    return Grid(_node_axis(grid.y, side), _node_axis(grid.x, side))


def pool_nodes(features: Float[Tensor, "b n c h w"], side: int) -> Float[Tensor, "b n c h2 w2"]:
    """Average the descriptors of each node's cells, and scale them to unit length."""
    pooled = F.normalize(F.avg_pool2d(features.flatten(0, 1), side, stride=_stride(side)), dim=1)
    return pooled.reshape(*features.shape[:2], *pooled.shape[1:])


def node_points(
    points: Float[Tensor, "b cells 2"], visible: Bool[Tensor, "b cells"], grid: Grid, side: int
) -> tuple[Float[Tensor, "b nodes 2"], Bool[Tensor, "b nodes"]]:
    """Return where the middle of each node lies in the other view, and which are visible and move as one.

    The middle is the centre cell, or the mean of the central four: cells towards the edge may belong to something else.
    """
    shape = (len(points), -1, grid.y.cells, grid.x.cells)
    cells, targets = (one.transpose(1, 2).reshape(shape) for one in (to_cells(points, grid), points))
    hidden = (~visible).float().reshape(shape)
    spread = _middle(cells, side, F.max_pool2d) + _middle(-cells, side, F.max_pool2d)
    together = (spread.amax(dim=1) <= _MAX_STRETCH) & (_middle(hidden, side, F.max_pool2d)[:, 0] == 0)
    return _middle(targets, side, F.avg_pool2d).flatten(2).transpose(1, 2), together.flatten(1)


def _node_axis(axis: Axis, side: int) -> Axis:
    stride = _stride(side)
    return replace(
        axis,
        cells=(axis.cells - side) // stride + 1,
        stride_px=axis.stride_px * stride,
        first_px=axis.first_px + (side - 1) / 2 * axis.stride_px,
    )


def _stride(side: int) -> int:
    return max(1, side // 2)


def _middle(values: Float[Tensor, "b c h w"], side: int, pool: Callable[..., Tensor]) -> Float[Tensor, "b c h2 w2"]:
    """Pool the central cells of each node: one, or four where its side is even."""
    count = 2 - side % 2
    margin, stride = (side - count) // 2, _stride(side)
    rows, columns = (((length - side) // stride) * stride + count for length in values.shape[2:])
    return pool(values[:, :, margin : margin + rows, margin : margin + columns], count, stride=stride)
