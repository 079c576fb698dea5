"""The k nearest cells of every query, through the kernel."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, Int
from torch import Tensor

from timecycle.kernel.library import address, structures, threads

_PANEL = 16  # PANEL of kernel.cpp


@dataclass(frozen=True, eq=False)
class Packed:
    """Features as the kernel reads them: in panels of neighbouring columns."""

    values: Float[Tensor, "rows panels channels 16"]
    columns: int


@dataclass(frozen=True, eq=False)
class Keys:
    """A reference: its cells, packed and as they are, and how far to either side queries see on each row."""

    cells: Float[Tensor, "rows columns channels"]
    packed: Packed
    reach: tuple[int, ...]  # by distance in rows; empty: queries see everything
    first_index: int  # of its first cell among the cells of all references


@dataclass(frozen=True, eq=False)
class Found:
    """The k best of each query, best first; where there are fewer, score -inf."""

    score: Float[Tensor, "queries k"]
    index: Int[Tensor, "queries k"]
    distance: Int[Tensor, "queries k"]  # squared, in cells


def pack(cells: Float[Tensor, "rows columns channels"]) -> Packed:
    rows, columns, channels = cells.shape
    padded = F.pad(cells, (0, 0, 0, -columns % _PANEL))
    return Packed(padded.view(rows, -1, _PANEL, channels).transpose(2, 3).contiguous(), columns)


def search(functions: ctypes.CDLL, query: Packed, keys: Sequence[Keys], k: int) -> Found:
    """The k nearest cells over all references. The order of the references changes only how long it takes."""
    rows = query.values.shape[0]
    found = Found(
        torch.empty(rows * query.columns, k),
        torch.empty(rows * query.columns, k, dtype=torch.int64),
        torch.empty(rows * query.columns, k, dtype=torch.int32),
    )
    reaches = [(ctypes.c_int32 * len(key.reach))(*key.reach) for key in keys]  # alive until the call is over
    references = [
        _Reference(
            _packed(key.packed),
            address(key.cells),
            ctypes.cast(reach, ctypes.c_void_p),
            len(key.reach),
            key.first_index,
        )
        for key, reach in zip(keys, reaches, strict=True)
    ]
    functions.search(
        ctypes.byref(_packed(query)),
        structures(_Reference, references),
        ctypes.c_int32(len(keys)),
        ctypes.c_int32(k),
        ctypes.c_int32(threads()),
        ctypes.c_void_p(address(found.score)),
        ctypes.c_void_p(address(found.index)),
        ctypes.c_void_p(address(found.distance)),
    )
    return found


class _Packed(ctypes.Structure):
    """`Packed` of kernel.cpp."""

    _fields_ = (
        ("values", ctypes.c_void_p),
        ("rows", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("channels", ctypes.c_int32),
    )


class _Reference(ctypes.Structure):
    """`Reference` of kernel.cpp."""

    _fields_ = (
        ("packed", _Packed),
        ("cells", ctypes.c_void_p),
        ("reach", ctypes.c_void_p),
        ("reach_rows", ctypes.c_int32),
        ("first_index", ctypes.c_int64),
    )


def _packed(packed: Packed) -> _Packed:
    rows, _, channels, _ = packed.values.shape
    return _Packed(address(packed.values), rows, packed.columns, channels)
