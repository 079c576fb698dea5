"""DAVIS scores: J and F of each object over time, their mean, recall and decay, and the means over all objects."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Integer

from timecycle.errors import LabelError
from timecycle.evaluation.metrics.masks import boundary_f, jaccard


@dataclass(frozen=True, eq=False)
class FramePair:
    """Object ids of one frame, predicted and true; 0 is the background."""

    predicted: Integer[np.ndarray, "height width"]
    ground_truth: Integer[np.ndarray, "_ _"]


@dataclass(frozen=True, eq=False)
class ObjectScores:
    """One object's scores on the frames between the first and the last, which are not scored."""

    id: int
    j: Float64[np.ndarray, " frames"]  # region similarity
    f: Float64[np.ndarray, " frames"]  # boundary accuracy


@dataclass(frozen=True)
class Summary:
    """J or F of one object over time, in fractions."""

    mean: float  # over frames
    recall: float  # share of frames above 0.5
    decay: float  # mean of the first quarter of the frames minus mean of the last


@dataclass(frozen=True, kw_only=True)
class DavisScores:
    """Means over objects, not over sequences: every object weighs the same."""

    JF: float  # (J + F) / 2
    J: float
    J_recall: float
    J_decay: float
    F: float
    F_recall: float
    F_decay: float


def score_objects(
    predicted_ids: Integer[np.ndarray, "frames height width"], ground_truth_ids: Integer[np.ndarray, "_ _ _"]
) -> list[ObjectScores]:
    """Score all frames of a sequence at once; see `score_frames`."""
    if len(predicted_ids) != len(ground_truth_ids):
        raise LabelError(
            f"{len(predicted_ids)} frames were predicted but the ground truth has {len(ground_truth_ids)}",
            remedy="predict every frame once, the first and the last too",
        )
    return score_frames(FramePair(p, g) for p, g in zip(predicted_ids, ground_truth_ids, strict=True))


def score_frames(frames: Iterable[FramePair]) -> list[ObjectScores]:
    """Return J and F per frame of every object in the first true frame, by rising id; holds two frames at a time.

    The first frame is given and the last is not scored. An object missing in a prediction is an empty mask there; ids
    that the first true frame lacks are background, in ground truth and prediction. Every id is an object, also 255.
    """
    scored = _all_but_last(frames)
    first = next(scored)
    # The official evaluator takes all numbers up to the highest. An id that is skipped, or enters later, was never
    # given to the method and would score 1 as long as it is not predicted; ids of DAVIS have no such gaps.
    ids = [int(i) for i in np.unique(first.ground_truth) if i != 0]
    if not ids:
        raise LabelError(
            "the first frame of the ground truth has no object",
            remedy="score a sequence whose first frame is annotated",
        )
    j: dict[int, list[float]] = {i: [] for i in ids}
    f: dict[int, list[float]] = {i: [] for i in ids}
    for pair in scored:
        for i in ids:
            predicted, ground_truth = pair.predicted == i, pair.ground_truth == i
            j[i].append(jaccard(predicted, ground_truth))
            f[i].append(boundary_f(predicted, ground_truth))
    return [ObjectScores(i, np.array(j[i]), np.array(f[i])) for i in ids]


def average_objects(objects: Sequence[ObjectScores]) -> DavisScores:
    """Average the objects of all sequences into the scores of a dataset."""
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


def summarise(values: Float64[np.ndarray, " frames"]) -> Summary:
    """Return mean, recall (> 0.5) and decay of the frames' scores.

    Quarters run between the frames round(linspace(1, frames, 5)) - 1 and include the frames at both of their ends, so
    adjacent quarters share a frame, and the decay of a single frame is 0. Frames without a score (NaN) are left out of
    means and count as misses in recall.
    """
    if not values.size:
        raise LabelError("there is no frame to summarise", remedy="score at least one frame")
    # The small number rounds halves up, where rounding alone would go to the even neighbour. Indices are wide: the
    # official evaluator keeps them in 8 bits, so its decay goes wrong above 256 frames.
    borders = (np.round(np.linspace(1, len(values), 5) + 1e-10) - 1).astype(np.int64)
    first = values[: borders[1] + 1]
    last = values[borders[3] :]
    return Summary(_finite_mean(values), float(np.mean(values > 0.5)), _finite_mean(first) - _finite_mean(last))


def _all_but_last(frames: Iterable[FramePair]) -> Iterator[FramePair]:
    """Yield the frames but the last; refuse a sequence without a frame to score."""
    count = 0
    before: FramePair | None = None
    for pair in frames:
        if pair.predicted.shape != pair.ground_truth.shape:
            raise LabelError(
                f"frame {count} was predicted as {_size(pair.predicted)} "
                f"but its ground truth is {_size(pair.ground_truth)}",
                remedy="predict masks at the size of the ground truth",
            )
        if before is not None:
            yield before
        before = pair
        count += 1
    if count < 3:
        raise LabelError(
            f"a sequence of {count} frames has none to score",
            remedy="give at least 3: the first is given to the method and the last is not scored",
        )


def _size(ids: Integer[np.ndarray, "height width"]) -> str:
    height, width = ids.shape
    return f"{width}x{height}"


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _finite_mean(values: Float64[np.ndarray, " n"]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
