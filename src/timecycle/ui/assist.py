"""The assisted tool: a box, or a few strokes inside and outside, become the mask of an object.

`segment` is the one place that decides how: from pixels and hints to a mask. It is GrabCut, which separates the colours
that are marked as inside from those that are marked as outside. A stroke corrects the mask before it, near the stroke
only: otherwise a stroke on colours that the object shares with its surroundings can turn the whole object over.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image, ImageDraw

from timecycle.errors import LabelError
from timecycle.extras import import_extra
from timecycle.labels.grab_cut import INSIDE, OUTSIDE, PROBABLY_INSIDE, PROBABLY_OUTSIDE, grab_cut, touching

Box = tuple[int, int, int, int]  # x0, y0, x1, y1 in pixels; x1 and y1 are not included
Mask = Bool[np.ndarray, "height width"]
Pixels = UInt8[np.ndarray, "height width 3"]

_AROUND = 0.5  # margin in which colours are modelled, as a share of the box's sides
_MIDDLE = 0.3  # certain object without strokes: up to this distance from the middle, as a share of half the sides
_ITERATIONS, _ITERATIONS_AGAIN = 3, 2  # from a box alone, and from the mask before a stroke
_MAX_PIXELS = 40_000  # larger regions are shrunk, so that an answer takes less than half a second
_NEAR = 0.25  # how far a stroke can change the mask, as a share of the box's size
_KEPT_MASKS = 8  # of the last answers: the next stroke continues from one of them


@dataclass(frozen=True)
class Stroke:
    """A line that a person drew: its points (x, y), and how wide it is."""

    points: Sequence[tuple[float, float]]
    width_px: float
    order: int = 0  # among all strokes, inside and outside


@dataclass(frozen=True)
class Hints:
    """What a person marked: a box around the object, or strokes inside and outside of it."""

    box: Box | None
    inside: Sequence[Stroke]
    outside: Sequence[Stroke]

    def newest(self) -> tuple[Stroke, bool] | None:
        """Return the stroke that was drawn last, and whether it is inside; None without strokes."""
        strokes = [*((one, True) for one in self.inside), *((one, False) for one in self.outside)]
        return max(strokes, key=lambda one: one[0].order, default=None)

    def without(self, stroke: Stroke) -> "Hints":
        """Return the hints before a stroke was drawn."""
        inside, outside = ([one for one in side if one is not stroke] for side in (self.inside, self.outside))
        return replace(self, inside=inside, outside=outside)

    def region(self, height_px: int, width_px: int) -> Box:
        """Return the part of the frame that decides: the box, or what the strokes inside span, and a margin."""
        if self.box is not None:
            x0, y0, x1, y1 = self.box
        elif self.inside:
            points = np.array([point for stroke in self.inside for point in stroke.points])
            (x0, y0), (x1, y1) = points.min(axis=0), points.max(axis=0)
        else:
            raise LabelError("nothing is marked as inside", remedy="draw a box, or a stroke inside the object")
        # Strokes lie inside the object, which is larger than they are.
        share = _AROUND if self.box is not None else 2 * _AROUND
        least = 8 if self.box is not None else 40
        margin_x, margin_y = (max(least, share * (high - low)) for low, high in ((x0, x1), (y0, y1)))
        region = (
            max(0, int(x0 - margin_x)),
            max(0, int(y0 - margin_y)),
            min(width_px, int(x1 + margin_x) + 1),
            min(height_px, int(y1 + margin_y) + 1),
        )
        if region[0] >= region[2] or region[1] >= region[3]:
            raise LabelError("the marks lie outside of the frame", remedy="draw them on the picture")
        return region


_masks: OrderedDict[bytes, Mask] = OrderedDict()


def segment(pixels: Pixels, hints: Hints, origin: tuple[int, int]) -> Mask:
    """Segment the object that the hints mark; `pixels` are the region whose left top corner is at `origin`.

    The result depends on nothing else: a mask before the newest stroke that is not known any more is made again.
    """
    key = hashlib.sha256(repr((hints, origin, pixels.shape)).encode() + pixels.tobytes()).digest()
    if key not in _masks:
        _masks[key] = _segment(pixels, hints, origin)
        while len(_masks) > _KEPT_MASKS:
            _masks.popitem(last=False)
    return _masks[key].copy()


def _segment(pixels: Pixels, hints: Hints, origin: tuple[int, int]) -> Mask:
    newest = hints.newest()
    earlier = None if newest is None else hints.without(newest[0])
    if newest is not None and earlier is not None and (earlier.box is not None or earlier.inside):
        return _corrected(pixels, hints, origin, newest, _embedded(pixels, earlier, origin))
    return segment_at_once(pixels, hints, origin)


def segment_at_once(pixels: Pixels, hints: Hints, origin: tuple[int, int]) -> Mask:
    """Segment with all hints together, whatever came before."""
    return grab_cut(
        pixels,
        lambda scale, shape: _trimap(hints, origin, scale, shape),
        iterations=_ITERATIONS,
        max_pixels=_MAX_PIXELS,
        extra="ui",
        keep=lambda scale, region: _connected(region, _drawn(hints.inside, origin, scale, region.shape)),
    )


def _embedded(pixels: Pixels, earlier: Hints, origin: tuple[int, int]) -> Mask:
    """Return the mask of earlier hints in the region of now, which is as large or larger."""
    (left, top), (height, width) = origin, pixels.shape[:2]
    x0, y0, x1, y1 = earlier.region(top + height, left + width)
    there = slice(y0 - top, y1 - top), slice(x0 - left, x1 - left)
    mask = np.zeros((height, width), bool)
    mask[there] = segment(np.ascontiguousarray(pixels[there]), earlier, (x0, y0))
    return mask


def _corrected(
    pixels: Pixels, hints: Hints, origin: tuple[int, int], newest: tuple[Stroke, bool], before: Mask
) -> Mask:
    """Change a mask where the newest stroke says so: near it, and in pieces that it touches."""
    stroke, is_inside = newest

    def trimap_of(scale: float, shape: tuple[int, int]) -> UInt8[np.ndarray, "height width"]:
        trimap: np.ndarray = _trimap(hints, origin, scale, shape)
        was = _shrunken(before, shape)
        is_free = np.isin(trimap, (PROBABLY_INSIDE, PROBABLY_OUTSIDE))
        trimap[is_free] = np.where(was, PROBABLY_INSIDE, PROBABLY_OUTSIDE)[is_free]
        is_far = is_free & (_distance_px(stroke, origin, scale, shape) > _NEAR * scale * _size_px(hints, pixels))
        trimap[is_far] = np.where(was, INSIDE, OUTSIDE)[is_far]
        return trimap

    def keep(scale: float, region: Mask) -> Mask:
        was, drawn = _shrunken(before, region.shape), _drawn([stroke], origin, scale, region.shape)
        changed = (region & ~was) if is_inside else (was & ~region)
        changed = touching(changed | drawn, drawn, extra="ui")
        return np.asarray((was | changed) if is_inside else (was & ~changed))

    return grab_cut(pixels, trimap_of, iterations=_ITERATIONS_AGAIN, max_pixels=_MAX_PIXELS, extra="ui", keep=keep)


def _size_px(hints: Hints, pixels: Pixels) -> float:
    """Return the size of the object: that of the box or, without one, half that of the region around the strokes."""
    x0, y0, x1, y1 = hints.box or (0, 0, pixels.shape[1] / 2, pixels.shape[0] / 2)
    return float(((x1 - x0) * (y1 - y0)) ** 0.5)


def _shrunken(mask: Mask, shape: tuple[int, ...]) -> Mask:
    image = Image.fromarray(mask.astype(np.uint8) * np.uint8(255))
    return np.asarray(np.array(image.resize((shape[1], shape[0]), Image.Resampling.BOX)) >= 128)


def _distance_px(
    stroke: Stroke, origin: tuple[int, int], scale: float, shape: tuple[int, ...]
) -> Float[np.ndarray, "height width"]:
    cv2 = import_extra("cv2", extra="ui")
    beside = ~_drawn([stroke], origin, scale, shape)
    return np.asarray(cv2.distanceTransform(beside.astype(np.uint8), cv2.DIST_L2, 5))


def _trimap(hints: Hints, origin: tuple[int, int], scale: float, shape: tuple[int, ...]) -> np.ndarray:
    """Mark what is certain and what is likely, on the shrunken region."""
    trimap = np.full(shape, PROBABLY_OUTSIDE, np.uint8)
    if hints.box is not None:
        x0, y0, x1, y1 = ((value - at) * scale for value, at in zip(hints.box, (*origin, *origin), strict=True))
        y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
        distance = np.hypot((x - (x0 + x1) / 2) / max((x1 - x0) / 2, 1), (y - (y0 + y1) / 2) / max((y1 - y0) / 2, 1))
        trimap[distance <= 1] = PROBABLY_INSIDE
        if not hints.inside:
            trimap[distance <= _MIDDLE] = INSIDE
        trimap[(x < x0) | (x > x1) | (y < y0) | (y > y1)] = OUTSIDE
    elif not hints.outside:  # the border of the region stands for what is around the object
        trimap[:2], trimap[-2:], trimap[:, :2], trimap[:, -2:] = (OUTSIDE,) * 4
    if hints.box is None:
        near = _drawn(hints.inside, origin, scale, shape, wider=3.0)
        trimap[near & (trimap != OUTSIDE)] = PROBABLY_INSIDE
    trimap[_drawn(hints.inside, origin, scale, shape)] = INSIDE
    trimap[_drawn(hints.outside, origin, scale, shape)] = OUTSIDE
    return trimap


def _drawn(
    strokes: Sequence[Stroke], origin: tuple[int, int], scale: float, shape: tuple[int, ...], *, wider: float = 1.0
) -> Mask:
    canvas = Image.new("1", (shape[1], shape[0]))
    pen = ImageDraw.Draw(canvas)
    for stroke in strokes:
        points = [((x - origin[0] + 0.5) * scale, (y - origin[1] + 0.5) * scale) for x, y in stroke.points]
        radius = max(wider * stroke.width_px * scale / 2, 0.5)
        if len(points) > 1:
            pen.line(points, fill=1, width=max(1, round(2 * radius)))
        for x, y in points:
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=1)
    return np.array(canvas)


def _connected(shape: Mask, seeds: Mask) -> Mask:
    """Keep the pieces that a stroke inside touches; without strokes, those of a tenth of the largest piece or more."""
    cv2 = import_extra("cv2", extra="ui")
    count, pieces, statistics, _ = cv2.connectedComponentsWithStats(shape.astype(np.uint8))
    if count <= 2:
        return shape
    areas = statistics[:, 4].copy()
    areas[0] = 0
    kept = areas >= areas.max() / 10
    if seeds.any():
        kept |= np.isin(np.arange(count), np.unique(pieces[seeds & shape]))
    kept[0] = False
    return np.asarray(kept[pieces])
