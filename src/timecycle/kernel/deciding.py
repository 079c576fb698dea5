"""Decode a label map to pixels with the compiled kernel: interpolation and argmax in one pass."""

import ctypes

import torch
from jaxtyping import Float, Int
from torch import Tensor

from timecycle.grid import Grid, Taps
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
