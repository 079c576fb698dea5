"""Who votes: for every query cell, its nearest reference cells and their weights ("Propagation by k-NN", section 4).

The search is exact and never builds the N x N affinity: queries are taken tile by tile against the part of each
reference that the tile's windows reach. Of equal scores the cell nearest to the query wins, then the earlier reference,
then the earlier cell: in a flat region labels stay where they are, and the result depends neither on tiles nor on
threads nor on how the search is implemented.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor

Cells = Float[Tensor, "rows columns channels"]
Shape = Literal["disc", "square"]
Weighting = Literal["joint", "per_reference"]

_TILE = 8  # cells: larger tiles waste work outside the windows, smaller ones make too many matrix products
_CPU = torch.device("cpu")


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
    weigh = _weigh_jointly if weighting == "joint" else _weigh_per_reference

    def search(seen: list[_Seen]) -> list[Neighbours]:
        return [weigh(seen, k=k, temperature=temperature)]

    return _search_tiles(query, references, search)[0]


def neighbours_of_groups(
    query: Cells,
    references: Sequence[Reference],
    groups: Bool[Tensor, "references groups"],
    *,
    k: int,
    temperature: float,
) -> list[Neighbours]:
    """`joint` neighbours once for each group of references, scoring every reference only once.

    The k nearest of a group are among the k nearest of each of its references.
    """

    def search(seen: list[_Seen]) -> list[Neighbours]:
        best = [_best([s], k) for s in seen]
        return [
            _kept(found, (found.score / temperature).softmax(dim=1))
            for group in groups.T.cpu()
            for found in [_merged([b for b, member in zip(best, group, strict=True) if member], k)]
        ]

    return _search_tiles(query, references, search)


def vote(found: Neighbours, labels: Float[Tensor, "cells channels"]) -> Float[Tensor, "queries channels"]:
    """Each query's weighted sum of the labels of its neighbours."""
    if labels.device.type == "mps":  # embedding_bag is missing there in older torch
        return torch.einsum("qv,qvc->qc", found.weight, labels[found.index])
    return F.embedding_bag(found.index, labels, per_sample_weights=found.weight, mode="sum")


@dataclass(frozen=True)
class _Tile:
    rows: slice
    columns: slice


@dataclass(frozen=True, eq=False)
class _Reach:
    """The part of a reference that a tile's queries see."""

    rows: slice
    columns: slice
    y: Int[Tensor, " keys"]
    x: Int[Tensor, " keys"]
    barred: Float[Tensor, "queries keys"] | None  # -inf where a key is outside the query's window, 0 inside


@dataclass(frozen=True, eq=False)
class _Seen:
    """A tile's queries and the keys they see of some references: scores (-inf outside the window) and places."""

    score: Float[Tensor, "queries keys"]
    index: Int[Tensor, " keys"]
    y: Int[Tensor, " keys"]
    x: Int[Tensor, " keys"]
    query_y: Int[Tensor, "queries 1"]
    query_x: Int[Tensor, "queries 1"]
    copies: int


def _search_tiles(
    query: Cells, references: Sequence[Reference], search: Callable[[list[_Seen]], list[Neighbours]]
) -> list[Neighbours]:
    rows, columns, _ = query.shape
    results: list[Neighbours] = []
    for tile in _tiles(rows, columns):
        found = search(_seen(query, tile, references))
        if not results:
            results = [_blank(rows, columns, part) for part in found]
        for whole, part in zip(results, found, strict=True):
            place = (tile.rows, tile.columns)
            shape = (tile.rows.stop - tile.rows.start, tile.columns.stop - tile.columns.start, -1)
            whole.index.view(rows, columns, -1)[place] = part.index.reshape(shape)
            whole.weight.view(rows, columns, -1)[place] = part.weight.reshape(shape)
    return results


def _blank(rows: int, columns: int, like: Neighbours) -> Neighbours:
    votes = like.index.shape[1]
    return Neighbours(like.index.new_empty(rows * columns, votes), like.weight.new_empty(rows * columns, votes))


