"""Outlines of regions as polygons, and back: exact, with holes and several parts.

Coordinates are those of pixel corners: pixel (x, y) covers x to x + 1. A pixel belongs to a polygon if its centre is
inside by the even-odd rule.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

Region = Bool[np.ndarray, "height width"]
Polygon = Float[np.ndarray, "vertices 2"]


def outline(region: Region) -> Polygon:
    """Return one polygon along the edges of the pixels of a region.

    Parts and holes are joined by lines that are followed once in each direction, which encloses nothing.
    """
    loops = _loops(region)
    if not loops:
        return np.zeros((0, 2))
    start = loops[0][:1]
    pieces = [loops[0], start]
    for loop in loops[1:]:
        pieces += [loop, loop[:1], start]
    joined = np.concatenate(pieces if len(loops) > 1 else pieces[:1])
    return joined.astype(np.float64)


def fill(polygon: Polygon, size: tuple[int, int]) -> Region:
    """Return the pixels whose centres a polygon encloses; the last vertex is joined to the first."""
    height, width = size
    (x0, y0), (x1, y1) = polygon.T, np.roll(polygon, -1, axis=0).T
    # The rows whose centres lie between the ends of each side: the upper end counts, the lower does not.
    low, high = np.ceil(np.minimum(y0, y1) - 0.5), np.ceil(np.maximum(y0, y1) - 0.5)
    low, high = (np.clip(one, 0, height).astype(np.int64) for one in (low, high))
    count = high - low
    side = np.repeat(np.arange(len(polygon)), count)
    row = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + low[side]
    slope = (x1[side] - x0[side]) / (y1[side] - y0[side])
    crossing = x0[side] + (row + 0.5 - y0[side]) * slope
    first = np.clip(np.ceil(crossing - 0.5), 0, width).astype(np.int64)  # pixel whose centre is right of the side
    toggles = np.zeros((height, width + 1), np.int64)
    np.add.at(toggles, (row, first), 1)
    inside: Region = np.cumsum(toggles, axis=1)[:, :width] % 2 == 1
    return inside


def _loops(region: Region) -> list[Int[np.ndarray, "vertices 2"]]:
    """Trace the closed lines between pixels inside and outside of a region, without vertices on straight parts."""
    padded = np.pad(region, 1).astype(np.int8)
    following: dict[tuple[int, int], list[tuple[int, int]]] = {}
    # Each edge has a direction, with the region on its right.
    down, right = np.diff(padded, axis=0)[:, 1:-1], np.diff(padded, axis=1)[1:-1]
    for (ys, xs), (dx0, dx1) in ((np.nonzero(down == 1), (0, 1)), (np.nonzero(down == -1), (1, 0))):
        for y, x in zip(ys.tolist(), xs.tolist(), strict=True):
            following.setdefault((x + dx0, y), []).append((x + dx1, y))
    for (ys, xs), (dy0, dy1) in ((np.nonzero(right == 1), (1, 0)), (np.nonzero(right == -1), (0, 1))):
        for y, x in zip(ys.tolist(), xs.tolist(), strict=True):
            following.setdefault((x, y + dy0), []).append((x, y + dy1))
    loops = []
    while following:
        at = first = next(iter(following))
        loop = []
        while True:
            ends = following[at]
            after = ends.pop()
            if not ends:
                del following[at]
            loop.append(at)
            at = after
            if at == first:
                break
        loops.append(_corners(np.array(loop, np.int64)))
    return loops


def _corners(loop: Int[np.ndarray, "vertices 2"]) -> Int[np.ndarray, "corners 2"]:
    before, after = loop - np.roll(loop, 1, axis=0), np.roll(loop, -1, axis=0) - loop
    corners: Int[np.ndarray, "corners 2"] = loop[(before != after).any(axis=1)]
    return corners
