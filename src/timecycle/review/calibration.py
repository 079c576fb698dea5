"""What corrected frames tell of confidence: whether labels that claimed 0.8 were worth 0.8 on this video.

A frame that was drawn anew has the labels that were there before, how sure they were, and now the truth. Through such
pairs goes the nearest curve that never falls (isotonic regression): the order of frames stays, the numbers become those
of the footage at hand.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from timecycle.errors import LabelError, OutputError
from timecycle.labels import KINDS, Keypoints, Labels, Masks, Parts
from timecycle.labels.annotated import Objects
from timecycle.outputs import label_path
from timecycle.propagation.confidence import UNSEEN, least_sure, state_of
from timecycle.review.corrections import Correction, history
from timecycle.review.judged import Judged, read_run

_BELIEF = 3.0  # how many corrected objects the numbers as they come are worth
_KNOTS = np.linspace(0, 1, 11)
_NEAR = 1 / 40  # of the shorter side: a point that was moved less was right; 12 pixels of 480, a cell and a half


@dataclass(frozen=True)
class Known:
    """An object on a corrected frame: how sure its labels were, and how right they turned out to be, 0 to 1."""

    confidence: float
    right: float


@dataclass(frozen=True, eq=False)
class Calibration:
    """A curve from confidence as it comes to confidence as it should be."""

    given: Float[np.ndarray, " knots"]
    meant: Float[np.ndarray, " knots"]
    corrected: int  # objects it was learned from

    def __call__(self, confidence: float) -> float:
        return float(np.interp(confidence, self.given, self.meant))


def calibrate(known: Sequence[Known]) -> Calibration:
    """The curve that fits what is known; where nothing is, confidence stays as it comes."""
    given = np.concatenate([_KNOTS, [one.confidence for one in known]])
    right = np.concatenate([_KNOTS, [one.right for one in known]])
    weight = np.concatenate([np.full(len(_KNOTS), _BELIEF / len(_KNOTS)), np.ones(len(known))])
    order = np.argsort(given, kind="stable")
    return Calibration(given[order], rising(right[order], weight[order]), len(known))


def rising(values: Float[np.ndarray, " points"], weight: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
    """The nearest sequence that never falls, by weighted squares: neighbours that fall are pooled into their mean."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, points
    for value, share in zip(values.tolist(), weight.tolist(), strict=True):
        pools.append((value, share, 1))
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (a, a_share, a_points), (b, b_share, b_points) = pools[-2:]
            share_of_both = a_share + b_share
            pools[-2:] = [((a * a_share + b * b_share) / share_of_both, share_of_both, a_points + b_points)]
    return np.concatenate([np.full(points, mean) for mean, _, points in pools])


def corrected(folder: Path) -> list[Known]:
    """What the corrections of a run tell; drawings that were drawn anew tell nothing, they were certain."""
    record = read_run(folder)
    kind = KINDS[record["labels"]["kind"]]
    near_px = _NEAR * min(record["video"]["width_px"], record["video"]["height_px"])
    return [
        known
        for entry in history(folder)
        for index, objects in entry.objects.items()
        for known in _known(folder, entry, index, objects, kind, near_px)
    ]


def calibrated(judged: Judged, calibration: Calibration) -> Judged:
    """A run whose confidence is read by the curve; drawn frames stay certain."""
    drawn = set(judged.drawings)
    objects = {
        index: of_frame
        if index in drawn
        else {
            name: replace(one, confidence=value, state=one.state if one.state in UNSEEN else state_of(value))
            for name, one in of_frame.items()
            for value in (round(calibration(one.confidence), 4),)
        }
        for index, of_frame in judged.objects.items()
    }
    frames = []
    for frame in judged.frames:
        of_frame = objects.get(frame.index, {})
        name = least_sure(of_frame)
        least = of_frame[name] if name is not None else None
        frames.append(replace(frame, confidence=least.confidence, state=least.state) if least is not None else frame)
    return replace(judged, frames=frames, objects=objects)


def _known(
    folder: Path, entry: Correction, index: int, objects: Objects, kind: type[Labels], near_px: float
) -> Iterator[Known]:
    """What a corrected frame tells of the objects that were annotated on it; of others nobody said anything."""
    try:
        with (entry.folder / "frames.csv").open(encoding="utf-8", newline="") as file:
            (row,) = (row for row in csv.DictReader(file) if int(row["index"]) == index)
            drawn, number = row["source"] == "given", int(row["frame_number"])
        with (entry.folder / "objects.csv").open(encoding="utf-8", newline="") as file:
            told = {
                row["object"]: float(row["confidence"]) for row in csv.DictReader(file) if int(row["index"]) == index
            }
    except (OSError, ValueError, KeyError) as error:
        raise OutputError(
            f"the history in {entry.folder} cannot be read: {error}",
            remedy=f"remove {entry.folder.parent}: corrections stay, but can no longer be undone",
        ) from error
    if drawn:
        return
    was, now = (kind.read(label_path(place / "labels", number, kind)) for place in (entry.folder, folder))
    for name, confidence in told.items():
        if objects is not None and name not in objects:
            continue
        right = right_of(was, now, name, near_px)
        if right is not None:
            yield Known(confidence, right)


def right_of(was: Labels, now: Labels, name: str, near_px: float) -> float | None:
    """How right an object's labels were: the overlap of its outline, of a point whether it stayed. None: not there."""
    if isinstance(was, Keypoints) and isinstance(now, Keypoints):
        if name not in was.names or name not in now.names:
            return None
        a, b = was.names.index(name), now.names.index(name)
        if not now.visible[b]:
            return 0.0 if was.visible[a] else None
        off_px = float(np.hypot(*(was.xy[a] - now.xy[b])))  # NaN where it had no place: not right either
        return float(off_px <= near_px)
    one, other = (_values(labels) == int(name) for labels in (was, now))
    either = (one | other).sum()
    return float((one & other).sum() / either) if either else None


def _values(labels: Labels) -> Int[np.ndarray, "height width"]:
    """What names the object of every pixel."""
    if isinstance(labels, Parts):
        return labels.pairs
    if isinstance(labels, Masks):
        return labels.ids.astype(np.int64)
    raise LabelError(f"{labels.kind} cannot be corrected", remedy="carry them again from a better frame")
