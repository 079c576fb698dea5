"""Scores of parts: the mean IoU of classes over all frames, and AP^r of VIP, the average precision of instances.

An instance is a part of a person, such as the left arm of the second person: it has a class (left arm) and an id.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64, Integer

from timecycle.errors import LabelError

# Written out, because multiples of 0.1 differ from some of these numbers by a rounding error.
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def confusion(
    predicted: Integer[np.ndarray, "*shape"],
    ground_truth: Integer[np.ndarray, "..."],
    classes: int,
    *,
    ignore: int | None = None,
) -> Int64[np.ndarray, "{classes} {classes}"]:
    """Count the pixels of each true class (row) that were predicted as each class (column).

    Pixels whose true class is `ignore` are left out, whatever was predicted there. Matrices of frames add up.
    """
    if predicted.shape != ground_truth.shape:
        raise LabelError(
            f"the prediction has the shape {predicted.shape} but the ground truth {ground_truth.shape}",
            remedy="predict classes at the size of the ground truth",
        )
    predicted, ground_truth = predicted.ravel(), ground_truth.ravel()
    if ignore is not None:
        counted = ground_truth != ignore
        predicted, ground_truth = predicted[counted], ground_truth[counted]
    _check_classes("prediction", predicted, classes)
    _check_classes("ground truth", ground_truth, classes)
    pairs = ground_truth.astype(np.int64) * classes + predicted.astype(np.int64)
    return np.bincount(pairs, minlength=classes**2).astype(np.int64).reshape(classes, classes)


def iou_per_class(confusion: Int64[np.ndarray, "classes classes"]) -> Float64[np.ndarray, " classes"]:
    """Return the intersection over union of every class; NaN where neither ground truth nor prediction has it."""
    intersection = np.diag(confusion)
    union = confusion.sum(axis=0) + confusion.sum(axis=1) - intersection
    iou = np.full(intersection.shape, np.nan)
    np.divide(intersection, union, out=iou, where=union > 0)
    return iou


def mean_iou(confusion: Int64[np.ndarray, "classes classes"]) -> float:
    """Average over the classes that occur, including the background (VIP); NaN if nothing was counted.

    The matrix is that of all frames together: classes weigh the same, frames by their pixels.
    """
    known = iou_per_class(confusion)
    known = known[~np.isnan(known)]
    return float(known.mean()) if known.size else float("nan")


def _check_classes(name: str, ids: Integer[np.ndarray, " pixels"], classes: int) -> None:
    if ids.size and (ids.min() < 0 or ids.max() >= classes):
        raise LabelError(
            f"the {name} has classes from {ids.min()} to {ids.max()}, but there are {classes}",
            remedy=f"number them 0 to {classes - 1}, or pass the void id of the ground truth as ignore=",
        )


@dataclass(frozen=True)
class PredictedInstance:
    """Class and score of a predicted instance."""

    klass: int
    score: float  # only the order of scores matters

    def __post_init__(self) -> None:
        if not math.isfinite(self.score):
            raise LabelError(f"an instance has the score {self.score}", remedy="give finite scores, or all the same")


@dataclass(frozen=True)
class Match:
    """A predicted instance and its best IoU with a true instance of the same class in the same frame."""

    klass: int
    score: float
    iou: float  # 0 if the frame has no true instance of this class


@dataclass(frozen=True)
class FrameMatches:
    """The matches of a frame, from which AP^r is computed."""

    matches: tuple[Match, ...]
    ground_truth_count: Mapping[int, int]  # number of true instances of each class


@dataclass(frozen=True)
class ApR:
    """AP^r over all frames, in fractions."""

    mean: float  # AP^r_vol: over the thresholds
    per_threshold: Mapping[float, float]  # mean over classes
    per_class: Mapping[int, float]  # mean over thresholds


def match_frame(
    predicted_ids: Integer[np.ndarray, "height width"],
    instances: Mapping[int, PredictedInstance],
    ground_truth_ids: Integer[np.ndarray, "_ _"],
    ground_truth_classes: Mapping[int, int],
) -> FrameMatches:
    """Find each predicted instance's best IoU with a true one of its class, and count the true ones per class.

    Both maps hold an instance id per pixel, 0 for none; ids need not agree between the two. Instances without a pixel
    are ignored.
    """
    if predicted_ids.shape != ground_truth_ids.shape:
        raise LabelError(
            f"the prediction has the shape {predicted_ids.shape} but the ground truth {ground_truth_ids.shape}",
            remedy="predict instances at the size of the ground truth",
        )
    ids, index = np.unique(predicted_ids, return_inverse=True)
    true_ids, true_index = np.unique(ground_truth_ids, return_inverse=True)
    _check_described("prediction", ids, instances)
    _check_described("ground truth", true_ids, ground_truth_classes)
    pairs = index.ravel() * len(true_ids) + true_index.ravel()
    both = np.bincount(pairs, minlength=len(ids) * len(true_ids)).reshape(len(ids), len(true_ids))
    iou = both / (both.sum(axis=1, keepdims=True) + both.sum(axis=0, keepdims=True) - both)
    klass = {column: ground_truth_classes[int(i)] for column, i in enumerate(true_ids) if i != 0}
    matches = []
    for row, i in enumerate(ids):
        if i != 0:
            instance = instances[int(i)]
            same = [float(iou[row, column]) for column, other in klass.items() if other == instance.klass]
            matches.append(Match(instance.klass, instance.score, max(same, default=0.0)))
    return FrameMatches(tuple(matches), Counter(klass.values()))


def average_precision(matches: Sequence[Match], ground_truth_count: int, threshold: float) -> float:
    """Return the area under the monotone envelope of precision over recall (VOC 2010) for one class.

    A prediction is correct if its best IoU exceeds the threshold. Recall is the number of correct predictions over that
    of all true instances, and the precision at a recall is the best one at that recall or a higher one. Predictions of
    equal score are taken together: the curve has a point only where the score changes, so their order does not matter,
    and constant scores give precision * recall of the whole.

    As in the official evaluator, matching is not one to one: several predictions may match the same true instance.
    At thresholds below one half recall can then exceed 1, and so, in principle, can the area. Without true instances
    every prediction is a false positive and the value is 0.
    """
    if not matches or not ground_truth_count:
        return 0.0
    score = np.array([match.score for match in matches], np.float64)
    order = np.argsort(-score, kind="stable")
    score = score[order]
    correct = np.cumsum(np.array([match.iou > threshold for match in matches])[order])
    ends = np.append(np.flatnonzero(np.diff(score)), len(score) - 1)
    recall = correct[ends] / ground_truth_count
    precision = correct[ends] / (ends + 1)
    return _area_under_envelope(recall, precision)


def ap_r(frames: Iterable[FrameMatches], *, thresholds: Sequence[float] = THRESHOLDS) -> ApR:
    """Pool the predictions of a class over all frames, and average AP over classes, then over thresholds.

    A class is averaged if it has a true instance or a prediction anywhere. A class with predictions only counts 0.
    (The official evaluator divides by zero there, and counts a class with neither as 0; where every class has a true
    instance, as in VIP, this makes no difference.)
    """
    matches: dict[int, list[Match]] = {}
    ground_truth_count: Counter[int] = Counter()
    for frame in frames:
        ground_truth_count.update(frame.ground_truth_count)
        for match in frame.matches:
            matches.setdefault(match.klass, []).append(match)
    klasses = sorted(set(matches) | {klass for klass, count in ground_truth_count.items() if count})
    if not klasses:
        raise LabelError("no frame has an instance, true or predicted", remedy="score frames with labelled instances")
    ap = np.array(
        [[average_precision(matches.get(k, []), ground_truth_count[k], t) for t in thresholds] for k in klasses],
        np.float64,
    )
    return ApR(
        mean=float(ap.mean()),
        per_threshold=dict(zip(thresholds, ap.mean(axis=0).tolist(), strict=True)),
        per_class=dict(zip(klasses, ap.mean(axis=1).tolist(), strict=True)),
    )


def _area_under_envelope(recall: Float64[np.ndarray, " points"], precision: Float64[np.ndarray, " points"]) -> float:
    """Sum the gains in recall, each times the best precision from there on."""
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * envelope))


def _check_described(name: str, ids: Integer[np.ndarray, " n"], described: Mapping[int, object]) -> None:
    unknown = [int(i) for i in ids if i != 0 and int(i) not in described]
    if unknown:
        raise LabelError(
            f"the {name} has instance {unknown[0]}, whose class is not given",
            remedy="describe every id of the map but 0",
        )
