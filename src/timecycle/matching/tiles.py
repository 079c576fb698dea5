"""The exact top-k search in torch, on any device, without the N x N affinity.

Queries are searched tile by tile, each tile against the part of every reference that its windows cover.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor

from timecycle.device import host_values, reads_at_once
from timecycle.kernel.search import TopK
from timecycle.matching.window import Window

Features = Float[Tensor, "rows columns features"]

# Cells to a side. On a CPU, larger tiles waste work outside the windows and smaller ones need too many matrix
# products; on an accelerator, launching a product costs more than the wasted work.
_TILE_CPU = 8
_TILE_ACCELERATOR = 32


@dataclass(frozen=True, eq=False)
class WindowedFeatures:
    """The features of a reference, and the window that queries search it with (None: all of it)."""

    features: Features
    window: Window | None


@dataclass(frozen=True, eq=False)
class NormalisedMatches:
    """The top k of one reference, and the log of the sum of exp(score / temperature) over its whole window."""

    best: TopK
    log_total: Float[Tensor, "queries 1"]


def search_tiles(query: Features, references: Sequence[WindowedFeatures], k: int) -> TopK:
    """Find the k best keys over all references; `index` counts the cells of the first reference, then of the second."""

    def search(scored: list[_Scored], break_ties: bool) -> _Searched:
        best, tied = _top_k(scored, k, break_ties=break_ties)
        return _Searched([best.score, best.index, best.distance], tied)

    return TopK(*_over_tiles(query, references, search))


def weigh_tiles(query: Features, reference: WindowedFeatures, k: int, temperature: float) -> NormalisedMatches:
    """Find the k best keys of one reference, with the normaliser of a softmax over its whole window."""

    def search(scored: list[_Scored], break_ties: bool) -> _Searched:
        best, tied = _top_k(scored, k, break_ties=break_ties)
        log_total = (scored[0].score / temperature).logsumexp(dim=1, keepdim=True)
        return _Searched([best.score, best.index, best.distance, log_total], tied)

    *best, log_total = _over_tiles(query, [reference], search)
    return NormalisedMatches(TopK(*best), log_total)


@dataclass(frozen=True)
class _Tile:
    rows: slice
    columns: slice


@dataclass(frozen=True, eq=False)
class _Region:
    """The part of a reference that the windows of a tile's queries cover."""

    rows: slice
    columns: slice
    y: Int[Tensor, " keys"]
    x: Int[Tensor, " keys"]
    mask: Float[Tensor, "queries keys"] | None  # -inf where a key is outside the query's window, 0 inside


@dataclass(frozen=True, eq=False)
class _Scored:
    """Scores of a tile's queries with keys of some references (-inf outside the window), and the positions of both."""

    score: Float[Tensor, "queries keys"]
    index: Int[Tensor, " keys"]
    y: Int[Tensor, " keys"]
    x: Int[Tensor, " keys"]
    query_y: Int[Tensor, "queries 1"]
    query_x: Int[Tensor, "queries 1"]


@dataclass(frozen=True, eq=False)
class _Searched:
    """The results of a tile, each (queries, n), and which queries have several keys that equal the last kept."""

    parts: list[Tensor]
    tied: Bool[Tensor, " queries"]


