"""Soft maps: labels on the feature grid, (rows, columns, channels), and their way back to image size.

Soft maps are interpolated straight to image size and only then decided: deciding on the grid would cut every
outline into blocks of the stride.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from timecycle.grid import Axis, Grid
from timecycle.kernel.deciding import decide
from timecycle.kernel.library import kernel_for

SoftMap = Float[Tensor, "rows columns channels"]
Extent = Float[Tensor, "rows columns objects"]  # how much of every cell each object covers

_NOTHING = 1e-6  # cells
_STRIP_PX = 16  # rows decided at once: bounds the memory, and keeps most channels out of most strips


def pool(values: Float[Tensor, "channels height width"], grid: Grid) -> SoftMap:
    """The mean of `values` over the extent of each cell, exact to the fraction of a pixel."""
    return torch.einsum("yh,chw,xw->yxc", grid.y.area(), values, grid.x.area())


def overlap(one: Float[Tensor, "cells objects"], other: Float[Tensor, "cells objects"]) -> Float[Tensor, " objects"]:
    """Intersection over union of what objects cover; two that are both empty agree."""
    union = torch.maximum(one, other).sum(dim=0)
    return torch.where(union > _NOTHING, torch.minimum(one, other).sum(dim=0) / union.clamp_min(_NOTHING), 1.0)


def upsample(soft: SoftMap, grid: Grid) -> Float[Tensor, "channels height width"]:
    """Bilinear interpolation of every channel to image size."""
    wide = _across(soft.permute(2, 0, 1), grid.x)
    taps = grid.y.taps()
    return torch.lerp(wide[:, taps.low], wide[:, taps.high], taps.weight[:, None])


def upsample_argmax(soft: SoftMap, grid: Grid) -> Int[Tensor, "height width"]:
    """The strongest channel at every pixel after bilinear interpolation; the lowest channel wins a tie.

    In the kernel where there is one. In torch, only channels with any weight in a strip's rows are interpolated
    there: the others are zero in all of it and could not win (channel 0 is always kept), so hundreds of channels
    cost little more than a few.
    """
    functions = kernel_for(soft)
    if functions is not None:
        return decide(functions, soft, grid)
    maps = soft.permute(2, 0, 1).contiguous()
    alive = (maps > 0).any(dim=2)
    alive[0] = True
    taps = grid.y.taps()
    rows = []
    for start in range(0, grid.y.pixels, _STRIP_PX):
        strip = slice(start, min(start + _STRIP_PX, grid.y.pixels))
        low, high, weight = taps.low[strip], taps.high[strip], taps.weight[strip]
        first, last = int(low[0]), int(high[-1]) + 1
        channels = alive[:, first:last].any(dim=1).nonzero().squeeze(1)
        wide = _across(maps[channels, first:last], grid.x)
        values = torch.lerp(wide[:, low - first], wide[:, high - first], weight[:, None])
        rows.append(channels[_strongest(values)])
    return torch.cat(rows).int()


def _strongest(values: Float[Tensor, "channels rows width"]) -> Int[Tensor, "rows width"]:
    """The first channel with the highest value; torch's argmax over the first dimension takes many times as long."""
    best = values[0]
    winner = torch.zeros(best.shape, dtype=torch.int64, device=best.device)
    for channel in range(1, len(values)):
        winner.masked_fill_(values[channel] > best, channel)
        best = torch.maximum(best, values[channel])
    return winner


def _across(maps: Float[Tensor, "channels rows columns"], axis: Axis) -> Float[Tensor, "channels rows width"]:
    taps = axis.taps()
    return torch.lerp(maps[..., taps.low], maps[..., taps.high], taps.weight)
