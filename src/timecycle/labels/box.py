"""Segment the object in a box: GrabCut separates the colours inside the box from those around it."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from timecycle.errors import LabelError
from timecycle.labels.file import note
from timecycle.labels.grab_cut import INSIDE, OUTSIDE, PROBABLY_INSIDE, PROBABLY_OUTSIDE, Region, Trimap, grab_cut
from timecycle.labels.masks import Masks
from timecycle.labels.space import nearest

Box = tuple[float, float, float, float]  # x0, y0, x1, y1 in pixels, edges included

# Chosen on outlines pasted onto other footage (blobs, and bodies with limbs).
_AROUND = 0.5  # margin around the box in which colours are modelled, as a share of its sides
_MIDDLE = 0.3  # certain object: up to this distance from the middle, as a share of half the sides
_ITERATIONS = 5
_MAX_PIXELS = 200_000  # larger crops are shrunk: about a second for any size of video
_MIN_SHARE, _MAX_SHARE = 0.08, 0.97  # of the box; beyond them only the middle, or all of it, was segmented


def whole_box(height_px: int, width_px: int, box: Box) -> Region:
    """Return the region of all pixels in the box."""
    return np.asarray(Masks.of_box(height_px, width_px, box).ids > 0)


def object_in_box(image: UInt8[np.ndarray, "height width 3"], box: Box) -> Region:
    """Segment the object in the middle of a box, whose colours differ from those around the box.

    If it cannot be told apart from its surroundings the whole box is returned, with a note.
    """
    height, width, _ = image.shape
    whole = whole_box(height, width, box)
    rows, columns = _crop(whole)
    inside = whole[rows, columns]
    segmented = np.zeros_like(whole)
    if not inside.all():
        segmented[rows, columns] = _segmented(image[rows, columns], inside)
    if _MIN_SHARE <= segmented.sum() / whole.sum() <= _MAX_SHARE:
        return segmented
    corners = ",".join(f"{number:g}" for number in box)
    reason = "covers the whole frame" if inside.all() else "has the colours of what is around it"
    note(f"the box {corners} {reason}: all of it is annotated; draw a mask for a better outline")
    return whole


def masks_of_boxes(objects: Sequence[Region]) -> Masks:
    """Number objects 1, 2, ... in their order; where two overlap the smaller one wins."""
    ids = np.zeros(objects[0].shape, np.uint16)
    for number in sorted(range(len(objects)), key=lambda i: -int(objects[i].sum())):
        ids[objects[number]] = number + 1
    hidden = sorted(set(range(1, len(objects) + 1)) - set(np.unique(ids).tolist()))
    if hidden:
        raise LabelError(
            f"nothing is left of box {hidden[0]} beside the others", remedy="give one --box for each object"
        )
    return Masks(ids)


def _crop(whole: Region) -> tuple[slice, slice]:
    """Return the rows and columns of the box and its margin."""
    slices = []
    for axis in (1, 0):
        inside = np.flatnonzero(whole.any(axis=axis))
        margin = round(_AROUND * len(inside)) + 2
        slices.append(slice(max(int(inside[0]) - margin, 0), int(inside[-1]) + 1 + margin))
    return slices[0], slices[1]


def _segmented(image: UInt8[np.ndarray, "height width 3"], inside: Region) -> Region:
    """Segment the object in the middle of the region `inside`."""
    region = grab_cut(
        image,
        lambda _, shape: _first_guess(nearest(inside, *shape)),
        iterations=_ITERATIONS,
        max_pixels=_MAX_PIXELS,
        extra="assist",
    )
    return np.asarray(inside & region)


def _first_guess(inside: Region) -> Trimap:
    """Mark pixels outside the box as background, its middle as object, and its inscribed ellipse as probable object."""
    rows, columns = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
    y, x = np.mgrid[: inside.shape[0], : inside.shape[1]]
    distance = np.hypot(
        (y - rows.mean()) / max(len(rows) / 2, 1),
        (x - columns.mean()) / max(len(columns) / 2, 1),
    )
    probable = np.where(distance <= 1, PROBABLY_INSIDE, PROBABLY_OUTSIDE)
    trimap = np.where(distance <= _MIDDLE, INSIDE, probable)
    return np.asarray(np.where(inside, trimap, OUTSIDE), np.uint8)
