"""The feature grid: all conversions between pixels and feature cells.

Points are (x, y) with pixel centres at integers; arrays are indexed [y, x]. Cell `c` of an axis is centred on
pixel `first_px + c * stride_px`: `first_px` is 0 for a ResNet with the usual padding and (p - 1) / 2 for a
vision transformer with patches of p pixels. Nothing else in the package may assume a stride.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Axis:
    """One axis of a grid: `cells` feature cells over an image of `pixels` pixels."""

    cells: int
    pixels: int
    stride_px: float
    first_px: float

    def rescaled(self, pixels: int) -> "Axis":
        """Return the axis over the same image resized to `pixels` pixels, with its outer pixel edges aligned."""
        scale = pixels / self.pixels
        return replace(
            self,
            pixels=pixels,
            stride_px=self.stride_px * scale,
            first_px=(self.first_px + 0.5) * scale - 0.5,
        )

    def subdivided(self, parts: int) -> "Axis":
        """Return the axis with every cell divided into `parts` equal ones."""
        stride = self.stride_px / parts
        return replace(
            self,
            cells=self.cells * parts,
            stride_px=stride,
            first_px=self.first_px + (stride - self.stride_px) / 2,
        )

    def pixel_of(self, cell: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the pixel on which a (fractional) cell is centred."""
        return self.first_px + cell * self.stride_px

    def cell_of(self, pixel: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the (fractional) cell centred on a pixel, unclamped beyond the first and last centre."""
        return (pixel - self.first_px) / self.stride_px

    def area(self) -> Float[Tensor, "cells pixels"]:
        """Return the fraction of each cell's extent that each pixel covers; rows sum to one.

        Cells meet half-way between centres and the outer cells extend to the border. Together they tile the image: no
        pixel is lost and none is counted twice. Cells that lie beyond the border, as parts of an outer cell may, repeat
        the pixel at the border.
        """
        return _area(self)

    def extents_px(self) -> Float[Tensor, " cells"]:
        """Return the length of each cell in pixels; the lengths add up to the length of the image."""
        edges = _edges(self)
        return edges[1:] - edges[:-1]

    def taps(self) -> "Taps":
        """Return the interpolation from cells to every pixel; pixels beyond the outer centres take the outer cell."""
        return _taps(self)


@dataclass(frozen=True)
class Taps:
    """Linear interpolation: pixel p is (1 - weight[p]) * cell[low[p]] + weight[p] * cell[high[p]]."""

    low: Int[Tensor, " pixels"]
    high: Int[Tensor, " pixels"]
    weight: Float[Tensor, " pixels"]


@dataclass(frozen=True)
class Grid:
    """The geometry of a feature map over an image of one size."""

    y: Axis
    x: Axis

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.y.cells * self.x.cells

    def centres(self) -> Float[Tensor, "rows columns 2"]:
        """Return the (x, y) of the pixel on which each cell is centred."""
        y = self.y.pixel_of(torch.arange(self.y.cells, dtype=torch.float32))
        x = self.x.pixel_of(torch.arange(self.x.cells, dtype=torch.float32))
        return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)

    def rescaled(self, height_px: int, width_px: int) -> "Grid":
        """Return the same grid over the same image at another size."""
        return Grid(self.y.rescaled(height_px), self.x.rescaled(width_px))

    def subdivided(self, parts: int) -> "Grid":
        """Return the grid with every cell divided into `parts` x `parts` equal ones."""
        return self if parts == 1 else Grid(self.y.subdivided(parts), self.x.subdivided(parts))


def grid_over(height_px: int, width_px: int, *, cells: tuple[int, int], stride_px: float, first_px: float) -> Grid:
    """Return a grid with the same stride and first centre on both axes.

    height_px, width_px: the size of the image.
    cells: (rows, columns) of the feature map.
    stride_px, first_px: cell c is centred on pixel first_px + c * stride_px.
    """
    return Grid(
        Axis(cells[0], height_px, stride_px, first_px),
        Axis(cells[1], width_px, stride_px, first_px),
    )


def _edges(axis: Axis) -> Float[Tensor, " edges"]:
    inner = axis.first_px + (torch.arange(1, axis.cells, dtype=torch.float64) - 0.5) * axis.stride_px
    border = torch.tensor([-0.5, axis.pixels - 0.5], dtype=torch.float64)
    return torch.cat([border[:1], inner.clamp(-0.5, axis.pixels - 0.5), border[1:]])


@lru_cache(maxsize=32)
@torch.inference_mode(False)  # cached tensors are also used where gradients are computed
def _area(axis: Axis) -> Float[Tensor, "cells pixels"]:
    edges = _edges(axis)
    pixel = torch.arange(axis.pixels, dtype=torch.float64)
    low = torch.maximum(edges[:-1, None], pixel - 0.5)
    high = torch.minimum(edges[1:, None], pixel + 0.5)
    overlap = (high - low).clamp_min(0)
    outside = overlap.sum(dim=1) <= 0
    centres = axis.pixel_of(torch.arange(axis.cells, dtype=torch.float64)).round().clamp(0, axis.pixels - 1).long()
    overlap[outside, centres[outside]] = 1
    return (overlap / overlap.sum(dim=1, keepdim=True)).float()


@lru_cache(maxsize=32)
@torch.inference_mode(False)  # cached tensors are also used where gradients are computed
def _taps(axis: Axis) -> Taps:
    cell = axis.cell_of(torch.arange(axis.pixels, dtype=torch.float64)).clamp(0, axis.cells - 1)
    low = cell.floor().clamp_max(max(axis.cells - 2, 0)).long()
    high = (low + 1).clamp_max(axis.cells - 1)
    return Taps(low, high, (cell - low).float())
