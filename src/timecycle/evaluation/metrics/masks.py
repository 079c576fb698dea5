"""Scores of masks: J and F of DAVIS in a frame and over time, and their means over all objects."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Integer

from timecycle.errors import LabelError, SettingsError

TOLERANCE = 0.008  # of the image's diagonal: 8 px at 854x480

# Object ids of one frame, predicted and true; 0 is the background.
FramePair = tuple[Integer[np.ndarray, "height width"], Integer[np.ndarray, "_ _"]]


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
    return score_frames(zip(predicted_ids, ground_truth_ids, strict=True))


def score_frames(frames: Iterable[FramePair]) -> list[ObjectScores]:
    """Return J and F per frame of every object in the first true frame, by rising id; holds two frames at a time.

    The first frame is given and the last is not scored. An object missing in a prediction is an empty mask there; ids
    that the first true frame lacks are background, in ground truth and prediction. Every id is an object, also 255.
    """
    scored = _all_but_last(frames)
    _, first = next(scored)
    # The official evaluator takes all numbers up to the highest. An id that is skipped, or enters later, was never
    # given to the method and would score 1 as long as it is not predicted; ids of DAVIS have no such gaps.
    ids = [int(i) for i in np.unique(first) if i != 0]
    if not ids:
        raise LabelError(
            "the first frame of the ground truth has no object",
            remedy="score a sequence whose first frame is annotated",
        )
    j: dict[int, list[float]] = {i: [] for i in ids}
    f: dict[int, list[float]] = {i: [] for i in ids}
    for predicted, ground_truth in scored:
        for i in ids:
            j[i].append(jaccard(predicted == i, ground_truth == i))
            f[i].append(boundary_f(predicted == i, ground_truth == i))
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
    for predicted, ground_truth in frames:
        if predicted.shape != ground_truth.shape:
            raise LabelError(
                f"frame {count} was predicted as {_size(predicted)} but its ground truth is {_size(ground_truth)}",
                remedy="predict masks at the size of the ground truth",
            )
        if before is not None:
            yield before
        before = predicted, ground_truth
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
