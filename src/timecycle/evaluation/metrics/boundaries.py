"""Boundary accuracy F of DAVIS: how well the outlines of two masks meet, within a few pixels."""

import math

import numpy as np
from jaxtyping import Bool

from timecycle.errors import SettingsError

TOLERANCE = 0.008  # of the image's diagonal: 8 px at 854x480


def boundary(mask: Bool[np.ndarray, "height width"]) -> Bool[np.ndarray, "height width"]:
    """The outline, one pixel wide: pixels that differ from the one to the right, below, or right below.

    Neighbours outside the image are not asked, so an object cut off by the image has no outline there. The outline
    lies half a pixel towards the top left of the true border, for prediction and truth alike.
    """
    outline = np.zeros_like(mask)
    outline[:, :-1] = mask[:, :-1] ^ mask[:, 1:]
    outline[:-1] |= mask[:-1] ^ mask[1:]
    outline[:-1, :-1] |= mask[:-1, :-1] ^ mask[1:, 1:]
    return outline


def reach_px(height_px: int, width_px: int, *, tolerance: float = TOLERANCE) -> int:
    """How far apart outlines may be and still meet: `tolerance` of the image's diagonal, rounded up."""
    if not 0 <= tolerance < 1:
        raise SettingsError(
            f"the tolerance of boundaries is {tolerance:g}",
            remedy=f"give it as a fraction of the image's diagonal, {TOLERANCE} for DAVIS",
        )
    return math.ceil(tolerance * math.hypot(height_px, width_px))


def boundary_f(
    predicted: Bool[np.ndarray, "height width"],
    truth: Bool[np.ndarray, "height width"],
    *,
    tolerance: float = TOLERANCE,
) -> float:
    """F of one frame: 2PR / (P + R), or 0 where P + R is 0.

    P is the share of the predicted outline within reach of the true one (Euclidean distance between pixels, at most
    `reach_px`), R the share of the true outline within reach of the predicted one. Two masks without outline agree:
    F = 1. If only one has an outline, nothing of it is met: F = 0. A mask that fills the image has no outline.
    """
    reach = reach_px(*predicted.shape, tolerance=tolerance)
    ours, theirs = boundary(predicted), boundary(truth)
    box = _box(ours | theirs)
    ours, theirs = ours[box], theirs[box]
    our_length, their_length = np.count_nonzero(ours), np.count_nonzero(theirs)
    if not our_length or not their_length:
        return float(our_length == their_length)
    precision = np.count_nonzero(ours & _widened(theirs, reach)) / our_length
    recall = np.count_nonzero(theirs & _widened(ours, reach)) / their_length
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _box(mask: Bool[np.ndarray, "height width"]) -> tuple[slice, slice]:
    """The rows and columns that hold all of the mask."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not rows.size:
        return slice(0, 0), slice(0, 0)
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


def _widened(mask: Bool[np.ndarray, "height width"], reach: int) -> Bool[np.ndarray, "height width"]:
    """All pixels at most `reach` away from the mask: its dilation by a disk.

    A disk is a stack of rows, the narrowest farthest from its middle. So the mask is widened along its rows one step
    at a time, and each width is laid over the rows at the distances where the disk is that wide.
    """
    height, width = mask.shape
    wide = mask.copy()
    disk = np.zeros_like(mask)
    farther = reach  # the largest distance between rows not yet laid down
    for half in range(reach + 1):
        if 0 < half < width:
            wide[:, half:] |= mask[:, :-half]
            wide[:, :-half] |= mask[:, half:]
        while farther >= 0 and math.isqrt(reach**2 - farther**2) == half:
            if farther == 0:
                disk |= wide
            elif farther < height:
                disk[farther:] |= wide[:-farther]
                disk[:-farther] |= wide[farther:]
            farther -= 1
    return disk
