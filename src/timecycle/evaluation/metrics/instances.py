"""AP^r of VIP: how well part instances are found, over all frames and at nine degrees of overlap.

An instance is a part of a person, such as the left arm of the second one: it has a class (left arm) and an id.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Integer

from timecycle.errors import LabelError

# Written out, because multiples of 0.1 miss some of these numbers by a rounding error.
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Claim:
    """What a prediction says of one of its ids."""

    klass: int
    score: float  # higher is surer; only the order of scores matters

    def __post_init__(self) -> None:
        if not math.isfinite(self.score):
            raise LabelError(f"an instance has the score {self.score}", remedy="give finite scores, or all the same")


@dataclass(frozen=True)
class Match:
    """A predicted instance and its best overlap with a true one of the same class in the same frame."""

    klass: int
    score: float
    iou: float  # 0 if the frame has no true instance of this class


@dataclass(frozen=True)
class FrameMatches:
    """All that AP^r needs to know of a frame."""

    matches: tuple[Match, ...]
    truth_count: Mapping[int, int]  # number of true instances of each class


@dataclass(frozen=True)
class ApR:
    """AP^r over all frames, in fractions."""

    mean: float  # AP^r_vol: over the thresholds
    per_threshold: Mapping[float, float]  # mean over classes
    per_class: Mapping[int, float]  # mean over thresholds


def match_frame(
    predicted_ids: Integer[np.ndarray, "height width"],
    claims: Mapping[int, Claim],
    truth_ids: Integer[np.ndarray, "_ _"],
    truth_classes: Mapping[int, int],
) -> FrameMatches:
    """Each predicted instance's best IoU with a true one of its class, and the number of true ones per class.

    Both maps hold an instance id per pixel, 0 for none; the ids of one need not be those of the other. Instances
    that are described but have no pixel do not exist.
    """
    if predicted_ids.shape != truth_ids.shape:
        raise LabelError(
            f"the prediction has the shape {predicted_ids.shape} but the truth {truth_ids.shape}",
            remedy="predict instances at the size of the truth",
        )
    ours, our_index = np.unique(predicted_ids, return_inverse=True)
    theirs, their_index = np.unique(truth_ids, return_inverse=True)
    _demand_known("prediction", ours, claims)
    _demand_known("truth", theirs, truth_classes)
    pairs = our_index.ravel() * len(theirs) + their_index.ravel()
    both = np.bincount(pairs, minlength=len(ours) * len(theirs)).reshape(len(ours), len(theirs))
    iou = both / (both.sum(axis=1, keepdims=True) + both.sum(axis=0, keepdims=True) - both)
    klass = {column: truth_classes[int(i)] for column, i in enumerate(theirs) if i != 0}
    matches = []
    for row, i in enumerate(ours):
        if i != 0:
            claim = claims[int(i)]
            same = [float(iou[row, column]) for column, other in klass.items() if other == claim.klass]
            matches.append(Match(claim.klass, claim.score, max(same, default=0.0)))
    return FrameMatches(tuple(matches), Counter(klass.values()))


def average_precision(matches: Sequence[Match], truth_count: int, threshold: float) -> float:
    """Area under the monotone envelope of precision over recall (VOC 2010) for one class.

    A prediction is right if its best IoU exceeds the threshold. Recall is the number of right predictions over that
    of all true instances, and the precision at a recall is the best one reached at that recall or a higher one.
    Predictions of equal score are taken together: a point of the curve is set only where the score changes, so the
    order in which they come does not matter, and constant scores give precision * recall of the whole.

    As in the official evaluator, matching is not one to one: several predictions may be right about the same true
    instance. At thresholds below one half recall can then exceed 1, and so, in principle, can the area.
    With no true instance every prediction is a false alarm and the value is 0.
    """
    if not matches or not truth_count:
        return 0.0
    score = np.array([match.score for match in matches], np.float64)
    order = np.argsort(-score, kind="stable")
    score = score[order]
    right = np.cumsum(np.array([match.iou > threshold for match in matches])[order])
    ends = np.append(np.flatnonzero(np.diff(score)), len(score) - 1)
    recall = right[ends] / truth_count
    precision = right[ends] / (ends + 1)
    return _area_under_envelope(recall, precision)


def ap_r(frames: Iterable[FrameMatches], *, thresholds: Sequence[float] = THRESHOLDS) -> ApR:
    """AP^r: predictions of a class are pooled over all frames, AP is averaged over classes, then over thresholds.

    A class is averaged if it has a true instance or a prediction anywhere. One with predictions only counts 0: to
    invent a class must not be free. (The official evaluator divides by zero there, and counts a class with neither
    as 0; where every class has a true instance, as in VIP, none of this matters.)
    """
    matches: dict[int, list[Match]] = {}
    truth_count: Counter[int] = Counter()
    for frame in frames:
        truth_count.update(frame.truth_count)
        for match in frame.matches:
            matches.setdefault(match.klass, []).append(match)
    klasses = sorted(set(matches) | {klass for klass, count in truth_count.items() if count})
    if not klasses:
        raise LabelError("no frame has an instance, true or predicted", remedy="score frames with labelled instances")
    ap = np.array(
        [[average_precision(matches.get(k, []), truth_count[k], t) for t in thresholds] for k in klasses], np.float64
    )
    return ApR(
        mean=float(ap.mean()),
        per_threshold=dict(zip(thresholds, ap.mean(axis=0).tolist(), strict=True)),
        per_class=dict(zip(klasses, ap.mean(axis=1).tolist(), strict=True)),
    )


def _area_under_envelope(recall: Float64[np.ndarray, " points"], precision: Float64[np.ndarray, " points"]) -> float:
    """Recall rises along the points; each gain in it weighs the best precision from there on."""
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * envelope))


def _demand_known(name: str, ids: Integer[np.ndarray, " n"], described: Mapping[int, object]) -> None:
    strange = [int(i) for i in ids if i != 0 and int(i) not in described]
    if strange:
        raise LabelError(
            f"the {name} shows instance {strange[0]}, whose class is not given",
            remedy="describe every id of the map but 0",
        )