def _tiles(rows: int, columns: int) -> Iterator[_Tile]:
    for top in range(0, rows, _TILE):
        for left in range(0, columns, _TILE):
            yield _Tile(slice(top, min(top + _TILE, rows)), slice(left, min(left + _TILE, columns)))


def _seen(query: Cells, tile: _Tile, references: Sequence[Reference]) -> list[_Seen]:
    cells = query[tile.rows, tile.columns].flatten(0, 1)
    device = cells.device
    query_y, query_x = (place[:, None] for place in _places(tile.rows, tile.columns, device))
    reaches: dict[tuple[Window | None, int, int], _Reach] = {}
    offset = 0
    seen = []
    for reference in references:
        rows, columns, _ = reference.cells.shape
        kind = (reference.window, rows, columns)
        if kind not in reaches:
            reaches[kind] = _reach(tile, *kind, device)
        reach = reaches[kind]
        score = cells @ reference.cells[reach.rows, reach.columns].flatten(0, 1).T
        if reach.barred is not None:
            score += reach.barred
        index = reach.y * columns + reach.x + offset
        seen.append(_Seen(score, index, reach.y, reach.x, query_y, query_x, reference.copies))
        offset += rows * columns
    return seen


def _reach(tile: _Tile, window: Window | None, rows: int, columns: int, device: torch.device) -> _Reach:
    if window is None:
        y_span, x_span = slice(0, rows), slice(0, columns)
        return _Reach(y_span, x_span, *_places(y_span, x_span, device), None)
    radius = math.floor(window.radius)
    y_span = slice(max(tile.rows.start - radius, 0), min(tile.rows.stop + radius, rows))
    x_span = slice(max(tile.columns.start - radius, 0), min(tile.columns.stop + radius, columns))
    barred = _barred(
        window,
        tile=(tile.rows.stop - tile.rows.start, tile.columns.stop - tile.columns.start),
        before=(tile.rows.start - y_span.start, tile.columns.start - x_span.start),
        span=(y_span.stop - y_span.start, x_span.stop - x_span.start),
    )
    return _Reach(y_span, x_span, *_places(y_span, x_span, device), barred.to(device))


@lru_cache(maxsize=64)  # tiles away from the border all share one
@torch.inference_mode(False)  # kept tensors must also serve code that differentiates
def _barred(
    window: Window, *, tile: tuple[int, int], before: tuple[int, int], span: tuple[int, int]
) -> Float[Tensor, "queries keys"]:
    """-inf for keys outside a query's window: `tile` queries whose keys begin `before` them and go on for `span`."""
    query_y, query_x = _places(slice(before[0], before[0] + tile[0]), slice(before[1], before[1] + tile[1]), _CPU)
    y, x = _places(slice(0, span[0]), slice(0, span[1]), _CPU)
    dy, dx = (y - query_y[:, None]).abs(), (x - query_x[:, None]).abs()
    outside = dy**2 + dx**2 > window.radius**2 if window.shape == "disc" else torch.maximum(dy, dx) > window.radius
    return torch.zeros(outside.shape).masked_fill_(outside, -torch.inf)


def _places(rows: slice, columns: slice, device: torch.device) -> tuple[Int[Tensor, " cells"], Int[Tensor, " cells"]]:
    """Row and column of every cell of a rectangle, row by row."""
    y = torch.arange(rows.start, rows.stop, device=device)
    x = torch.arange(columns.start, columns.stop, device=device)
    return y.repeat_interleave(len(x)), x.repeat(len(y))


def _weigh_jointly(seen: list[_Seen], *, k: int, temperature: float) -> Neighbours:
    best = _best(seen, k)
    return _kept(best, (best.score / temperature).softmax(dim=1))


def _weigh_per_reference(seen: list[_Seen], *, k: int, temperature: float) -> Neighbours:
    copies = sum(s.copies for s in seen)
    parts = []
    for s in seen:
        best = _best([s], k)
        total = (s.score / temperature).logsumexp(dim=1, keepdim=True)
        parts.append(_kept(best, (best.score / temperature - total).exp() * (s.copies / copies)))
    return Neighbours(torch.cat([p.index for p in parts], dim=1), torch.cat([p.weight for p in parts], dim=1))


