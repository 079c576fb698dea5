"""Who votes: for every query cell, its nearest reference cells and their weights ("Propagation by k-NN", section 4).

The search is exact and never builds the N x N affinity. Of equal scores the cell nearest to the query wins, then the
earlier reference, then the earlier cell: in a flat region labels stay where they are, and the result depends neither on
tiles nor on threads. It runs in the compiled kernel where there is one, otherwise in torch; the two differ only in how
the last bits of a score are rounded.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor

from timecycle.kernel import search as compiled
from timecycle.kernel import voting
from timecycle.kernel.library import kernel_for
from timecycle.kernel.search import Found
from timecycle.propagation.best import merged
from timecycle.propagation.tiles import Cells, Seen, search_tiles, weigh_tiles
from timecycle.propagation.window import Window

Weighting = Literal["joint", "per_reference"]


@dataclass(eq=False)
class Packing:
    """A frame's features as the kernel reads them, made once and kept for as long as the frame is remembered."""

    packed: compiled.Packed | None = None

    def of(self, cells: Cells, axes: compiled.Axes) -> compiled.Packed:
        if self.packed is None or self.packed.axes is not axes:
            self.packed = compiled.pack(cells, axes)
        return self.packed


@dataclass(frozen=True, eq=False)
class Reference:
    """One reference feature map, and the window through which queries see it (None: all of it)."""

    cells: Cells
    window: Window | None
    copies: int = 1  # how often it counts in the average of `per_reference`
    packing: Packing = field(default_factory=Packing)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """For each query cell, row by row: who votes and with what weight.

    `index` counts the cells of the first reference, then of the second, and so on. Where a query sees fewer cells
    than it may have neighbours, the places left over have index 0 and weight 0.
    """

    index: Int[Tensor, "queries votes"]
    weight: Float[Tensor, "queries votes"]


def packed_like(cells: Cells, others: Iterable[Packing]) -> Packing:
    """The packing of a frame of the same video as others: along their axes, where any of them has some."""
    axes = next((other.packed.axes for other in others if other.packed), None)
    return Packing() if axes is None else Packing(compiled.pack(cells, axes))


def neighbours(
    query: Cells,
    references: Sequence[Reference],
    *,
    k: int,
    temperature: float,
    weighting: Weighting,
    packing: Packing | None = None,
) -> Neighbours:
    """The k nearest cells of each query with their softmax weights; `packing` is that of the query.

    `joint`: one top k over all references, softmax over the kept; a query's weights sum to one.
    `per_reference`: softmax over every cell a query sees of a reference, the top k of each reference, averaged over
    references (the paper's); a query's weights sum to at most one.
    """
    if weighting == "per_reference":
        return _weigh_per_reference(query, references, k=k, temperature=temperature)
    return _weigh(_search(query, references, k, packing or Packing()), temperature)


def neighbours_of_groups(
    query: Cells,
    references: Sequence[Reference],
    groups: Bool[Tensor, "references groups"],
    *,
    k: int,
    temperature: float,
    packing: Packing | None = None,
) -> list[Neighbours]:
    """`joint` neighbours once for each group of references, scoring every reference only once.

    The k nearest of a group are among the k nearest of each of its references.
    """
    packing = packing or Packing()
    best = [
        _moved(_search(query, [reference], k, packing), first)
        for reference, first in zip(references, _first_indices(references), strict=True)
    ]
    return [
        _weigh(merged([b for b, member in zip(best, group, strict=True) if member], k), temperature)
        for group in groups.T.cpu()
    ]


def vote(found: Neighbours, labels: Sequence[Float[Tensor, "cells channels"]]) -> Float[Tensor, "queries channels"]:
    """Each query's weighted sum of the labels of its neighbours, from one map of labels for each reference."""
    functions = kernel_for(found.weight, *labels)
    if functions is not None and len({label.shape for label in labels}) == 1:
        return voting.vote(functions, found.index.contiguous(), found.weight.contiguous(), labels)
    whole = torch.cat(list(labels))
    if whole.device.type == "mps":  # embedding_bag is missing there in older torch
        return torch.einsum("qv,qvc->qc", found.weight, whole[found.index])
    return F.embedding_bag(found.index, whole, per_sample_weights=found.weight, mode="sum")


def _search(query: Cells, references: Sequence[Reference], k: int, packing: Packing) -> Found:
    functions = kernel_for(query, *(reference.cells for reference in references))
    if functions is None:
        return search_tiles(query, [Seen(reference.cells, reference.window) for reference in references], k)
    # No wider than the maps: a window far larger than they are would only make room for nothing.
    widest = max(cells.shape[1] for cells in (query, *(reference.cells for reference in references)))
    # The query's axes where it has some: they are those of the video it is from.
    axes = packing.packed.axes if packing.packed else compiled.principal_axes(query)
    keys = [
        compiled.Keys(
            reference.packing.of(reference.cells, axes),
            tuple(min(x, widest) for x in reference.window.reach) if reference.window else (),
            first,
        )
        for reference, first in zip(references, _first_indices(references), strict=True)
    ]
    # The first reference is the oldest and the least alike: the others first, for a high threshold early. Those seen
    # whole come last, for the same reason.
    keys = sorted([*keys[1:], *keys[:1]], key=lambda key: not key.reach)
    return compiled.search(functions, packing.of(query, axes), keys, k)


def _first_indices(references: Sequence[Reference]) -> list[int]:
    """Of each reference's first cell among the cells of all."""
    firsts = [0]
    for reference in references[:-1]:
        firsts.append(firsts[-1] + reference.cells.shape[0] * reference.cells.shape[1])
    return firsts


def _moved(best: Found, first: int) -> Found:
    return Found(best.score, best.index + first, best.distance)


def _weigh(best: Found, temperature: float) -> Neighbours:
    return _kept(best, (best.score / temperature).softmax(dim=1))


def _weigh_per_reference(query: Cells, references: Sequence[Reference], *, k: int, temperature: float) -> Neighbours:
    """Always in torch: a sum over everything that is seen cannot leave out what is far from the best."""
    copies = sum(reference.copies for reference in references)
    parts = []
    for reference, first in zip(references, _first_indices(references), strict=True):
        weighed = weigh_tiles(query, Seen(reference.cells, reference.window), k, temperature)
        weight = (weighed.best.score / temperature - weighed.log_total).exp() * (reference.copies / copies)
        parts.append(_kept(_moved(weighed.best, first), weight))
    return Neighbours(torch.cat([p.index for p in parts], dim=1), torch.cat([p.weight for p in parts], dim=1))


def _kept(best: Found, weight: Float[Tensor, "queries k"]) -> Neighbours:
    missing = best.score == -torch.inf
    return Neighbours(best.index.masked_fill(missing, 0), weight.masked_fill(missing, 0))
