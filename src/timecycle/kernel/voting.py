"""Weighted sums of labels, through the kernel."""

import ctypes
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from timecycle.kernel.library import address, threads


def vote(
    functions: ctypes.CDLL,
    index: Int[Tensor, "queries votes"],
    weight: Float[Tensor, "queries votes"],
    labels: Sequence[Float[Tensor, "cells channels"]],
) -> Float[Tensor, "queries channels"]:
    """Each query's weighted sum; `index` counts the cells of the first map, then of the second, and so on."""
    queries, votes = index.shape
    cells, channels = labels[0].shape
    maps = [label.contiguous() for label in labels]
    result = torch.empty(queries, channels)
    functions.vote(
        ctypes.c_void_p(address(index, torch.int64)),
        ctypes.c_void_p(address(weight)),
        ctypes.c_int64(queries),
        ctypes.c_int32(votes),
        (ctypes.c_void_p * len(maps))(*(address(label) for label in maps)),
        ctypes.c_int64(cells),
        ctypes.c_int32(channels),
        ctypes.c_int32(threads()),
        ctypes.c_void_p(address(result)),
    )
    return result