@dataclass(frozen=True, eq=False)
class _Best:
    """The k best keys of each query, best first; where there are fewer, score -inf."""

    score: Float[Tensor, "queries k"]
    index: Int[Tensor, "queries k"]
    distance: Int[Tensor, "queries k"]


def _kept(best: _Best, weight: Float[Tensor, "queries k"]) -> Neighbours:
    missing = best.score == -torch.inf
    return Neighbours(best.index.masked_fill(missing, 0), weight.masked_fill(missing, 0))


def _best(seen: list[_Seen], k: int) -> _Best:
    """The k best keys of each query over these references."""
    keys = _joined(seen, at_least=k + 1)
    top = keys.score.topk(k + 1, dim=1)
    values, place = top.values[:, :k], top.indices[:, :k]
    # topk may keep any of several equal scores: where the last kept equals the first dropped, choose anew.
    tied = (values[:, -1] == top.values[:, k]) & (top.values[:, k] > -torch.inf)
    if bool(tied.any()):
        place = place.clone()
        place[tied] = _nearest_of_equals(keys, tied, values[tied], place[tied])
    distance = (keys.y[place] - keys.query_y) ** 2 + (keys.x[place] - keys.query_x) ** 2
    return _ordered(_Best(values, keys.index[place], distance))


def _joined(seen: list[_Seen], *, at_least: int) -> _Seen:
    """The keys of all references side by side, filled up with keys nobody sees."""
    score = torch.cat([s.score for s in seen], dim=1)
    missing = max(at_least - score.shape[1], 0)
    if missing:
        score = F.pad(score, (0, missing), value=-torch.inf)
    index, y, x = (
        F.pad(torch.cat(parts), (0, missing))
        for parts in ([s.index for s in seen], [s.y for s in seen], [s.x for s in seen])
    )
    return _Seen(score, index, y, x, seen[0].query_y, seen[0].query_x, 1)


def _nearest_of_equals(
    keys: _Seen,
    tied: Bool[Tensor, " queries"],
    values: Float[Tensor, "tied k"],
    place: Int[Tensor, "tied k"],
) -> Int[Tensor, "tied k"]:
    """Places of the best keys where several equal the last kept: of those the nearest, then the earliest."""
    score, last = keys.score[tied], values[:, -1:]
    count, k = score.shape[1], place.shape[1]
    distance = (keys.y - keys.query_y[tied]) ** 2 + (keys.x - keys.query_x[tied]) ** 2
    rank = distance * count + torch.arange(count, device=score.device)
    rank = rank.masked_fill(score != last, torch.iinfo(rank.dtype).max)
    chosen = rank.topk(k, dim=1, largest=False).indices
    above = (values > last).sum(dim=1, keepdim=True)
    slot = torch.arange(k, device=score.device)
    return torch.where(slot < above, place, chosen.gather(1, (slot - above).clamp_min(0)))


def _merged(best: list[_Best], k: int) -> _Best:
    """The k best over references whose own k best are known."""
    whole = _Best(
        torch.cat([b.score for b in best], dim=1),
        torch.cat([b.index for b in best], dim=1),
        torch.cat([b.distance for b in best], dim=1),
    )
    ordered = _ordered(whole)
    return _Best(ordered.score[:, :k], ordered.index[:, :k], ordered.distance[:, :k])


def _ordered(best: _Best) -> _Best:
    """Best first; of equal scores the nearest, then the earliest."""
    order = best.index.argsort(dim=1, stable=True)
    order = order.gather(1, best.distance.gather(1, order).argsort(dim=1, stable=True))
    order = order.gather(1, best.score.gather(1, order).argsort(dim=1, descending=True, stable=True))
    return _Best(best.score.gather(1, order), best.index.gather(1, order), best.distance.gather(1, order))
