"""GrabCut of OpenCV on a part of a frame: separates what is marked as inside from what is marked as outside."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from timecycle.extras import import_extra

OUTSIDE, INSIDE, PROBABLY_OUTSIDE, PROBABLY_INSIDE = 0, 1, 2, 3  # the values of a trimap, as OpenCV numbers them

Region = Bool[np.ndarray, "height width"]
Trimap = UInt8[np.ndarray, "height width"]


def grab_cut(
    image: UInt8[np.ndarray, "height width 3"],
    trimap_of: Callable[[float, tuple[int, int]], Trimap],
    *,
    iterations: int,
    max_pixels: int,
    extra: str,
    keep: Callable[[float, Region], Region] = lambda _, region: region,
) -> Region:
    """Segment an image that is first shrunk to at most `max_pixels`.

    trimap_of: makes the trimap for a scale and the (height, width) of the shrunken image.
    extra: the optional dependencies that bring OpenCV, for the message where it is missing.
    keep: chooses from the pieces of the result, given the scale and the shrunken result.
    """
    cv2 = import_extra("cv2", extra=extra)
    height, width, _ = image.shape
    scale = min((max_pixels / (height * width)) ** 0.5, 1.0)
    size = max(round(width * scale), 1), max(round(height * scale), 1)
    small = np.array(Image.fromarray(image).resize(size, Image.Resampling.BOX))
    trimap = trimap_of(scale, (size[1], size[0]))
    likely = _inside(trimap)
    if likely.any() and not likely.all():
        cv2.setRNGSeed(0)  # GrabCut initialises its colour mixtures at random
        cv2.grabCut(small, trimap, None, np.zeros((1, 65)), np.zeros((1, 65)), iterations, cv2.GC_INIT_WITH_MASK)
    shape = keep(scale, _inside(trimap))
    large = Image.fromarray(shape.astype(np.uint8) * np.uint8(255)).resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(np.array(large) >= 128)


def touching(region: Region, seeds: Region, *, extra: str) -> Region:
    """Keep the connected pieces of a region that seeds touch."""
    cv2 = import_extra("cv2", extra=extra)
    _, pieces = cv2.connectedComponents(region.astype(np.uint8))
    return np.asarray(region & np.isin(pieces, np.unique(pieces[seeds & region])))


def _inside(trimap: Trimap) -> Region:
    return np.isin(trimap, (INSIDE, PROBABLY_INSIDE))
