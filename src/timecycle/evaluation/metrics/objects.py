"""DAVIS scores of masks with several objects: J and F of each object, and their means over all objects."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Integer

from timecycle.errors import LabelError
from timecycle.evaluation.metrics.boundaries import boundary_f
from timecycle.evaluation.metrics.regions import jaccard
from timecycle.evaluation.metrics.summary import summarise


@dataclass(frozen=True, eq=False)
class FramePair:
    """Object ids of one frame as predicted and as they are, 0 for the background."""

    predicted: Integer[np.ndarray, "height width"]
    truth: Integer[np.ndarray, "_ _"]


@dataclass(frozen=True, eq=False)
class ObjectScores:
    """One object's scores on the frames between the first and the last, which are not scored."""

    id: int
    j: Float64[np.ndarray, " frames"]  # region similarity
    f: Float64[np.ndarray, " frames"]  # boundary accuracy


@dataclass(frozen=True, kw_only=True)
class DavisScores:
    """Means over objects, not over sequences: each object of a sequence weighs as much as one that is alone."""

    JF: float  # (J + F) / 2
    J: float
    J_recall: float
    J_decay: float
    F: float
    F_recall: float
    F_decay: float


def score_objects(
    predicted_ids: Integer[np.ndarray, "frames height width"], truth_ids: Integer[np.ndarray, "_ _ _"]
) -> list[ObjectScores]:
    """J and F per frame of every object of the truth's first frame, by rising id; see `score_frames`."""
    if len(predicted_ids) != len(truth_ids):
        raise LabelError(
            f"{len(predicted_ids)} frames were predicted but the truth has {len(truth_ids)}",
            remedy="predict every frame once, the first and the last too",
        )
    return score_frames(FramePair(p, g) for p, g in zip(predicted_ids, truth_ids, strict=True))


def score_frames(frames: Iterable[FramePair]) -> list[ObjectScores]:
    """J and F per frame of every object of the truth's first frame, by rising id; holds two frames at a time.

    The first frame is given and the last is not scored. An object missing in a prediction is an empty mask there;
    ids that the first frame does not show are background, in truth and prediction. Every id is an object, 255 too.
    """
    scored = _inner(frames)
    first = next(scored)
    # The official evaluator takes all numbers up to the highest. An id that is skipped, or enters later, was never
    # given to the method and would score 1 as long as nobody draws it; ids of DAVIS have no such gaps.
    ids = [int(i) for i in np.unique(first.truth) if i != 0]
    if not ids:
        raise LabelError(
            "the first frame of the truth shows no object", remedy="score a sequence whose first frame is labelled"
        )
    j: dict[int, list[float]] = {i: [] for i in ids}
    f: dict[int, list[float]] = {i: [] for i in ids}
    for pair in scored:
        for i in ids:
            predicted, truth = pair.predicted == i, pair.truth == i
            j[i].append(jaccard(predicted, truth))
            f[i].append(boundary_f(predicted, truth))
    return [ObjectScores(i, np.array(j[i]), np.array(f[i])) for i in ids]


def average_objects(objects: Sequence[ObjectScores]) -> DavisScores:
    """The scores of a data set, from the objects of all its sequences."""
    if not objects:
        raise LabelError("there is no object to average", remedy="score at least one sequence")
    j = [summarise(each.j) for each in objects]
    f = [summarise(each.f) for each in objects]
    j_mean, f_mean = _mean(each.mean for each in j), _mean(each.mean for each in f)
    return DavisScores(
        JF=(j_mean + f_mean) / 2,
        J=j_mean,
        J_recall=_mean(each.recall for each in j),
        J_decay=_mean(each.decay for each in j),
        F=f_mean,
        F_recall=_mean(each.recall for each in f),
        F_decay=_mean(each.decay for each in f),
    )


def _inner(frames: Iterable[FramePair]) -> Iterator[FramePair]:
    """The frames but the last; refused where none but the first would be left."""
    count = 0
    before: FramePair | None = None
    for pair in frames:
        if pair.predicted.shape != pair.truth.shape:
            raise LabelError(
                f"frame {count} was predicted as {_size(pair.predicted)} but its truth is {_size(pair.truth)}",
                remedy="predict masks at the size of the truth",
            )
        if before is not None:
            yield before
        before = pair
        count += 1
    if count < 3:
        raise LabelError(
            f"a sequence of {count} frames has none to score",
            remedy="give at least 3: the first is given to the method and the last is left out",
        )


def _size(ids: Integer[np.ndarray, "height width"]) -> str:
    height, width = ids.shape
    return f"{width}x{height}"


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
