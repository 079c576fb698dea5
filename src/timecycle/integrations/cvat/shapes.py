"""Shapes of CVAT as annotations, and propagated labels as shapes of the same type.

CVAT measures coordinates from the corner of the first pixel; here pixel centres lie at integers.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import UInt8

from timecycle.errors import LabelError
from timecycle.extras import import_extra
from timecycle.formats.polygons import fill, outline
from timecycle.labels import Keypoints, Labels, Masks
from timecycle.labels.box import object_in_box
from timecycle.labels.grab_cut import Region

Image = UInt8[np.ndarray, "height width 3"]
Numbers = Sequence[float]
ToShape = Callable[[Labels], list[float] | None]  # None where the object is not on the frame

CENTRE_PX = 0.5  # of a pixel, from its corner
_FARTHEST_PX = 1e8  # beyond any frame: what is farther is a mistake, and no integer for those who fill polygons
_SIMPLIFY_PX = 1.0  # how far a polygon may be from the outline of its mask
_MIN_PART = 0.1  # parts of a box's object, as a share of the largest: smaller ones would stretch the box


def begin(kind: str, points: Numbers, image: Image) -> tuple[Labels, ToShape]:
    """Return the annotation that a shape is, and the function that makes shapes of its type from labels."""
    try:
        numbers = np.array(points, np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.empty(0)
    count = 4 if kind == "rectangle" else numbers.size
    is_list = numbers.ndim == 1 and numbers.size == count > 0 and bool((np.abs(numbers) <= _FARTHEST_PX).all())
    runs_fit = kind != "mask" or numbers[:-4].sum() <= image.shape[0] * image.shape[1]  # or decoding fills the memory
    if not is_list or not runs_fit or (kind != "mask" and count % 2):
        raise LabelError(f"the {kind} has no valid coordinates", remedy="draw it again")
    return SHAPES[kind](points, image)


def _mask(points: Numbers, image: Image) -> tuple[Labels, ToShape]:
    masks = import_extra("cvat_sdk.masks", extra="cvat")
    height, width, _ = image.shape
    try:
        region = masks.decode_mask(points, image_width=width, image_height=height)
    except (ValueError, IndexError, OverflowError) as error:
        raise LabelError(f"the mask is damaged: {error}", remedy="draw it again") from error

    def to_shape(labels: Labels) -> list[float] | None:
        found = _region(labels)
        return [float(number) for number in masks.encode_mask(found)] if found.any() else None

    return _annotation(region), to_shape


def _polygon(points: Numbers, image: Image) -> tuple[Labels, ToShape]:
    region = fill(np.array(points, np.float64).reshape(-1, 2), image.shape[:2])

    def to_shape(labels: Labels) -> list[float] | None:
        found = _region(labels)
        return _outline(found) if found.any() else None

    return _annotation(region), to_shape


def _rectangle(points: Numbers, image: Image) -> tuple[Labels, ToShape]:
    """Segment the object in the box; keep the space between object and box in proportion to the object's size."""
    drawn = np.array(points, np.float64)
    x0, y0, x1, y1 = (drawn - CENTRE_PX).tolist()
    region = object_in_box(image, (x0, y0, x1, y1))
    tight = _box(region)
    margin = (drawn - tight) / _extent(tight)
    height, width, _ = image.shape

    def to_shape(labels: Labels) -> list[float] | None:
        found = _region(labels)
        if not found.any():
            return None
        now = _box(_large_parts(found))
        box: list[float] = np.clip(now + margin * _extent(now), 0, [width, height] * 2).tolist()
        return box

    return _annotation(region), to_shape


def _points(points: Numbers, image: Image) -> tuple[Labels, ToShape]:
    last = np.array(points, np.float32).reshape(-1, 2) - CENTRE_PX
    names = tuple(f"point {number}" for number in range(len(last)))

    def to_shape(labels: Labels) -> list[float] | None:
        nonlocal last
        xy = labels.xy if isinstance(labels, Keypoints) else last
        there = np.isfinite(xy).all(axis=1)
        if not there.any():
            return None
        last = np.where(there[:, None], xy, last)  # a shape has all its points: a lost one stays where it was
        shape: list[float] = (last + CENTRE_PX).ravel().tolist()
        return shape

    return Keypoints(names, last, np.ones(len(last), bool)), to_shape


SHAPES: Mapping[str, Callable[[Numbers, Image], tuple[Labels, ToShape]]] = {
    "mask": _mask,
    "polygon": _polygon,
    "rectangle": _rectangle,
    "points": _points,
}


def _annotation(region: Region) -> Masks:
    if not region.any():
        raise LabelError("the shape covers no pixel of the frame", remedy="draw it larger, or on the frame")
    return Masks.of(region)


def _region(labels: Labels) -> Region:
    return labels.ids > 0 if isinstance(labels, Masks) else np.zeros((0, 0), bool)


def _box(region: Region) -> np.ndarray:
    """Return left, top, right and bottom of a region, measured from the corner of the first pixel."""
    rows, columns = (np.flatnonzero(region.any(axis=axis)) for axis in (1, 0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], np.float64)


def _extent(box: np.ndarray) -> np.ndarray:
    return np.tile(box[2:] - box[:2], 2)


def _large_parts(region: Region) -> Region:
    parts, areas = _parts(region)
    return np.isin(parts, 1 + np.flatnonzero(areas >= _MIN_PART * areas.max()))


def _parts(region: Region) -> tuple[np.ndarray, np.ndarray]:
    """Number the connected parts of a region from 1; return them with their areas."""
    cv2 = import_extra("cv2", extra="cvat")
    _, parts, statistics, _ = cv2.connectedComponentsWithStats(region.astype(np.uint8), connectivity=4)
    return parts, statistics[1:, cv2.CC_STAT_AREA]


def _outline(region: Region) -> list[float]:
    """Return the polygon around the largest part of a region, without its holes: CVAT's polygons have neither."""
    cv2 = import_extra("cv2", extra="cvat")
    parts, areas = _parts(region)
    largest = (parts == 1 + int(areas.argmax())).astype(np.uint8)
    contours, _ = cv2.findContours(largest, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    filled = cv2.drawContours(largest, contours, -1, 1, cv2.FILLED)
    corners = outline(filled > 0).astype(np.float32)
    simple = cv2.approxPolyDP(corners, _SIMPLIFY_PX, True).reshape(-1, 2)
    polygon: list[float] = (simple if len(simple) >= 3 else corners).ravel().tolist()
    return polygon
