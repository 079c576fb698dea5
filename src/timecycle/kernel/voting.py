"""Sum weighted votes with the compiled kernel."""

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
    """Return the weighted sum of labels for each query; `index` counts the cells of all label maps in order."""
    queries, votes = index.shape
    cells, channels = labels[0].shape
    _check(index, weight, labels)
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


def _check(index: Tensor, weight: Tensor, labels: Sequence[Tensor]) -> None:
    """Check all shapes and indices: the kernel itself does not check bounds."""
    if weight.shape != index.shape or any(label.shape != labels[0].shape for label in labels):
        raise ValueError(f"votes {tuple(index.shape)} have weights {tuple(weight.shape)}, or label maps differ in size")
    if index.numel() == 0:
        return
    lowest, highest = (int(value) for value in index.aminmax())
    if lowest < 0 or highest >= len(labels) * labels[0].shape[0]:
        raise ValueError(f"votes for cells {lowest} to {highest} of {len(labels) * labels[0].shape[0]}")
