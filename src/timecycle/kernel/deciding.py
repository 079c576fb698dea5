"""Decode a label map to pixels with the compiled kernel: interpolation and argmax, plain or guided by the image."""

import ctypes
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from timecycle.grid import Axis, Grid, Taps
from timecycle.kernel.library import address, threads


def decide(
    functions: ctypes.CDLL, soft: Float[Tensor, "rows columns channels"], grid: Grid
) -> Int[Tensor, "height width"]:
    """Return the strongest channel at every pixel after bilinear interpolation; the lowest channel wins a tie."""
    rows, columns, channels = soft.shape
    if (rows, columns) != (grid.y.cells, grid.x.cells) or channels < 1:
        raise ValueError(
            f"a label map of {tuple(soft.shape)} does not fit a grid of {grid.y.cells}x{grid.x.cells} cells"
        )
    soft, down, across = soft.contiguous(), grid.y.taps(), grid.x.taps()  # kept until the call returns
    winner = torch.empty(grid.y.pixels, grid.x.pixels, dtype=torch.int32)
    functions.decide(
        ctypes.c_void_p(address(soft)),
        ctypes.c_int32(columns),
        ctypes.c_int32(channels),
        ctypes.byref(_taps(down)),
        ctypes.byref(_taps(across)),
        ctypes.c_int32(threads()),
        ctypes.c_void_p(address(winner, torch.int32)),
    )
    return winner


def pool_image(
    functions: ctypes.CDLL, image: UInt8[Tensor, "height width 3"], grid: Grid
) -> Float[Tensor, "rows columns 3"]:
    """Return the mean colour (0 to 1) of every cell."""
    if image.shape != (grid.y.pixels, grid.x.pixels, 3):
        raise ValueError(f"an image of {tuple(image.shape)} is not {grid.y.pixels}x{grid.x.pixels}")
    image, down, across = image.contiguous(), _areas(grid.y), _areas(grid.x)
    pooled = torch.empty(grid.y.cells, grid.x.cells, 3)
    functions.pool_image(
        ctypes.c_void_p(address(image, torch.uint8)),
        ctypes.c_int32(grid.x.pixels),
        ctypes.byref(down.structure()),
        ctypes.byref(across.structure()),
        ctypes.c_int32(threads()),
        ctypes.c_void_p(address(pooled)),
    )
    return pooled


def decide_guided(
    functions: ctypes.CDLL,
    values: Float[Tensor, "rows columns channels"],
    divided: Grid,
    colours: Float[Tensor, "divided_rows divided_columns 3"],
    grid: Grid,
    image: UInt8[Tensor, "height width 3"],
    *,
    radius: int,
    epsilon: float,
) -> Int[Tensor, "height width"]:
    """Return the strongest channel at every pixel, guided by the image (see labels/guided.py).

    `divided` has the cells of the label map, and a pixel for each part into which they are divided; `grid` has these
    parts as its cells, whose mean colours (0 to 1) are `colours`, and the image's pixels.
    """
    rows, columns, channels = values.shape
    parts = divided.y.pixels // rows
    if (divided.y.cells, divided.x.cells) != (rows, columns) or channels < 1 or radius < 1:
        raise ValueError(
            f"a label map of {tuple(values.shape)} does not fit a grid of {divided.y.cells}x{divided.x.cells} cells"
        )
    cells = (grid.y.cells, grid.x.cells)
    if (divided.y.pixels, divided.x.pixels) != cells or colours.shape != (*cells, 3):
        raise ValueError(f"colours of {tuple(colours.shape)} do not fit a grid of {cells[0]}x{cells[1]} cells")
    if image.shape != (grid.y.pixels, grid.x.pixels, 3):
        raise ValueError(f"an image of {tuple(image.shape)} is not {grid.y.pixels}x{grid.x.pixels}")
    values, colours, image = values.contiguous(), colours.contiguous(), image.contiguous()
    taps = [axis.taps() for axis in (divided.y, divided.x, grid.y, grid.x)]  # kept until the call returns
    winner = torch.empty(grid.y.pixels, grid.x.pixels, dtype=torch.int32)
    functions.decide_guided(
        ctypes.c_void_p(address(values)),
        ctypes.c_int32(rows),
        ctypes.c_int32(columns),
        ctypes.c_int32(channels),
        ctypes.c_int32(parts),
        ctypes.byref(_taps(taps[0])),
        ctypes.byref(_taps(taps[1])),
        ctypes.c_void_p(address(colours)),
        ctypes.c_int32(radius),
        ctypes.c_float(epsilon),
        ctypes.byref(_taps(taps[2])),
        ctypes.byref(_taps(taps[3])),
        ctypes.c_void_p(address(image, torch.uint8)),
        ctypes.c_int32(threads()),
        ctypes.c_void_p(address(winner, torch.int32)),
    )
    return winner


@dataclass(frozen=True, eq=False)
class _AreaTable:
    """The pixels that each cell of an axis covers, and their weights."""

    first: Int[Tensor, " cells"]
    begin: Int[Tensor, " edges"]
    weight: Float[Tensor, " entries"]

    def structure(self) -> "_Areas":
        addresses = address(self.first, torch.int64), address(self.begin, torch.int64), address(self.weight)
        return _Areas(*addresses, len(self.first))


@lru_cache(maxsize=32)
def _areas(axis: Axis) -> _AreaTable:
    area = axis.area()
    covered = area > 0
    first = covered.int().argmax(dim=1)
    last = area.shape[1] - 1 - covered.flip(1).int().argmax(dim=1)
    begin = torch.cat([torch.zeros(1, dtype=torch.int64), (last - first + 1).cumsum(dim=0)])
    weight = torch.cat([row[a : b + 1] for row, a, b in zip(area, first.tolist(), last.tolist(), strict=True)])
    return _AreaTable(first, begin, weight.contiguous())


class _Areas(ctypes.Structure):
    """`Areas` of kernel.cpp."""

    _fields_ = (
        ("first", ctypes.c_void_p),
        ("begin", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("cells", ctypes.c_int32),
    )


class _Taps(ctypes.Structure):
    """`Taps` of kernel.cpp."""

    _fields_ = (
        ("low", ctypes.c_void_p),
        ("high", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("pixels", ctypes.c_int32),
    )


def _taps(taps: Taps) -> _Taps:
    low, high = address(taps.low, torch.int64), address(taps.high, torch.int64)
    return _Taps(low, high, address(taps.weight), len(taps.weight))
