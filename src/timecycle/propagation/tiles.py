"""The exact search in torch: no N x N affinity, on any device.

Queries are taken tile by tile against the part of each reference that the tile's windows reach.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor

from timecycle.kernel.search import Found
from timecycle.propagation.best import in_order
from timecycle.propagation.window import Window

Cells = Float[Tensor, "rows columns channels"]

# Cells to a side: on a CPU larger tiles waste work outside the windows and smaller ones make too many matrix products;
# elsewhere starting a product costs more than what it wastes.
_TILE = 8
_TILE_ELSEWHERE = 32
_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Seen:
    """A reference as the tiles see it: its cells, and the window (None: all of it)."""

    cells: Cells
    window: Window | None


@dataclass(frozen=True, eq=False)
class Weighed:
    """The best keys of one reference, and the log of the sum of exp(score / temperature) over all that is seen."""

    best: Found
    log_total: Float[Tensor, "queries 1"]


def search_tiles(query: Cells, references: Sequence[Seen], k: int) -> Found:
    """The k best keys over all references; `index` counts the cells of the first, then of the second, and so on."""

    def search(scored: list[_Scored]) -> list[Tensor]:
        best = _best(scored, k)
        return [best.score, best.index, best.distance]

    return Found(*_over_tiles(query, references, search))


def weigh_tiles(query: Cells, reference: Seen, k: int, temperature: float) -> Weighed:
    """The k best keys of one reference with what a softmax over everything seen needs."""

    def search(scored: list[_Scored]) -> list[Tensor]:
        best = _best(scored, k)
        log_total = (scored[0].score / temperature).logsumexp(dim=1, keepdim=True)
        return [best.score, best.index, best.distance, log_total]

    *best, log_total = _over_tiles(query, [reference], search)
    return Weighed(Found(*best), log_total)


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
class _Scored:
    """A tile's queries and the keys they see of some references: scores (-inf outside the window) and places."""

    score: Float[Tensor, "queries keys"]
    index: Int[Tensor, " keys"]
    y: Int[Tensor, " keys"]
    x: Int[Tensor, " keys"]
    query_y: Int[Tensor, "queries 1"]
    query_x: Int[Tensor, "queries 1"]


def _over_tiles(
    query: Cells, references: Sequence[Seen], search: Callable[[list[_Scored]], list[Tensor]]
) -> list[Tensor]:
    """What `search` gives for the queries of each tile, (queries, n), put together for all queries."""
    rows, columns, _ = query.shape
    results: list[Tensor] = []
    for tile in _tiles(rows, columns, _TILE if query.device.type == "cpu" else _TILE_ELSEWHERE):
        parts = search(_scored(query, tile, references))
        if not results:
            results = [part.new_empty(rows, columns, part.shape[1]) for part in parts]
        for whole, part in zip(results, parts, strict=True):
            place = whole[tile.rows, tile.columns]
            place.copy_(part.view(place.shape))
    return [whole.flatten(0, 1) for whole in results]


def _tiles(rows: int, columns: int, side: int) -> Iterator[_Tile]:
    for top in range(0, rows, side):
        for left in range(0, columns, side):
            yield _Tile(slice(top, min(top + side, rows)), slice(left, min(left + side, columns)))


def _scored(query: Cells, tile: _Tile, references: Sequence[Seen]) -> list[_Scored]:
    cells = query[tile.rows, tile.columns].flatten(0, 1)
    device = cells.device
    query_y, query_x = (place[:, None] for place in _places(tile.rows, tile.columns, device))
    reaches: dict[tuple[Window | None, int, int], _Reach] = {}
    offset = 0
    scored = []
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
        scored.append(_Scored(score, index, reach.y, reach.x, query_y, query_x))
        offset += rows * columns
    return scored


def _reach(tile: _Tile, window: Window | None, rows: int, columns: int, device: torch.device) -> _Reach:
    if window is None:
        y_span, x_span = slice(0, rows), slice(0, columns)
        return _Reach(y_span, x_span, *_places(y_span, x_span, device), None)
    far = len(window.reach) - 1
    y_span = slice(max(tile.rows.start - far, 0), min(tile.rows.stop + far, rows))
    x_span = slice(max(tile.columns.start - far, 0), min(tile.columns.stop + far, columns))
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


def _best(scored: list[_Scored], k: int) -> Found:
    """The k best keys of each query over these references."""
    keys = _joined(scored, at_least=k + 1)
    top = keys.score.topk(k + 1, dim=1)
    values, place = top.values[:, :k], top.indices[:, :k]
    # topk may keep any of several equal scores: where the last kept equals the first dropped, choose anew.
    tied = (values[:, -1] == top.values[:, k]) & (top.values[:, k] > -torch.inf)
    if bool(tied.any()):
        place = place.clone()
        place[tied] = _nearest_of_equals(keys, tied, values[tied], place[tied])
    distance = (keys.y[place] - keys.query_y) ** 2 + (keys.x[place] - keys.query_x) ** 2
    return in_order(Found(values, keys.index[place], distance))


def _joined(scored: list[_Scored], *, at_least: int) -> _Scored:
    """The keys of all references side by side, filled up with keys nobody sees."""
    score = torch.cat([s.score for s in scored], dim=1)
    missing = max(at_least - score.shape[1], 0)
    if missing:
        score = F.pad(score, (0, missing), value=-torch.inf)
    index, y, x = (
        F.pad(torch.cat(parts), (0, missing))
        for parts in ([s.index for s in scored], [s.y for s in scored], [s.x for s in scored])
    )
    return _Scored(score, index, y, x, scored[0].query_y, scored[0].query_x)


def _nearest_of_equals(
    keys: _Scored,
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
