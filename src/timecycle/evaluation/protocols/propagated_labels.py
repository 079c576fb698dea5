"""Propagated labels of a clip as files 00000.png or 00000.csv: writing them, and reading keypoints back."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64

from timecycle.errors import LabelError
from timecycle.evaluation.benchmark import Clip, OnFrame
from timecycle.evaluation.methods.method import Method, Prediction
from timecycle.evaluation.protocols.dataset import first_and_count
from timecycle.labels import Keypoints
from timecycle.labels.label_map import upsample
from timecycle.propagation.settings import PropagateConfig
from timecycle.video import open_video

SCORES = "scores.csv"  # frame,pair,score: the mean posterior of each part instance


@dataclass(frozen=True, eq=False)
class PredictedKeypoints:
    """Predicted keypoints of several frames."""

    xy: Float64[np.ndarray, "frames points 2"]  # NaN where not visible
    visible: Bool[np.ndarray, "frames points"]


def propagate_labels(clip: Clip, method: Method, config: PropagateConfig, folder: Path, *, on_frame: OnFrame) -> None:
    """Write the labels of the annotated frame and of all frames after it, and for parts a score of each instance."""
    rows: list[tuple[int, int, str]] = []
    with open_video(clip.frames) as video:
        for prediction in method.propagate(video, clip.annotated_frame, clip.read_annotation(), config):
            prediction.labels.write(folder / f"{prediction.index:05d}{prediction.labels.suffix}")
            rows += [(prediction.index, pair, f"{score:.6f}") for pair, score in _posteriors(prediction).items()]
            on_frame()
    if rows:
        with (folder / SCORES).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("frame", "pair", "score"), *rows])


def read_keypoints(folder: Path, frames: Sequence[int], names: Sequence[str]) -> PredictedKeypoints:
    """Read FOLDER/00000.csv of every frame in `frames`, with the points in the order of `names`."""
    missing = [name for name in (f"{frame:05d}.csv" for frame in frames) if not (folder / name).is_file()]
    if missing:
        raise LabelError(
            f"{folder} lacks {first_and_count(missing)}", remedy="give one file per frame, counted from 00000.csv"
        )
    ordered = [_read_ordered(folder / f"{frame:05d}.csv", names) for frame in frames]
    visible = np.stack([points.visible for points in ordered])
    xy = np.stack([points.xy for points in ordered]).astype(np.float64)
    return PredictedKeypoints(np.where(visible[..., None], xy, np.nan), visible)


def _posteriors(prediction: Prediction) -> dict[int, float]:
    """Return the mean posterior inside every part instance: propagation has no detection score to rank them by."""
    pairs = prediction.labels.instances()
    if pairs is None or prediction.label_map is None:
        return {}
    # Every pixel takes its strongest channel, so the highest posterior is that of its own instance.
    strongest = upsample(prediction.label_map.values, prediction.label_map.grid).amax(dim=0).clamp(0, 1).numpy()
    return {int(pair): float(strongest[pairs == pair].mean()) for pair in np.unique(pairs) if pair != 0}


def _read_ordered(path: Path, names: Sequence[str]) -> Keypoints:
    points = Keypoints.read(path)
    if set(points.names) != set(names):
        different = sorted(set(points.names) ^ set(names))
        raise LabelError(
            f"{path} has other keypoints than the benchmark: they differ in {', '.join(different[:3])}",
            remedy=f"give one row for each of {', '.join(names)}, with visible 0 where it is hidden",
        )
    order = [points.names.index(name) for name in names]
    return Keypoints(tuple(names), points.xy[order], points.visible[order])
