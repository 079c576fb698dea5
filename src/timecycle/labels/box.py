"""A box drawn around an object, and the object in it: GrabCut parts the colours inside from those around the box."""

from collections.abc import Sequence
from types import ModuleType

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from timecycle.errors import LabelError
from timecycle.extras import need
from timecycle.labels.masks import Masks
from timecycle.labels.notes import note
from timecycle.labels.space import nearest

Box = tuple[float, float, float, float]  # x0, y0, x1, y1 in pixels, edges included
Inside = Bool[np.ndarray, "height width"]

# Chosen on outlines moved across other footage (blobs, and bodies with limbs).
_AROUND = 0.5  # of the box's sides: how far around the box colours are looked at
_MIDDLE = 0.3  # of the box's half sides: this far from its middle everything is the object
_ROUNDS = 5
_PIXELS = 200_000  # a larger picture is made smaller: about a second, whatever the video's size
_LEAST, _MOST = 0.08, 0.97  # of the box: the middle alone, and all of it, say that nothing was found


def whole_box(height_px: int, width_px: int, box: Box) -> Inside:
    """Everything in the box."""
    return np.asarray(Masks.of_box(height_px, width_px, box).ids > 0)


def object_in_box(image: UInt8[np.ndarray, "height width 3"], box: Box) -> Inside:
    """Find the object that a box was drawn around: the one in the middle, whose colours are not those around the box.

    Where it cannot be told from what is around it the whole box is taken, with a note.
    """
    height, width, _ = image.shape
    whole = whole_box(height, width, box)
    rows, columns = _crop(whole)
    inside = whole[rows, columns]
    found = np.zeros_like(whole)
    if not inside.all():
        found[rows, columns] = _grab_cut(image[rows, columns], inside)
    share = found.sum() / whole.sum()
    if _LEAST <= share <= _MOST:
        return found
    words = ",".join(f"{number:g}" for number in box)
    why = "covers the whole frame" if inside.all() else "has the colours of what is around it"
    note(f"the box {words} {why}: all of it is annotated; draw a mask for a better outline")
    return whole


def masks_of_boxes(objects: Sequence[Inside]) -> Masks:
    """Number objects 1, 2, ... in their order; where two overlap the smaller one is in front."""
    ids = np.zeros(objects[0].shape, np.uint16)
    for number in sorted(range(len(objects)), key=lambda i: -int(objects[i].sum())):
        ids[objects[number]] = number + 1
    hidden = sorted(set(range(1, len(objects) + 1)) - set(np.unique(ids).tolist()))
    if hidden:
        raise LabelError(
            f"nothing is left of box {hidden[0]} beside the others", remedy="give one --box for each object"
        )
    return Masks(ids)


def _crop(whole: Inside) -> tuple[slice, slice]:
    """The box and what is around it, as rows and columns."""
    slices = []
    for axis in (1, 0):
        taken = np.flatnonzero(whole.any(axis=axis))
        around = round(_AROUND * len(taken)) + 2
        slices.append(slice(max(int(taken[0]) - around, 0), int(taken[-1]) + 1 + around))
    return slices[0], slices[1]


def _grab_cut(image: UInt8[np.ndarray, "height width 3"], inside: Inside) -> Inside:
    """Part the object in the middle of `inside` from the rest."""
    cv2 = need("cv2", extra="assist")
    height, width = inside.shape
    scale = min((_PIXELS / inside.size) ** 0.5, 1.0)
    size = max(round(width * scale), 1), max(round(height * scale), 1)
    small = np.array(Image.fromarray(image).resize(size, Image.Resampling.BOX))
    known = _first_guess(cv2, nearest(inside, size[1], size[0]))
    cv2.setRNGSeed(0)  # its mixtures of colours begin at random
    cv2.grabCut(small, known, None, np.zeros((1, 65)), np.zeros((1, 65)), _ROUNDS, cv2.GC_INIT_WITH_MASK)
    shape = np.isin(known, (cv2.GC_FGD, cv2.GC_PR_FGD))
    large = Image.fromarray(shape.astype(np.uint8) * np.uint8(255)).resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(inside & (np.array(large) >= 128))


def _first_guess(cv2: ModuleType, inside: Inside) -> UInt8[np.ndarray, "height width"]:
    """Outside the box nothing is the object, its middle is, and of the rest what lies in the ellipse may be."""
    rows, columns = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
    y, x = np.mgrid[: inside.shape[0], : inside.shape[1]]
    away = np.hypot(
        (y - rows.mean()) / max(len(rows) / 2, 1),
        (x - columns.mean()) / max(len(columns) / 2, 1),
    )
    maybe = np.where(away <= 1, cv2.GC_PR_FGD, cv2.GC_PR_BGD)
    sure = np.where(away <= _MIDDLE, cv2.GC_FGD, maybe)
    return np.asarray(np.where(inside, sure, cv2.GC_BGD), np.uint8)
