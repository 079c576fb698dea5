"""The k nearest cells of every query, through the kernel."""

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

Cells = Float[Tensor, "rows columns channels"]
Axes = Float[Tensor, "channels channels"]


@dataclass(frozen=True, eq=False)
class Packed:
    """Features as the kernel reads them: as they are, and turned to some axes, in panels of neighbouring columns."""

    cells: Cells
    turned: Float[Tensor, "rows panels values 16"]  # along each axis, then what remains after each stage
    axes: Axes


@dataclass(frozen=True, eq=False)
class Keys:
    """A reference, and how far to either side queries see on each row."""

    packed: Packed
    reach: tuple[int, ...]  # by distance in rows; empty: queries see everything
    first_index: int  # of its first cell among the cells of all references


@dataclass(frozen=True, eq=False)
class Found:
    """The k best of each query, best first; where there are fewer, score -inf."""

    score: Float[Tensor, "queries k"]
    index: Int[Tensor, "queries k"]
    distance: Int[Tensor, "queries k"]  # squared, in cells


def principal_axes(cells: Cells) -> Axes:
    """The axes along which features vary most, first the longest: after few of them little of a feature remains.

    They decide how long a search takes and nothing else, so those of one frame do for a whole video.
    """
    flat = cells.flatten(0, 1).double()
    shortest_first: Tensor = torch.linalg.eigh(flat.T @ flat).eigenvectors.float()
    return shortest_first.flip(1).contiguous()


def pack(cells: Cells, axes: Axes) -> Packed:
    """Features turned to axes that stand at right angles to each other, with the lengths that remain."""
    rows, columns, _ = cells.shape
    turned = _turned(cells, axes)
    values = torch.cat([turned, _remaining(turned)], dim=-1)
    padded = F.pad(values, (0, 0, 0, -columns % _PANEL)).view(rows, -1, _PANEL, values.shape[-1])
    return Packed(cells.contiguous(), padded.transpose(2, 3).contiguous(), axes)


def _turned(cells: Cells, axes: Axes) -> Cells:
    """The products in no less than fp32, whatever torch was told to be content with: the margin below counts on it."""
    rough = torch.get_float32_matmul_precision() != "highest" or "DNNL_DEFAULT_FPMATH_MODE" in os.environ
    with torch.autocast("cpu", enabled=False):
        return (cells.double() @ axes.double()).float() if rough else cells @ axes


def _remaining(turned: Cells) -> Float[Tensor, "rows columns stages"]:
    """The length of what remains of every feature after the first 32, 64, 128 ... axes, and after all.

    With a margin: the product of two margins is several times what rounding takes from a sum of so many products.
    """
    channels = turned.shape[-1]
    ends = [channels]
    while (before := _FIRST_STAGE << (len(ends) - 1)) < channels:
        ends.insert(-1, before)
    squares = turned.square()
    lengths = [squares[..., end:].sum(dim=-1) for end in ends]
    margin = 2 * math.sqrt(channels * torch.finfo(torch.float32).eps)
    return torch.stack(lengths, dim=-1).sqrt() + margin * squares.sum(dim=-1, keepdim=True).sqrt()


def search(functions: ctypes.CDLL, query: Packed, keys: Sequence[Keys], k: int) -> Found:
    """The k nearest cells over all references. The order of the references changes only how long it takes."""
    _check(query, keys, k)
    queries = query.cells.shape[0] * query.cells.shape[1]
    found = Found(
        torch.empty(queries, k),
        torch.empty(queries, k, dtype=torch.int64),
        torch.empty(queries, k, dtype=torch.int32),
    )
    reaches = [(ctypes.c_int32 * len(key.reach))(*key.reach) for key in keys]  # alive until the call is over
    references = [
        _Reference(_map(key.packed), ctypes.cast(reach, ctypes.c_void_p), len(key.reach), key.first_index)
        for key, reach in zip(keys, reaches, strict=True)
    ]
    functions.search(
        ctypes.byref(_map(query)),
        (_Reference * len(references))(*references),
        ctypes.c_int32(len(keys)),
        ctypes.c_int32(k),
        ctypes.c_int32(threads()),
        ctypes.c_void_p(address(found.score)),
        ctypes.c_void_p(address(found.index, torch.int64)),
        ctypes.c_void_p(address(found.distance, torch.int32)),
    )
    return found


def _check(query: Packed, keys: Sequence[Keys], k: int) -> None:
    """The kernel reads as much memory as it is told: what does not fit is refused here."""
    if k < 1 or not keys:
        raise ValueError(f"the kernel was asked for {k} neighbours among {len(keys)} references")
    for packed in (query, *(key.packed for key in keys)):
        rows, columns, channels = packed.cells.shape
        stages = packed.turned.shape[2] - channels
        if min(rows, columns, channels) < 1 or channels != query.cells.shape[2]:
            raise ValueError(f"the kernel cannot match {tuple(query.cells.shape)} with {tuple(packed.cells.shape)}")
        if stages < 1 or packed.turned.shape != (rows, -(-columns // _PANEL), channels + stages, _PANEL):
            raise ValueError(f"features of {tuple(packed.cells.shape)} were packed as {tuple(packed.turned.shape)}")
    if any(min(key.reach, default=0) < 0 for key in keys):
        raise ValueError("a window reaches less than nothing")


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