def _over_tiles(
    query: Features, references: Sequence[WindowedFeatures], search: Callable[[list[_Scored], bool], _Searched]
) -> list[Tensor]:
    """Run `search` on every tile, with or without breaking ties, and assemble its results for all queries.

    On an accelerator, the tiles in which ties have to be broken are searched once more in the end: to know them at once
    would be to wait for the device at every tile.
    """
    rows, columns, _ = query.shape
    at_once = reads_at_once(query.device)
    tiles = list(_tiles(rows, columns, _TILE_CPU if at_once else _TILE_ACCELERATOR))
    results: list[Tensor] = []

    def assemble(tile: _Tile, *, break_ties: bool) -> Bool[Tensor, ""]:
        searched = search(_scored(query, tile, references), break_ties)
        if not results:
            results.extend(part.new_empty(rows, columns, part.shape[1]) for part in searched.parts)
        for whole, part in zip(results, searched.parts, strict=True):
            target = whole[tile.rows, tile.columns]
            target.copy_(part.view(target.shape))
        return searched.tied.any()

    tied = [assemble(tile, break_ties=at_once) for tile in tiles]
    if not at_once:
        for tile, has_ties in zip(tiles, host_values(torch.stack(tied), "ties"), strict=True):
            if has_ties:
                assemble(tile, break_ties=True)
    return [whole.flatten(0, 1) for whole in results]


def _tiles(rows: int, columns: int, side: int) -> Iterator[_Tile]:
    for top in range(0, rows, side):
        for left in range(0, columns, side):
            yield _Tile(slice(top, min(top + side, rows)), slice(left, min(left + side, columns)))


def _scored(query: Features, tile: _Tile, references: Sequence[WindowedFeatures]) -> list[_Scored]:
    cells = query[tile.rows, tile.columns].flatten(0, 1)
    device = cells.device
    query_y, query_x = (position[:, None] for position in _positions(tile.rows, tile.columns, device))
    regions: dict[tuple[Window | None, int, int], _Region] = {}
    offset = 0
    scored = []
    for reference in references:
        rows, columns, _ = reference.features.shape
        kind = (reference.window, rows, columns)
        if kind not in regions:
            regions[kind] = _region(tile, *kind, device)
        region = regions[kind]
        score = cells @ reference.features[region.rows, region.columns].flatten(0, 1).T
        if region.mask is not None:
            score += region.mask
        index = region.y * columns + region.x + offset
        scored.append(_Scored(score, index, region.y, region.x, query_y, query_x))
        offset += rows * columns
    return scored


def _region(tile: _Tile, window: Window | None, rows: int, columns: int, device: torch.device) -> _Region:
    if window is None:
        y_span, x_span = slice(0, rows), slice(0, columns)
        return _Region(y_span, x_span, *_positions(y_span, x_span, device), None)
    radius = len(window.half_widths) - 1
    y_span = slice(max(tile.rows.start - radius, 0), min(tile.rows.stop + radius, rows))
    x_span = slice(max(tile.columns.start - radius, 0), min(tile.columns.stop + radius, columns))
    mask = _cached_window_mask(
        window,
        device,
        tile=(tile.rows.stop - tile.rows.start, tile.columns.stop - tile.columns.start),
        before=(tile.rows.start - y_span.start, tile.columns.start - x_span.start),
        span=(y_span.stop - y_span.start, x_span.stop - x_span.start),
    )
    return _Region(y_span, x_span, *_positions(y_span, x_span, device), mask)


def _window_mask(
    window: Window, device: torch.device, *, tile: tuple[int, int], before: tuple[int, int], span: tuple[int, int]
) -> Float[Tensor, "queries keys"]:
    """Return -inf for keys outside a query's window, else 0.

    The keys of `tile` queries begin `before` them and extend over `span`.
    """
    query_y, query_x = _positions(slice(before[0], before[0] + tile[0]), slice(before[1], before[1] + tile[1]), device)
    y, x = _positions(slice(0, span[0]), slice(0, span[1]), device)
    dy, dx = (y - query_y[:, None]).abs(), (x - query_x[:, None]).abs()
    outside = dy**2 + dx**2 > window.radius**2 if window.shape == "disc" else torch.maximum(dy, dx) > window.radius
    return torch.zeros(outside.shape, device=device).masked_fill_(outside, -torch.inf)


# Tiles away from the border all share one; cached tensors must also serve code that differentiates. On an accelerator
# masks are made there and kept: copying them would be waiting, and making them again takes longer than the encoder.
_cached_window_mask = lru_cache(maxsize=64)(torch.inference_mode(False)(_window_mask))


