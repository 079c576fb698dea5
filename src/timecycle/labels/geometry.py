"""Measure the regions of an image of object ids: area, centroid, box, axes and mean intensity.

All sums of whole numbers below 2^53 are exact: measurements do not depend on where a region lies.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Shaped


@dataclass(frozen=True)
class Region:
    """The pixels of one object. Pixel centres lie at integers, as everywhere.

    The axes are those of the ellipse with the same second central moments as the pixel centres: four times the standard
    deviations along the two principal directions. The angle is that of the major axis, from the x axis towards the y
    axis, which points down: above -90 and up to 90 degrees; None where no direction is longer than the others.
    """

    area_px: int
    x_px: float  # centroid
    y_px: float
    left_px: int  # the box holds the columns from left to left + width - 1
    top_px: int
    width_px: int
    height_px: int
    major_axis_px: float
    minor_axis_px: float
    angle_degrees: float | None
    mean_intensity: float  # mean of all channels


def measure_regions(
    ids: Shaped[np.ndarray, "height width"], image: Shaped[np.ndarray, "height width *channels"]
) -> dict[int, Region]:
    """Measure every object of a frame, by its id in increasing order; 0 is the background.

    The image has values of any type, with or without channels.
    """
    rows, columns = np.flatnonzero(ids.any(axis=1)), np.flatnonzero(ids.any(axis=0))
    if not len(rows):
        return {}
    # Most of a frame is background: everything happens in the box around all objects.
    box = (slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
    y, x = np.nonzero(ids[box])
    values = ids[box][y, x]
    channels = image[box].reshape(*ids[box].shape, -1)
    intensity = sum(channels[y, x, channel].astype(np.float64) for channel in range(channels.shape[-1]))
    y += rows[0]
    x += columns[0]
    counts = np.bincount(values)
    present = np.flatnonzero(counts)
    position = np.zeros(len(counts), np.int64)
    position[present] = np.arange(len(present))
    member = position[values]
    sums = [_sums(member, weights) for weights in (x, y, x * x, y * y, x * y)]
    brightness = np.bincount(member, weights=intensity)
    left, top = np.full(len(present), ids.shape[1]), np.full(len(present), ids.shape[0])
    right, bottom = np.zeros(len(present), np.int64), np.zeros(len(present), np.int64)
    np.minimum.at(left, member, x)
    np.maximum.at(right, member, x)
    np.minimum.at(top, member, y)
    np.maximum.at(bottom, member, y)
    regions = {}
    for i, identity in enumerate(present.tolist()):
        n = int(counts[identity])
        sx, sy, sxx, syy, sxy = (one[i] for one in sums)
        # n squared times the covariance, exactly.
        major, minor, angle = _ellipse(n, n * sxx - sx * sx, n * syy - sy * sy, n * sxy - sx * sy)
        regions[identity] = Region(
            area_px=n,
            x_px=sx / n,
            y_px=sy / n,
            left_px=int(left[i]),
            top_px=int(top[i]),
            width_px=int(right[i] - left[i]) + 1,
            height_px=int(bottom[i] - top[i]) + 1,
            major_axis_px=major,
            minor_axis_px=minor,
            angle_degrees=angle,
            mean_intensity=float(brightness[i]) / (channels.shape[-1] * n),
        )
    return regions


def _sums(member: Int[np.ndarray, " pixels"], weights: Shaped[np.ndarray, " pixels"]) -> list[int]:
    """Sum whole numbers by object; as Python integers, which do not overflow when they are multiplied."""
    return [int(total) for total in np.bincount(member, weights=weights)]


def _ellipse(n: int, xx: int, yy: int, xy: int) -> tuple[float, float, float | None]:
    """Return the axes and the angle of the ellipse with a covariance of (xx, yy, xy) / n^2."""
    spread = math.hypot(xx - yy, 2 * xy)
    largest, smallest = (xx + yy + spread) / 2, max((xx + yy - spread) / 2, 0.0)
    if xx == yy and xy == 0:
        return 4 * math.sqrt(largest) / n, 4 * math.sqrt(smallest) / n, None
    angle = math.degrees(math.atan2(2 * xy, xx - yy)) / 2
    return 4 * math.sqrt(largest) / n, 4 * math.sqrt(smallest) / n, 90.0 if angle == -90 else angle
