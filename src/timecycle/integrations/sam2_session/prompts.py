"""Prompts of a person, as regions: masks as they are, boxes by GrabCut, clicks as corrections of a region."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Shaped, UInt8, UInt16
from torch import Tensor

import timecycle as tc
from timecycle.errors import LabelError
from timecycle.labels.box import object_in_box, whole_box
from timecycle.labels.clicks import Click, corrected_by_clicks
from timecycle.labels.grab_cut import Region

Image = UInt8[np.ndarray, "height width 3"]


@dataclass(frozen=True, eq=False)
class Clicks:
    """Clicks on one object of one frame, the region that they correct, and as far as it may extend."""

    start: Region
    within: Region | None
    inside: Sequence[Click] = ()
    outside: Sequence[Click] = ()

    def region(self, image: Image) -> Region:
        """Return the corrected region."""
        if not self.inside and not self.outside:
            return self.start
        return corrected_by_clicks(image, self.start, inside=self.inside, outside=self.outside, within=self.within)


def start_of_box(image: Image, box: Any, *, scale: tuple[float, float]) -> Clicks:
    """Segment the object in a box x0, y0, x1, y1, which clicks may correct within the box."""
    corners = _array(box, "box").reshape(-1)
    if len(corners) != 4 or not np.isfinite(corners).all():
        raise LabelError(f"the box is {corners.tolist()}", remedy="pass box=[x0, y0, x1, y1] in pixels")
    x0, y0, x1, y1 = np.round((corners.reshape(2, 2) * scale).ravel(), 3).tolist()  # shares of the frame are inexact
    height, width, _ = image.shape
    return Clicks(object_in_box(image, (x0, y0, x1, y1)), whole_box(height, width, (x0, y0, x1, y1)))


def parse_clicks(
    points: Any, labels: Any, *, scale: tuple[float, float], size: tuple[int, int]
) -> tuple[list[Click], list[Click]]:
    """Return the clicks inside (label 1) and outside (label 0) of the object, in pixels."""
    if (points is None) != (labels is None):
        raise LabelError(
            f"{'labels' if points is None else 'points'} were passed alone",
            remedy="pass points=[[x, y], ...] and labels=[1, ...] together: 1 is inside the object, 0 is outside",
        )
    if points is None:
        return [], []
    numbers, inside = _array(points, "points").reshape(-1), _array(labels, "labels").reshape(-1)
    if len(numbers) % 2:
        raise LabelError(f"the points have {len(numbers)} numbers", remedy="pass points=[[x, y], ...] in pixels")
    xy = numbers.reshape(-1, 2) * scale
    if len(xy) != len(inside) or not np.isin(inside, (0, 1)).all():
        raise LabelError(
            f"there are {len(xy)} points and the labels {[float(f'{one:g}') for one in inside.tolist()]}",
            remedy="pass a label for every point: 1 is inside the object, 0 is outside",
        )
    height, width = size
    for x, y in xy.tolist():
        if not (0 <= x <= width and 0 <= y <= height):
            raise LabelError(
                f"the point {x:g},{y:g} lies outside of the {width}x{height} frame",
                remedy="pass points as x, y in pixels",
            )
    clicks = [(float(x), float(y)) for x, y in xy.tolist()]
    return [clicks[i] for i in np.flatnonzero(inside == 1)], [clicks[i] for i in np.flatnonzero(inside == 0)]


def region_of_mask(mask: Any, size: tuple[int, int]) -> Region:
    """Return a mask prompt as a region; it must have the size of the video."""
    region = _array(mask, "mask") > 0
    if region.shape != size:
        raise LabelError(
            f"the mask has the shape {region.shape} but the video's frames are {size[1]}x{size[0]}",
            remedy=f"pass a mask of shape {size}: height, width",
        )
    return region


def nothing_to_correct(obj_id: object, frame_idx: int) -> LabelError:
    """Return the error for clicks on an object that has no region on the frame."""
    return LabelError(
        f"object {obj_id} has no mask on frame {frame_idx} that clicks could correct, and a click alone does not say "
        "how far an object extends: colours and descriptors do not know objects, as SAM 2's network does",
        remedy="pass box=[x0, y0, x1, y1] with the points, or a mask to add_new_mask; after propagate_in_video, clicks "
        "correct any frame it has yielded",
    )


def paint(ids: UInt16[np.ndarray, "height width"], regions: Mapping[int, Region]) -> None:
    """Write the numbers of regions into a map of ids; where two overlap the smaller one wins."""
    for number in sorted(regions, key=lambda one: -int(regions[one].sum())):
        ids[regions[number]] = number


def annotation_of(regions: Mapping[int, Region], objects: Mapping[int, object], frame_idx: int) -> tc.Masks:
    """Merge the regions of objects, by their numbers, into one annotation; where two overlap the smaller one wins.

    objects: all objects of the session: what the caller calls them, by number.
    """
    ids = np.zeros(next(iter(regions.values())).shape, np.uint16)
    paint(ids, regions)
    hidden = [objects[number] for number in regions if not (ids == number).any()]
    if hidden and regions.keys() != objects.keys():
        other = next(name for number, name in objects.items() if number not in regions)
        raise LabelError(
            f"object {hidden[0]} is absent from frame {frame_idx}, or covered by others there, and nothing is said of "
            f"object {other}",
            remedy=f"add a prompt for object {other} on frame {frame_idx} too",
        )
    return tc.Masks.of(ids, exhaustive=bool(hidden))


def _array(values: Any, name: str) -> Shaped[np.ndarray, "..."]:
    try:
        plain = values.detach().cpu().double() if isinstance(values, Tensor) else np.asarray(values)
        return np.asarray(plain, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise LabelError(f"the {name} cannot be read as numbers: {error}", remedy="pass an array or lists") from error
