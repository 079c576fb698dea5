"""Predicted points, read back from a clip's folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64

from timecycle.errors import LabelError
from timecycle.evaluation.layout import and_more
from timecycle.labels import Keypoints


@dataclass(frozen=True, eq=False)
class Points:
    """Predicted points over some frames."""

    xy: Float64[np.ndarray, "frames points 2"]  # NaN where not visible
    visible: Bool[np.ndarray, "frames points"]


def read_points(folder: Path, frames: Sequence[int], names: Sequence[str]) -> Points:
    """Predicted points FOLDER/00000.csv of these frames, in the order of `names`."""
    missing = [name for name in (f"{frame:05d}.csv" for frame in frames) if not (folder / name).is_file()]
    if missing:
        raise LabelError(
            f"{folder} lacks {and_more(missing)}", remedy="give one file per frame, counted from 00000.csv"
        )
    read = [_ordered(folder / f"{frame:05d}.csv", names) for frame in frames]
    visible = np.stack([points.visible for points in read])
    xy = np.stack([points.xy for points in read]).astype(np.float64)
    return Points(np.where(visible[..., None], xy, np.nan), visible)


def _ordered(path: Path, names: Sequence[str]) -> Keypoints:
    points = Keypoints.read(path)
    if set(points.names) != set(names):
        strange = sorted(set(points.names) ^ set(names))
        raise LabelError(
            f"{path} does not place the points asked for: it differs in {', '.join(strange[:3])}",
            remedy=f"give one row for each of {', '.join(names)}, with visible 0 where it is hidden",
        )
    order = [points.names.index(name) for name in names]
    return Keypoints(tuple(names), points.xy[order], points.visible[order])
