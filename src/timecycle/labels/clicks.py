"""Correct the region of an object by clicks inside and outside of it: GrabCut, which tells colours apart."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from timecycle.labels.grab_cut import (
    INSIDE,
    OUTSIDE,
    PROBABLY_INSIDE,
    PROBABLY_OUTSIDE,
    Region,
    Trimap,
    grab_cut,
    touching,
)
from timecycle.labels.space import nearest

Click = tuple[float, float]  # x, y in pixels

# Chosen on the first frames of DAVIS-2016 (benchmarks/clicks.py). Radii around a click, as shares of the region's size,
# which is the square root of its area.
_CERTAIN = 0.03  # certainly as clicked
_LIKELY = 0.12  # likely as clicked
_LOCAL = 0.6  # may change; beyond it the region stays as it is
_MIN_LOCAL_PX = 20
_ITERATIONS = 3
_MAX_PIXELS = 100_000


def corrected_by_clicks(
    image: UInt8[np.ndarray, "height width 3"],
    region: Region,
    *,
    inside: Sequence[Click],
    outside: Sequence[Click],
    within: Region | None = None,
) -> Region:
    """Return the region, changed around clicks so that it holds those inside and none of those outside.

    within: as far as it may extend.
    """
    size_px = float(np.sqrt(region.sum()))
    local_px = max(_LOCAL * size_px, _MIN_LOCAL_PX)
    clicks = [*inside, *outside]
    rows, columns = _crop(clicks, local_px, region.shape)
    origin = columns.start, rows.start
    allowed = np.ones_like(region) if within is None else within

    def trimap_of(scale: float, shape: tuple[int, int]) -> Trimap:
        now = nearest(region[rows, columns], *shape)
        trimap = np.where(now, INSIDE, OUTSIDE).astype(np.uint8)
        # Around a click inside the region may only grow, around one outside only shrink: misleading colours do little.
        may_grow, may_shrink = (_near(one, origin, scale, shape, local_px * scale) for one in (inside, outside))
        trimap[may_grow & ~now], trimap[may_shrink & now] = PROBABLY_OUTSIDE, PROBABLY_INSIDE
        likely_px, certain_px = (max(share * size_px * scale, 1.0) for share in (_LIKELY, _CERTAIN))
        trimap[_near(inside, origin, scale, shape, likely_px) & ~now] = PROBABLY_INSIDE
        trimap[_near(outside, origin, scale, shape, likely_px) & now] = PROBABLY_OUTSIDE
        trimap[_near(inside, origin, scale, shape, certain_px)] = INSIDE
        trimap[_near(outside, origin, scale, shape, certain_px)] = OUTSIDE
        trimap[~nearest(allowed[rows, columns], *shape)] = OUTSIDE
        return trimap

    def keep(scale: float, found: Region) -> Region:
        seeds = nearest(region[rows, columns], *found.shape) | _near(inside, origin, scale, found.shape, 1.0)
        return touching(found, seeds, extra="assist")

    corrected = region.copy()
    corrected[rows, columns] = grab_cut(
        image[rows, columns], trimap_of, iterations=_ITERATIONS, max_pixels=_MAX_PIXELS, extra="assist", keep=keep
    )
    return np.asarray(corrected & allowed)


def _crop(clicks: Sequence[Click], local_px: float, shape: tuple[int, ...]) -> tuple[slice, slice]:
    """Return the rows and columns that may change, and a margin in which colours are modelled."""
    slices = []
    for axis, length in ((1, shape[0]), (0, shape[1])):
        there = [click[axis] for click in clicks]
        slices.append(
            slice(max(int(min(there) - 1.5 * local_px), 0), min(int(max(there) + 1.5 * local_px) + 1, length))
        )
    return slices[0], slices[1]


def _near(
    clicks: Sequence[Click], origin: tuple[int, int], scale: float, shape: tuple[int, ...], radius: float
) -> Region:
    """Return the pixels of the shrunken crop within a radius of any click."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    near = np.zeros(shape, bool)
    for click in clicks:
        at_x, at_y = ((value - start + 0.5) * scale - 0.5 for value, start in zip(click, origin, strict=True))
        near |= np.hypot(x - at_x, y - at_y) <= radius
    return near
