"""Search the top-k keys of every query with the compiled kernel."""

import ctypes
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, Int
from torch import Tensor

from timecycle.kernel.library import address, threads

_PANEL = 16  # PANEL of kernel.cpp
_FIRST_STAGE = 32  # FIRST_STAGE of kernel.cpp

Features = Float[Tensor, "rows columns channels"]
Axes = Float[Tensor, "channels channels"]


@dataclass(frozen=True, eq=False)
class Packed:
    """A feature map in the kernel's layout: as it is, and rotated to `axes` in panels of 16 columns."""

    cells: Features
    turned: Float[Tensor, "rows panels values 16"]  # the rotated features, then the remaining norm after each stage
    axes: Axes


@dataclass(frozen=True, eq=False)
class Keys:
    """A reference frame and its window."""

    packed: Packed
    half_widths: tuple[int, ...]  # of the window, by distance in rows; empty: no window
    first_index: int  # index of its first cell among the cells of all references


@dataclass(frozen=True, eq=False)
class TopK:
    """The top-k keys of each query, best first; missing keys have the score -inf."""

    score: Float[Tensor, "queries k"]
    index: Int[Tensor, "queries k"]
    distance: Int[Tensor, "queries k"]  # squared, in cells


def principal_axes(cells: Features) -> Axes:
    """Return the principal axes of the features, the longest first: a few of them carry most of a feature's norm.

    They only affect the speed of a search, never its result, so the axes of one frame serve a whole video.
    """
    flat = cells.flatten(0, 1).double()
    ascending: Tensor = torch.linalg.eigh(flat.T @ flat).eigenvectors.float()
    return ascending.flip(1).contiguous()


def pack(cells: Features, axes: Axes) -> Packed:
    """Rotate features to orthonormal axes, append the remaining norms, and store them in the kernel's layout."""
    rows, columns, _ = cells.shape
    turned = _rotate(cells, axes)
    values = torch.cat([turned, _remaining_norms(turned)], dim=-1)
    padded = F.pad(values, (0, 0, 0, -columns % _PANEL)).view(rows, -1, _PANEL, values.shape[-1])
    return Packed(cells.contiguous(), padded.transpose(2, 3).contiguous(), axes)


def _rotate(cells: Features, axes: Axes) -> Features:
    """Rotate in full fp32, whatever precision torch is set to: the margin of `_remaining_norms` relies on it."""
    reduced = torch.get_float32_matmul_precision() != "highest" or "DNNL_DEFAULT_FPMATH_MODE" in os.environ
    with torch.autocast("cpu", enabled=False):
        return (cells.double() @ axes.double()).float() if reduced else cells @ axes


def _remaining_norms(turned: Features) -> Float[Tensor, "rows columns stages"]:
    """Return the norm of what remains of every feature after the first 32, 64, 128 ... axes, and after all.

    A margin is added: the product of two margins is several times the rounding error of a sum of so many products.
    """
    channels = turned.shape[-1]
    ends = [channels]
    while (end := _FIRST_STAGE << (len(ends) - 1)) < channels:
        ends.insert(-1, end)
    squares = turned.square()
    remaining = [squares[..., end:].sum(dim=-1) for end in ends]
    margin = 2 * math.sqrt(channels * torch.finfo(torch.float32).eps)
    return torch.stack(remaining, dim=-1).sqrt() + margin * squares.sum(dim=-1, keepdim=True).sqrt()


def search(functions: ctypes.CDLL, query: Packed, keys: Sequence[Keys], k: int) -> TopK:
    """Find the top-k keys of every query over all references; their order affects only the speed."""
    _check(query, keys, k)
    queries = query.cells.shape[0] * query.cells.shape[1]
    top = TopK(
        torch.empty(queries, k),
        torch.empty(queries, k, dtype=torch.int64),
        torch.empty(queries, k, dtype=torch.int32),
    )
    windows = [(ctypes.c_int32 * len(key.half_widths))(*key.half_widths) for key in keys]  # kept until the call returns
    references = [
        _Reference(_map(key.packed), ctypes.cast(window, ctypes.c_void_p), len(key.half_widths), key.first_index)
        for key, window in zip(keys, windows, strict=True)
    ]
    functions.search(
        ctypes.byref(_map(query)),
        (_Reference * len(references))(*references),
        ctypes.c_int32(len(keys)),
        ctypes.c_int32(k),
        ctypes.c_int32(threads()),
        ctypes.c_void_p(address(top.score)),
        ctypes.c_void_p(address(top.index, torch.int64)),
        ctypes.c_void_p(address(top.distance, torch.int32)),
    )
    return top


def _check(query: Packed, keys: Sequence[Keys], k: int) -> None:
    """Check all shapes: the kernel itself does not check bounds."""
    if k < 1 or not keys:
        raise ValueError(f"the kernel was asked for {k} neighbours among {len(keys)} references")
    for packed in (query, *(key.packed for key in keys)):
        rows, columns, channels = packed.cells.shape
        stages = packed.turned.shape[2] - channels
        if min(rows, columns, channels) < 1 or channels != query.cells.shape[2]:
            raise ValueError(f"the kernel cannot match {tuple(query.cells.shape)} with {tuple(packed.cells.shape)}")
        if stages < 1 or packed.turned.shape != (rows, -(-columns // _PANEL), channels + stages, _PANEL):
            raise ValueError(f"features of {tuple(packed.cells.shape)} were packed as {tuple(packed.turned.shape)}")
    if any(min(key.half_widths, default=0) < 0 for key in keys):
        raise ValueError("a window has a negative width")


class _Map(ctypes.Structure):
    """`Map` of kernel.cpp."""

    _fields_ = (
        ("cells", ctypes.c_void_p),
        ("turned", ctypes.c_void_p),
        ("rows", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("channels", ctypes.c_int32),
        ("stages", ctypes.c_int32),
    )


class _Reference(ctypes.Structure):
    """`Reference` of kernel.cpp."""

    _fields_ = (
        ("map", _Map),
        ("reach", ctypes.c_void_p),
        ("reach_rows", ctypes.c_int32),
        ("first_index", ctypes.c_int64),
    )


def _map(packed: Packed) -> _Map:
    rows, columns, channels = packed.cells.shape
    stages = packed.turned.shape[2] - channels
    return _Map(address(packed.cells), address(packed.turned), rows, columns, channels, stages)
