"""Evaluate the assisted tool of the page: a box around the object, GrabCut in it, and corrective strokes.

    python benchmarks/ui_assist.py DATA                      the first frames of DAVIS-2016 val
    python benchmarks/ui_assist.py FOLDER ... --composites   those of composites, to choose settings with

Composites are also segmented with all strokes at once, without the mask before the last stroke.

Each frame comes with the box around its true mask. A simulated person strokes the largest piece
of what is wrong, along its middle, and looks again: inside where the object is missing, outside where it is too much.
Seconds are those of one answer, on one thread. Results: ui_assist.json, ui_assist_composites.json.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

import cv2
import numpy as np

from first_frames import first_frames
from record import write_record
from timecycle.evaluation.metrics.masks import jaccard
from timecycle.ui import assist
from timecycle.ui.assist import Hints, Mask, Stroke, segment, segment_at_once

STROKES = 3
Segment = Callable[[np.ndarray, Hints, tuple[int, int]], Mask]
_WORSE = 0.05
_WIDTH_PX = 8.0  # as the page draws them on a frame of 480p


def answer(image: np.ndarray, hints: Hints, how: Segment) -> tuple[Mask, float]:
    """Return the mask of the whole frame, and the seconds it took."""
    began = time.perf_counter()
    x0, y0, x1, y1 = hints.region(image.shape[0], image.shape[1])
    part = how(np.ascontiguousarray(image[y0:y1, x0:x1]), hints, (x0, y0))
    seconds = time.perf_counter() - began
    whole = np.zeros(image.shape[:2], bool)
    whole[y0:y1, x0:x1] = part
    return whole, seconds


def corrected(hints: Hints, mask: Mask, ground_truth: Mask) -> Hints:
    """Add a stroke along the middle of the largest piece of what is wrong."""
    missing, extra = ground_truth & ~mask, mask & ~ground_truth
    pieces = [(_largest(missing), True), (_largest(extra), False)]
    piece, is_missing = max(pieces, key=lambda one: int(one[0].sum()))
    if not piece.any():
        return hints
    depth = cv2.distanceTransform(np.pad(piece.astype(np.uint8), 1), cv2.DIST_L2, 5)[1:-1, 1:-1]
    ys, xs = np.nonzero(depth >= 0.6 * depth.max())
    order = np.argsort(xs if np.ptp(xs) >= np.ptp(ys) else ys)
    points = [(float(xs[i]), float(ys[i])) for i in order[:: max(1, len(order) // 12)]]
    width_px, drawn = min(_WIDTH_PX, 2 * float(depth.max())), len(hints.inside) + len(hints.outside)
    stroke = Stroke(points[:1] if depth.max() < _WIDTH_PX / 2 else points, width_px, drawn)
    if is_missing:
        return Hints(hints.box, [*hints.inside, stroke], hints.outside)
    return Hints(hints.box, hints.inside, [*hints.outside, stroke])


def _largest(region: Mask) -> Mask:
    count, pieces, statistics, _ = cv2.connectedComponentsWithStats(region.astype(np.uint8))
    if count < 2:
        return region
    return np.asarray(pieces == 1 + int(np.argmax(statistics[1:, 4])))


def measure(root: Path, how: Segment = segment) -> dict[str, dict[str, float]]:
    """Return the overlap (J) with the true mask after the box and after each stroke, and the seconds of an answer."""
    scores = {}
    for frame in first_frames(root):
        image, ground_truth = frame.image, frame.ground_truth
        left, top, right, bottom = frame.box
        box = (left, top, right + 1, bottom + 1)
        whole = np.zeros_like(ground_truth)
        whole[box[1] : box[3], box[0] : box[2]] = True
        row = {"box": round(float(jaccard(whole, ground_truth)), 4)}
        hints, times = Hints(box, [], []), []
        for strokes in range(STROKES + 1):
            mask, seconds = answer(image, hints, how)
            times.append(seconds)
            row[f"strokes_{strokes}"] = round(float(jaccard(mask, ground_truth)), 4)
            hints = corrected(hints, mask, ground_truth)
        scores[frame.sequence] = {**row, "seconds": round(median(times), 3), "longest_seconds": round(max(times), 3)}
        print(frame.sequence, scores[frame.sequence], flush=True)
    return scores


def _summary(scores: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Add the means, and how often a stroke made the mask worse by more than 0.05."""
    means = {name: round(fmean(one[name] for one in scores.values()), 4) for name in next(iter(scores.values()))}
    pairs = [(row[f"strokes_{i}"], row[f"strokes_{i + 1}"]) for row in scores.values() for i in range(STROKES)]
    falls = [before - after for before, after in pairs]
    summary = {
        "mean": means,
        "longest_seconds": max(one["longest_seconds"] for one in scores.values()),
        "strokes_that_made_it_worse": sum(fall > _WORSE for fall in falls),
        "worst_fall": round(max(falls), 4),
        "sequences": scores,
    }
    print({name: value for name, value in summary.items() if name != "sequences"})
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--composites", action="store_true", help="DATA is a folder that `make_composites` wrote")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    began = time.monotonic()
    roots = arguments.data if arguments.composites else [arguments.data[0] / "davis2016"]
    measured = _summary({f"{root.name}/{name}": row for root in roots for name, row in measure(root).items()})
    if arguments.composites:
        at_once = {f"{root.name}/{name}": row for root in roots for name, row in measure(root, segment_at_once).items()}
        measured = {"segment": measured, "at_once": _summary(at_once)}
    settings = {
        "iterations": [assist._ITERATIONS, assist._ITERATIONS_AGAIN],
        "max_pixels": assist._MAX_PIXELS,
        "near": assist._NEAR,
        "strokes": STROKES,
        "frames": "composites" if arguments.composites else "DAVIS-2016 val, first frames",
    }
    name = "ui_assist_composites" if arguments.composites else "ui_assist"
    write_record(name, settings=settings, measured=measured, seconds=time.monotonic() - began)


if __name__ == "__main__":
    main()
