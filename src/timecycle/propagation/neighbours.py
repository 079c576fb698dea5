"""Who votes: for every query cell, its nearest reference cells and their weights ("Propagation by k-NN", section 4).

The search is exact and never builds the N x N affinity: queries are taken tile by tile against the part of each
reference that the tile's windows reach. Equal scores are ordered by position (earlier reference first, then row by
row), so the result depends neither on tiles nor on threads nor on how the search is implemented.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor

Cells = Float[Tensor, "rows columns channels"]
Shape = Literal["disc", "square"]
Weighting = Literal["joint", "per_reference"]

_TILE = 8  # cells: larger tiles waste work outside the windows, smaller ones make too many matrix products


@dataclass(frozen=True)
class Window:
    """A query sees only reference cells this near, in cells: |d| <= radius (disc) or |dx|, |dy| <= radius."""

    radius: float
    shape: Shape = "disc"


@dataclass(frozen=True, eq=False)
class Reference:
    """One reference feature map, and the window through which queries see it (None: all of it)."""

    cells: Cells
    window: Window | None
    copies: int = 1  # how often it counts in the average of `per_reference`


@dataclass(frozen=True, eq=False)
class Neighbours:
    """For each query cell, row by row: who votes and with what weight.

    `index` counts the cells of the first reference, then of the second, and so on. Where a query sees fewer cells
    than it may have neighbours, the places left over have index 0 and weight 0.
    """

    index: Int[Tensor, "queries votes"]
    weight: Float[Tensor, "queries votes"]


def neighbours(
    query: Cells, references: Sequence[Reference], *, k: int, temperature: float, weighting: Weighting
) -> Neighbours:
    """The k nearest cells of each query with their softmax weights.

    `joint`: one top k over all references, softmax over the kept; a query's weights sum to one.
    `per_reference`: softmax over every cell a query sees of a reference, the top k of each reference, averaged over
    references (the paper's); a query's weights sum to at most one.
    """
    rows, columns, _ = query.shape
    weigh = _weigh_jointly if weighting == "joint" else _weigh_per_reference
    votes = k if weighting == "joint" else k * len(references)
    index = torch.empty(rows, columns, votes, dtype=torch.long, device=query.device)
    weight = torch.empty(rows, columns, votes, dtype=query.dtype, device=query.device)
    for tile in _tiles(rows, columns):
        found = weigh(_seen(query, tile, references), k=k, temperature=temperature)
        height, width = tile.rows.stop - tile.rows.start, tile.columns.stop - tile.columns.start
        index[tile.rows, tile.columns] = found.index.reshape(height, width, votes)
        weight[tile.rows, tile.columns] = found.weight.reshape(height, width, votes)
    return Neighbours(index.flatten(0, 1), weight.flatten(0, 1))


def vote(found: Neighbours, labels: Float[Tensor, "cells channels"]) -> Float[Tensor, "queries channels"]:
    """Each query's weighted sum of the labels of its neighbours."""
    return F.embedding_bag(found.index, labels, per_sample_weights=found.weight, mode="sum")


@dataclass(frozen=True)
class _Tile:
    rows: slice
    columns: slice


@dataclass(frozen=True, eq=False)
class _Seen:
    """What a tile's queries see of one reference: scores (-inf outside the window) and the cells' positions."""

    score: Float[Tensor, "queries keys"]
    index: Int[Tensor, " keys"]
    copies: int


def _tiles(rows: int, columns: int) -> Iterator[_Tile]:
    for top in range(0, rows, _TILE):
        for left in range(0, columns, _TILE):
            yield _Tile(slice(top, min(top + _TILE, rows)), slice(left, min(left + _TILE, columns)))


def _seen(query: Cells, tile: _Tile, references: Sequence[Reference]) -> list[_Seen]:
    cells = query[tile.rows, tile.columns].flatten(0, 1)
    offset = 0
    seen = []
    for reference in references:
        rows, columns, _ = reference.cells.shape
        window = reference.window
        y = _reach(tile.rows, window, rows)
        x = _reach(tile.columns, window, columns)
        score = cells @ reference.cells[y, x].flatten(0, 1).T
        if window is not None:
            score.masked_fill_(_outside(tile, y, x, window).to(score.device), -torch.inf)
        position = torch.arange(y.start, y.stop)[:, None] * columns + torch.arange(x.start, x.stop)
        seen.append(_Seen(score, (position.flatten() + offset).to(score.device), reference.copies))
        offset += rows * columns
    return seen


def _reach(span: slice, window: Window | None, length: int) -> slice:
    if window is None:
        return slice(0, length)
    radius = math.floor(window.radius)
    return slice(max(span.start - radius, 0), min(span.stop + radius, length))


def _outside(tile: _Tile, y: slice, x: slice, window: Window) -> Bool[Tensor, "queries keys"]:
    dy = torch.arange(tile.rows.start, tile.rows.stop)[:, None] - torch.arange(y.start, y.stop)
    dx = torch.arange(tile.columns.start, tile.columns.stop)[:, None] - torch.arange(x.start, x.stop)
    if window.shape == "disc":
        outside = (dy**2)[:, None, :, None] + (dx**2)[None, :, None, :] > window.radius**2
    else:
        outside = (dy.abs() > window.radius)[:, None, :, None] | (dx.abs() > window.radius)[None, :, None, :]
    return outside.flatten(2, 3).flatten(0, 1)


def _weigh_jointly(seen: list[_Seen], *, k: int, temperature: float) -> Neighbours:
    score = torch.cat([s.score for s in seen], dim=1)
    index = torch.cat([s.index for s in seen])
    best = _best(score, index, k)
    return _kept(best, (best.score / temperature).softmax(dim=1))


def _weigh_per_reference(seen: list[_Seen], *, k: int, temperature: float) -> Neighbours:
    copies = sum(s.copies for s in seen)
    parts = []
    for s in seen:
        best = _best(s.score, s.index, k)
        total = (s.score / temperature).logsumexp(dim=1, keepdim=True)
        parts.append(_kept(best, (best.score / temperature - total).exp() * (s.copies / copies)))
    return Neighbours(torch.cat([p.index for p in parts], dim=1), torch.cat([p.weight for p in parts], dim=1))


@dataclass(frozen=True, eq=False)
class _Best:
    score: Float[Tensor, "queries k"]  # best first; -inf where there are fewer than k
    index: Int[Tensor, "queries k"]


def _kept(best: _Best, weight: Float[Tensor, "queries k"]) -> Neighbours:
    missing = best.score == -torch.inf
    return Neighbours(best.index.masked_fill(missing, 0), weight.masked_fill(missing, 0))


def _best(score: Float[Tensor, "queries keys"], index: Int[Tensor, " keys"], k: int) -> _Best:
    """The k best keys of each query; of equal scores the earlier key."""
    keys = score.shape[1]
    if keys <= k:
        place = torch.arange(keys, device=score.device).expand_as(score)
    else:
        top = score.topk(k + 1, dim=1)
        place = top.indices[:, :k]
        # topk may keep any of several equal scores: where the last kept equals the first dropped, choose anew.
        tied = (top.values[:, k - 1] == top.values[:, k]) & (top.values[:, k] > -torch.inf)
        if bool(tied.any()):
            place = place.clone()
            place[tied] = _earliest(score[tied], top.values[tied, k - 1 : k], k)
    place = place.sort(dim=1).values
    ordered = score.gather(1, place).sort(dim=1, descending=True, stable=True)
    chosen = index[place.gather(1, ordered.indices)]
    missing = k - place.shape[1]
    return _Best(F.pad(ordered.values, (0, max(missing, 0)), value=-torch.inf), F.pad(chosen, (0, max(missing, 0))))


def _earliest(
    score: Float[Tensor, "queries keys"], last: Float[Tensor, "queries 1"], k: int
) -> Int[Tensor, "queries k"]:
    """Places of the k best keys: all above `last`, then the earliest that equal it."""
    above, equal = score > last, score == last
    room = k - above.sum(dim=1, keepdim=True)
    keep = above | (equal & (equal.cumsum(dim=1) <= room))
    return keep.nonzero()[:, 1].reshape(-1, k)
