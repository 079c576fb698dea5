"""Calibration of confidence on corrected frames: did labels with confidence 0.8 have an accuracy of 0.8 on this video?

A corrected frame has the labels that were there before, their confidence, and now the ground truth. Isotonic regression
through such pairs keeps the order of frames and adapts the numbers to the footage at hand.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from timecycle.confidence.fusion import UNSEEN, least_confident, state_of
from timecycle.errors import OutputError
from timecycle.labels import KINDS, Labels
from timecycle.labels.space import Objects
from timecycle.runs.folder import OutputFolder
from timecycle.runs.history import HistoryEntry, read_history
from timecycle.runs.tables import RunTables

_PRIOR_WEIGHT = 3.0  # of uncalibrated confidence, in corrected objects
_PRIOR = np.linspace(0, 1, 11)
_TOLERANCE = 1 / 40  # of the shorter side, 12 pixels of 480: a keypoint that was moved less was right


# Of an object on a corrected frame: the confidence of its old labels, and their accuracy, from 0 to 1.
Corrected = tuple[float, float]
Calibration = Callable[[float], float]  # from confidence as estimated to calibrated confidence


def calibrate(corrected: Sequence[Corrected]) -> Calibration:
    """Fit the curve to corrected objects; far from all of them confidence stays nearly as it is."""
    estimated = np.concatenate([_PRIOR, [confidence for confidence, _ in corrected]])
    accuracy = np.concatenate([_PRIOR, [accuracy for _, accuracy in corrected]])
    weight = np.concatenate([np.full(len(_PRIOR), _PRIOR_WEIGHT / len(_PRIOR)), np.ones(len(corrected))])
    order = np.argsort(estimated, kind="stable")
    calibrated = isotonic(accuracy[order], weight[order])
    return lambda confidence: float(np.interp(confidence, estimated[order], calibrated))


def isotonic(
    values: Float[np.ndarray, " points"], weight: Float[np.ndarray, " points"]
) -> Float[np.ndarray, " points"]:
    """Return the nearest non-decreasing sequence by weighted least squares (pool adjacent violators)."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, points
    for value, share in zip(values.tolist(), weight.tolist(), strict=True):
        pools.append((value, share, 1))
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (a, a_share, a_points), (b, b_share, b_points) = pools[-2:]
            share_of_both = a_share + b_share
            pools[-2:] = [((a * a_share + b * b_share) / share_of_both, share_of_both, a_points + b_points)]
    return np.concatenate([np.full(points, mean) for mean, _, points in pools])


def corrected_objects(run: OutputFolder) -> list[Corrected]:
    """Compare the labels before and after every correction of a run; frames that had been annotated are left out."""
    record = run.finished_record()
    kind = KINDS[record["labels"]["kind"]]
    tolerance_px = _TOLERANCE * min(record["video"]["width_px"], record["video"]["height_px"])
    return [
        one
        for entry in read_history(run)
        for index, objects in entry.objects.items()
        for one in _compared(run, entry, index, objects, kind, tolerance_px)
    ]


def with_calibration(tables: RunTables, calibration: Calibration) -> RunTables:
    """Return the tables with calibrated confidence; annotated frames keep confidence 1."""
    annotated = set(tables.annotated_frames)
    objects = {
        index: of_frame
        if index in annotated
        else {
            name: replace(one, confidence=value, state=one.state if one.state in UNSEEN else state_of(value))
            for name, one in of_frame.items()
            for value in (round(calibration(one.confidence), 4),)
        }
        for index, of_frame in tables.objects.items()
    }
    frames = []
    for frame in tables.frames:
        of_frame = objects.get(frame.index, {})
        name = least_confident(of_frame)
        least = of_frame[name] if name is not None else None
        frames.append(replace(frame, confidence=least.confidence, state=least.state) if least is not None else frame)
    return replace(tables, frames=frames, objects=objects)


def _compared(
    run: OutputFolder, entry: HistoryEntry, index: int, objects: Objects, kind: type[Labels], tolerance_px: float
) -> Iterator[Corrected]:
    """Compare the labels of the objects that a correction annotated on a frame with those before it."""
    before = entry.folder
    try:
        with before.frames_csv.open(encoding="utf-8", newline="") as file:
            (row,) = (row for row in csv.DictReader(file) if int(row["index"]) == index)
            annotated, number = row["source"] == "annotated", int(row["frame_number"])
        with before.objects_csv.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if int(row["index"]) == index]
            confidences = {row["object"]: float(row["confidence"]) for row in rows}
    except (OSError, ValueError, KeyError) as error:
        raise OutputError(
            f"the history in {before.path} cannot be read: {error}",
            remedy=f"remove {before.path.parent}: the corrections stay, but can no longer be undone",
        ) from error
    if annotated:
        return
    old, new = (folder.read_labels(number, kind) for folder in (before, run))
    for name, confidence in confidences.items():
        if objects is not None and name not in objects:
            continue
        accuracy = old.accuracy(name, new, tolerance_px=tolerance_px)
        if accuracy is not None:
            yield confidence, accuracy
