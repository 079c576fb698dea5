"""The top-k reference cells of every query cell, and their weights ("Propagation by k-NN", section 4 of the paper).

The search is exact and never builds the N x N affinity. Ties are broken by distance from the query, then by reference,
then by cell: in a uniform region labels stay where they are, and the result depends neither on tiles nor on threads. It
runs in the compiled kernel where there is one, otherwise in torch; the two differ only in the rounding of the last bits
of a score.
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
from timecycle.kernel.search import TopK
from timecycle.matching.tiles import Features, WindowedFeatures, merge_matches, search_tiles, weigh_tiles
from timecycle.matching.window import Window

Weighting = Literal["joint", "per_reference"]


@dataclass(eq=False)
class Packing:
    """A frame's features in the kernel's layout, made once and kept for as long as the frame is in memory."""

    packed: compiled.Packed | None = None

    def of(self, cells: Features, axes: compiled.Axes) -> compiled.Packed:
        if self.packed is None or self.packed.axes is not axes:
            self.packed = compiled.pack(cells, axes)
        return self.packed


@dataclass(frozen=True, eq=False)
class Reference:
    """A reference feature map, and the window in which queries search it (None: all of it)."""

    features: Features
    window: Window | None
    copies: int = 1  # how often it counts in the mean of `per_reference`
    packing: Packing = field(default_factory=Packing)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """For each query cell, row by row: its matched reference cells and their weights.

    `index` counts the cells of the first reference, then of the second, and so on. Where a query's windows hold fewer
    cells than k, the rest have index 0 and weight 0.
    """

    index: Int[Tensor, "queries votes"]
    weight: Float[Tensor, "queries votes"]


def packed_like(cells: Features, others: Iterable[Packing]) -> Packing:
    """Pack a frame along the axes of other frames of the same video, where any of them has been packed."""
    axes = next((other.packed.axes for other in others if other.packed), None)
    return Packing() if axes is None else Packing(compiled.pack(cells, axes))


def neighbours(
    query: Features,
    references: Sequence[Reference],
    *,
    k: int,
    temperature: float,
    weighting: Weighting,
    packing: Packing | None = None,
) -> Neighbours:
    """Find the top-k cells of each query with their softmax weights; `packing` is that of the query.

    `joint`: one top k over all references, softmax over these; a query's weights sum to one.
    `per_reference`: softmax over the whole window in each reference, then its top k, averaged over references (as in
    the paper); a query's weights sum to at most one.
    """
    if weighting == "per_reference":
        return _weigh_per_reference(query, references, k=k, temperature=temperature)
    return _with_weights(_search(query, references, k, packing or Packing()), temperature)


def neighbours_of_groups(
    query: Features,
    references: Sequence[Reference],
    groups: Bool[Tensor, "references groups"],
    *,
    k: int,
    temperature: float,
    packing: Packing | None = None,
) -> list[Neighbours]:
    """Find `joint` neighbours for each group of references, scoring every reference only once.

    The top k of a group are among the top k of each of its references.
    """
    packing = packing or Packing()
    best = [
        _offset_index(_search(query, [reference], k, packing), first)
        for reference, first in zip(references, _first_indices(references), strict=True)
    ]
    return [
        _with_weights(merge_matches([b for b, member in zip(best, group, strict=True) if member], k), temperature)
        for group in groups.T.cpu()
    ]


def aggregate_labels(
    matches: Neighbours, labels: Sequence[Float[Tensor, "cells channels"]]
) -> Float[Tensor, "queries channels"]:
    """Sum the labels of each query's neighbours by weight, from one label map for each reference."""
    functions = kernel_for(matches.weight, *labels)
    if functions is not None and len({label.shape for label in labels}) == 1:
        return voting.vote(functions, matches.index.contiguous(), matches.weight.contiguous(), labels)
    whole = torch.cat(list(labels))
    if whole.device.type == "mps":  # embedding_bag is missing there in older torch
        return torch.einsum("qv,qvc->qc", matches.weight, whole[matches.index])
    return F.embedding_bag(matches.index, whole, per_sample_weights=matches.weight, mode="sum")


def _search(query: Features, references: Sequence[Reference], k: int, packing: Packing) -> TopK:
    functions = kernel_for(query, *(reference.features for reference in references))
    if functions is None:
        return search_tiles(
            query, [WindowedFeatures(reference.features, reference.window) for reference in references], k
        )
    # No wider than the feature maps: a window far larger than they are would only cost memory.
    widest = max(cells.shape[1] for cells in (query, *(reference.features for reference in references)))
    # The axes of the query where it has been packed: they are shared by all frames of its video.
    axes = packing.packed.axes if packing.packed else compiled.principal_axes(query)
    keys = [
        compiled.Keys(
            reference.packing.of(reference.features, axes),
            tuple(min(x, widest) for x in reference.window.half_widths) if reference.window else (),
            first,
        )
        for reference, first in zip(references, _first_indices(references), strict=True)
    ]
    # The first reference is the oldest and the least similar: the others are searched first, which raises the pruning
    # threshold early. References without a window come last, for the same reason.
    keys = sorted([*keys[1:], *keys[:1]], key=lambda key: not key.half_widths)
    return compiled.search(functions, packing.of(query, axes), keys, k)


def _first_indices(references: Sequence[Reference]) -> list[int]:
    """Return the index of each reference's first cell among the cells of all references."""
    firsts = [0]
    for reference in references[:-1]:
        firsts.append(firsts[-1] + reference.features.shape[0] * reference.features.shape[1])
    return firsts


def _offset_index(best: TopK, first: int) -> TopK:
    return TopK(best.score, best.index + first, best.distance)


def _with_weights(best: TopK, temperature: float) -> Neighbours:
    return _without_missing(best, (best.score / temperature).softmax(dim=1))


def _weigh_per_reference(query: Features, references: Sequence[Reference], *, k: int, temperature: float) -> Neighbours:
    """Always in torch: a softmax over the whole window cannot skip cells far from the best."""
    copies = sum(reference.copies for reference in references)
    parts = []
    for reference, first in zip(references, _first_indices(references), strict=True):
        weighed = weigh_tiles(query, WindowedFeatures(reference.features, reference.window), k, temperature)
        weight = (weighed.best.score / temperature - weighed.log_total).exp() * (reference.copies / copies)
        parts.append(_without_missing(_offset_index(weighed.best, first), weight))
    return Neighbours(torch.cat([p.index for p in parts], dim=1), torch.cat([p.weight for p in parts], dim=1))


def _without_missing(best: TopK, weight: Float[Tensor, "queries k"]) -> Neighbours:
    missing = best.score == -torch.inf
    return Neighbours(best.index.masked_fill(missing, 0), weight.masked_fill(missing, 0))