def _positions(
    rows: slice, columns: slice, device: torch.device
) -> tuple[Int[Tensor, " cells"], Int[Tensor, " cells"]]:
    """Return row and column of every cell of a rectangle, row by row."""
    y = torch.arange(rows.start, rows.stop, device=device)
    x = torch.arange(columns.start, columns.stop, device=device)
    return y.repeat_interleave(len(x)), x.repeat(len(y))


def _top_k(scored: list[_Scored], k: int, *, break_ties: bool) -> tuple[TopK, Bool[Tensor, " queries"]]:
    """Select the k best keys of each query over these references; also return for which queries ties decide."""
    keys = _concatenate(scored, min_keys=k + 1)
    top = keys.score.topk(k + 1, dim=1)
    values, position = top.values[:, :k], top.indices[:, :k]
    # topk may keep any of several equal scores: where the last kept equals the first dropped, choose by distance.
    tied = (values[:, -1] == top.values[:, k]) & (top.values[:, k] > -torch.inf)
    if break_ties and bool(tied.any()):
        position = position.clone()
        position[tied] = _break_ties(keys, tied, values[tied], position[tied])
    distance = (keys.y[position] - keys.query_y) ** 2 + (keys.x[position] - keys.query_x) ** 2
    return sort_matches(TopK(values, keys.index[position], distance)), tied


def _concatenate(scored: list[_Scored], *, min_keys: int) -> _Scored:
    """Concatenate the keys of all references, padded with keys of score -inf."""
    score = torch.cat([s.score for s in scored], dim=1)
    missing = max(min_keys - score.shape[1], 0)
    if missing:
        score = F.pad(score, (0, missing), value=-torch.inf)
    index, y, x = (
        F.pad(torch.cat(parts), (0, missing))
        for parts in ([s.index for s in scored], [s.y for s in scored], [s.x for s in scored])
    )
    return _Scored(score, index, y, x, scored[0].query_y, scored[0].query_x)


def _break_ties(
    keys: _Scored,
    tied: Bool[Tensor, " queries"],
    values: Float[Tensor, "tied k"],
    position: Int[Tensor, "tied k"],
) -> Int[Tensor, "tied k"]:
    """Choose the top k where several keys equal the last kept: of those the nearest, then the earliest."""
    score, last = keys.score[tied], values[:, -1:]
    count, k = score.shape[1], position.shape[1]
    distance = (keys.y - keys.query_y[tied]) ** 2 + (keys.x - keys.query_x[tied]) ** 2
    rank = distance * count + torch.arange(count, device=score.device)
    rank = rank.masked_fill(score != last, torch.iinfo(rank.dtype).max)
    chosen = rank.topk(k, dim=1, largest=False).indices
    above = (values > last).sum(dim=1, keepdim=True)
    slot = torch.arange(k, device=score.device)
    return torch.where(slot < above, position, chosen.gather(1, (slot - above).clamp_min(0)))


def merge_matches(best: Sequence[TopK], k: int) -> TopK:
    """Merge the top k of several references into their common top k."""
    whole = TopK(
        torch.cat([b.score for b in best], dim=1),
        torch.cat([b.index for b in best], dim=1),
        torch.cat([b.distance for b in best], dim=1),
    )
    ordered = sort_matches(whole)
    return TopK(ordered.score[:, :k], ordered.index[:, :k], ordered.distance[:, :k])


def sort_matches(best: TopK) -> TopK:
    """Sort the matches of each query: best score first; of equal scores the nearest, then the earliest."""
    order = best.index.argsort(dim=1, stable=True)
    order = order.gather(1, best.distance.gather(1, order).argsort(dim=1, stable=True))
    order = order.gather(1, best.score.gather(1, order).argsort(dim=1, descending=True, stable=True))
    return TopK(best.score.gather(1, order), best.index.gather(1, order), best.distance.gather(1, order))
