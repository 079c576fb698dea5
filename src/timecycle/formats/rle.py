"""Masks as COCO's run lengths and polygons.

pycocotools writes run lengths and fills polygons. It does not read them from files: its C code returns memory that was
never written where run lengths do not fill the image.
"""

from typing import Any

import numpy as np
from jaxtyping import Int

from timecycle.errors import LabelError
from timecycle.extras import import_extra
from timecycle.formats.polygons import Region
from timecycle.video.frame import DEFAULT_MAX_PIXELS

_MAX_VERTICES = 1_000_000  # of the polygons of one object


def encode(region: Region) -> str:
    """Return the compressed run lengths of a region, column by column."""
    mask = import_extra("pycocotools.mask", extra="coco")
    return str(mask.encode(np.asfortranarray(region, np.uint8))["counts"].decode("ascii"))


def decode(segmentation: Any, size: tuple[int, int], place: str) -> Region:
    """Return the region of a `segmentation` of COCO: compressed or plain run lengths, or polygons.

    place: the file and the annotation, for messages.
    """
    height, width = size
    if height * width > DEFAULT_MAX_PIXELS:
        raise _wrong(place, f"is of {width}x{height} pixels")
    if isinstance(segmentation, dict):
        if segmentation.get("size") not in ([height, width], (height, width)):
            raise _wrong(place, f"has the size {str(segmentation.get('size'))[:40]}, not [{height}, {width}]")
        counts = segmentation.get("counts")
        if isinstance(counts, list):
            if not all(type(count) is int and 0 <= count <= DEFAULT_MAX_PIXELS for count in counts):
                raise _wrong(place, "has run lengths that are not whole numbers")
            return _of_counts(np.array(counts, np.int64), size, place)
        return _of_counts(_decompressed(counts, place), size, place)
    polygons = _polygons(segmentation, place)
    if not polygons:
        return np.zeros(size, bool)
    mask = import_extra("pycocotools.mask", extra="coco")
    return np.asarray(mask.decode(mask.merge(mask.frPyObjects(polygons, height, width))), bool)


def _decompressed(counts: object, place: str) -> Int[np.ndarray, " runs"]:
    """Return run lengths from a string of six-bit characters.

    A character has five bits of a number, the lowest first, and a bit that says whether more follow; the highest bit of
    a number is its sign. From the fourth number on, each is the difference to the one before the last.
    """
    if not isinstance(counts, str) or not counts.isascii():
        raise _wrong(place, "has no run lengths")
    values = np.frombuffer(counts.encode("ascii"), np.uint8).astype(np.int64) - 48
    if not len(values) or values.min() < 0 or values.max() > 63 or values[-1] & 0x20:
        raise _wrong(place, "has damaged run lengths")
    ends = np.flatnonzero((values & 0x20) == 0)
    lengths = np.diff(ends, prepend=-1)
    if lengths.max() > 7:  # a number of 35 bits: more than any image has pixels
        raise _wrong(place, "has run lengths larger than any image")
    starts = ends - lengths + 1
    position = np.arange(len(values)) - np.repeat(starts, lengths)
    numbers = np.add.reduceat((values & 0x1F) << (5 * position), starts)
    numbers -= np.where(values[ends] & 0x10, np.int64(1) << (5 * lengths), 0)
    numbers[1::2] = np.cumsum(numbers[1::2])
    numbers[2::2] = np.cumsum(numbers[2::2])
    return numbers


def _of_counts(counts: Int[np.ndarray, " runs"], size: tuple[int, int], place: str) -> Region:
    """Return the region of run lengths of background and object in turn, column by column."""
    if counts.min(initial=0) < 0 or counts.max(initial=0) > DEFAULT_MAX_PIXELS or counts.sum() != size[0] * size[1]:
        raise _wrong(place, "has run lengths that do not add up to the image")
    values = np.arange(len(counts)) % 2 == 1
    return np.repeat(values, counts).reshape(size, order="F")


def _polygons(segmentation: Any, place: str) -> list[list[float]]:
    if not isinstance(segmentation, list) or not all(isinstance(one, list) for one in segmentation):
        raise _wrong(place, "is neither run lengths nor polygons")
    if sum(map(len, segmentation)) > 2 * _MAX_VERTICES:
        raise _wrong(place, f"has more than {_MAX_VERTICES} vertices")
    for polygon in segmentation:
        if len(polygon) < 6 or len(polygon) % 2 or not all(_is_coordinate(value) for value in polygon):
            raise _wrong(place, "has a polygon that is not x, y, x, y, ... of three or more vertices")
    return [[float(value) for value in polygon] for polygon in segmentation]


def _is_coordinate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e6


def _wrong(place: str, problem: str) -> LabelError:
    return LabelError(f"the mask of {place} {problem}", remedy="export the labels again")
