"""Label maps: soft labels on the feature grid, (rows, columns, channels); pooling and upsampling.

A label map is upsampled to image size before the strongest channel is chosen: choosing on the grid would cut every
outline into blocks of the stride.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from timecycle.grid import Axis, Grid
from timecycle.kernel.deciding import decide
from timecycle.kernel.library import kernel_for

LabelValues = Float[Tensor, "rows columns channels"]
Decide = Callable[[LabelValues, Grid], Int[Tensor, "height width"]]  # the strongest channel at every pixel
Extent = Float[Tensor, "rows columns objects"]  # how much of every cell each object covers


@dataclass(frozen=True, eq=False)
class LabelMap:
    """Soft labels of one frame, and the channels that anything is known about, which stay in the memory of the host.

    Every feature cell has `subcells` x `subcells` labels, which are matched together; `grid` is the grid of the labels.
    """

    values: LabelValues
    known: Bool[Tensor, " channels"]
    grid: Grid
    subcells: int = 1

    def __repr__(self) -> str:
        rows, columns, channels = self.values.shape
        return f"LabelMap({columns}x{rows} labels, {int(self.known.sum())} of {channels} channels known)"

    def of_cells(self) -> LabelValues:
        """Return the mean label of every feature cell."""
        return self.values if self.subcells == 1 else _blocked(self.values, self.subcells).mean(dim=2)

    def blocks(self) -> Float[Tensor, "cells labels"]:
        """Return all labels of each feature cell in a row."""
        return _blocked(self.values, self.subcells).flatten(0, 1).flatten(1)


_NOTHING = 1e-6  # cells
_STRIP_PX = 16  # rows decoded at once: bounds memory, and leaves most channels out of most strips


def pool(values: Float[Tensor, "channels height width"], grid: Grid) -> LabelValues:
    """Average pixels over the area of each cell, exact to the fraction of a pixel."""
    return torch.einsum("yh,chw,xw->yxc", grid.y.area(), values, grid.x.area())


def overlap(one: Float[Tensor, "cells objects"], other: Float[Tensor, "cells objects"]) -> Float[Tensor, " objects"]:
    """Return the soft intersection over union of each object; 1 where both are empty."""
    union = torch.maximum(one, other).sum(dim=0)
    return torch.where(union > _NOTHING, torch.minimum(one, other).sum(dim=0) / union.clamp_min(_NOTHING), 1.0)


def from_blocks(blocks: Float[Tensor, "cells labels"], *, rows: int, columns: int, subcells: int) -> LabelValues:
    """Return the label map of feature cells with all their labels in a row; the inverse of `LabelMap.blocks`."""
    split = blocks.reshape(rows, columns, subcells, subcells, -1)
    return split.transpose(1, 2).reshape(rows * subcells, columns * subcells, -1)


def _blocked(values: LabelValues, subcells: int) -> Float[Tensor, "cell_rows cell_columns block channels"]:
    rows, columns, channels = values.shape
    split = values.reshape(rows // subcells, subcells, columns // subcells, subcells, channels)
    return split.transpose(1, 2).flatten(2, 3)


def upsample(values: LabelValues, grid: Grid) -> Float[Tensor, "channels height width"]:
    """Interpolate every channel bilinearly to image size."""
    wide = _upsample_rows(values.permute(2, 0, 1), grid.x)
    taps = grid.y.taps()
    return torch.lerp(wide[:, taps.low], wide[:, taps.high], taps.weight[:, None])


def upsample_argmax(values: LabelValues, grid: Grid) -> Int[Tensor, "height width"]:
    """Return the strongest channel at every pixel after bilinear interpolation; the lowest channel wins a tie.

    Uses the compiled kernel where there is one. In torch, a strip of rows interpolates only the channels with weight
    in it: the others are zero there and cannot win (channel 0 is always kept). Hundreds of channels then cost little
    more than a few.
    """
    functions = kernel_for(values)
    if functions is not None:
        return decide(functions, values, grid)
    maps = values.permute(2, 0, 1).contiguous()
    has_weight = (maps > 0).any(dim=2)
    has_weight[0] = True
    taps = grid.y.taps()
    rows = []
    for start in range(0, grid.y.pixels, _STRIP_PX):
        strip = slice(start, min(start + _STRIP_PX, grid.y.pixels))
        low, high, weight = taps.low[strip], taps.high[strip], taps.weight[strip]
        first, last = int(low[0]), int(high[-1]) + 1
        channels = has_weight[:, first:last].any(dim=1).nonzero().squeeze(1)
        wide = _upsample_rows(maps[channels, first:last], grid.x)
        pixels = torch.lerp(wide[:, low - first], wide[:, high - first], weight[:, None])
        rows.append(channels[_strongest(pixels)])
    return torch.cat(rows).int()


def _strongest(values: Float[Tensor, "channels rows width"]) -> Int[Tensor, "rows width"]:
    """Return the first channel with the highest value; torch's argmax over the first dimension is many times slower."""
    best = values[0]
    winner = torch.zeros(best.shape, dtype=torch.int64, device=best.device)
    for channel in range(1, len(values)):
        winner.masked_fill_(values[channel] > best, channel)
        best = torch.maximum(best, values[channel])
    return winner


def _upsample_rows(maps: Float[Tensor, "channels rows columns"], axis: Axis) -> Float[Tensor, "channels rows width"]:
    taps = axis.taps()
    return torch.lerp(maps[..., taps.low], maps[..., taps.high], taps.weight)
