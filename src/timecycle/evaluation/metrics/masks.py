"""Region similarity J and boundary accuracy F of DAVIS."""

import math

import numpy as np
from jaxtyping import Bool

from timecycle.errors import SettingsError

TOLERANCE = 0.008  # of the image's diagonal: 8 px at 854x480


def jaccard(predicted: Bool[np.ndarray, "height width"], ground_truth: Bool[np.ndarray, "height width"]) -> float:
    """J of one frame: intersection over union; 1 if both masks are empty."""
    union = np.count_nonzero(predicted | ground_truth)
    return np.count_nonzero(predicted & ground_truth) / union if union else 1.0


def boundary(mask: Bool[np.ndarray, "height width"]) -> Bool[np.ndarray, "height width"]:
    """Return the boundary, one pixel wide: pixels that differ from the one to the right, below, or right below.

    Neighbours outside the image are ignored, so an object cut off by the image has no boundary there. The boundary
    lies half a pixel towards the top left of the true border, for prediction and ground truth alike.
    """
    edge = np.zeros_like(mask)
    edge[:, :-1] = mask[:, :-1] ^ mask[:, 1:]
    edge[:-1] |= mask[:-1] ^ mask[1:]
    edge[:-1, :-1] |= mask[:-1, :-1] ^ mask[1:, 1:]
    return edge


def tolerance_px(height_px: int, width_px: int, *, tolerance: float = TOLERANCE) -> int:
    """Return the distance within which boundaries match: `tolerance` of the image's diagonal, rounded up."""
    if not 0 <= tolerance < 1:
        raise SettingsError(
            f"the tolerance of boundaries is {tolerance:g}",
            remedy=f"give it as a fraction of the image's diagonal, {TOLERANCE} for DAVIS",
        )
    return math.ceil(tolerance * math.hypot(height_px, width_px))


def boundary_f(
    predicted: Bool[np.ndarray, "height width"],
    ground_truth: Bool[np.ndarray, "height width"],
    *,
    tolerance: float = TOLERANCE,
) -> float:
    """F of one frame: 2PR / (P + R), or 0 where P + R is 0.

    P is the share of the predicted boundary within `tolerance_px` of the true one (Euclidean distance between pixels),
    R the share of the true boundary within it of the predicted one. Two masks without boundary agree: F = 1. If only
    one has a boundary, F = 0. A mask that fills the image has no boundary.
    """
    radius = tolerance_px(*predicted.shape, tolerance=tolerance)
    edge, true_edge = boundary(predicted), boundary(ground_truth)
    box = _box(edge | true_edge)
    edge, true_edge = edge[box], true_edge[box]
    length, true_length = np.count_nonzero(edge), np.count_nonzero(true_edge)
    if not length or not true_length:
        return float(length == true_length)
    precision = np.count_nonzero(edge & _dilated(true_edge, radius)) / length
    recall = np.count_nonzero(true_edge & _dilated(edge, radius)) / true_length
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _box(mask: Bool[np.ndarray, "height width"]) -> tuple[slice, slice]:
    """Return the rows and columns of the mask's bounding box."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not rows.size:
        return slice(0, 0), slice(0, 0)
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


def _dilated(mask: Bool[np.ndarray, "height width"], radius: int) -> Bool[np.ndarray, "height width"]:
    """Dilate a mask by a disk.

    A disk is a stack of rows, the narrowest farthest from its middle. The mask is widened along its rows one step at a
    time, and each width is combined at the row offsets where the disk is that wide.
    """
    height, width = mask.shape
    wide = mask.copy()
    dilated = np.zeros_like(mask)
    offset = radius  # the largest row offset not yet combined
    for half in range(radius + 1):
        if 0 < half < width:
            wide[:, half:] |= mask[:, :-half]
            wide[:, :-half] |= mask[:, half:]
        while offset >= 0 and math.isqrt(radius**2 - offset**2) == half:
            if offset == 0:
                dilated |= wide
            elif offset < height:
                dilated[offset:] |= wide[:-offset]
                dilated[:-offset] |= wide[offset:]
            offset -= 1
    return dilated
