"""Evaluate the assisted tool of the page: a box around the object, GrabCut in it, and corrective strokes.

    python benchmarks/ui_assist.py DATA

The first frames of DAVIS-2016 val, each with the box around its true mask. A simulated person strokes the largest piece
of what is wrong, along its middle, and looks again: inside where the object is missing, outside where it is too much.
Seconds are those of one answer, on one thread. Results: ui_assist.json.
"""

import argparse
import time
from pathlib import Path
from statistics import fmean, median

import cv2
import numpy as np

from record import write_record
from timecycle.evaluation.metrics.masks import jaccard
from timecycle.evaluation.protocols.davis import find_davis
from timecycle.labels import Masks
from timecycle.ui import assist
from timecycle.ui.assist import Hints, Mask, Stroke, segment
from timecycle.video import open_video

STROKES = 3
_WIDTH_PX = 8.0  # as the page draws them on a frame of 480p


def answer(image: np.ndarray, hints: Hints) -> tuple[Mask, float]:
    """Return the mask of the whole frame, and the seconds it took."""
    began = time.perf_counter()
    x0, y0, x1, y1 = hints.region(image.shape[0], image.shape[1])
    part = segment(np.ascontiguousarray(image[y0:y1, x0:x1]), hints, (x0, y0))
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
    stroke = Stroke(points[:1] if depth.max() < _WIDTH_PX / 2 else points, min(_WIDTH_PX, 2 * float(depth.max())))
    if is_missing:
        return Hints(hints.box, [*hints.inside, stroke], hints.outside)
    return Hints(hints.box, hints.inside, [*hints.outside, stroke])


def _largest(region: Mask) -> Mask:
    count, pieces, statistics, _ = cv2.connectedComponentsWithStats(region.astype(np.uint8))
    if count < 2:
        return region
    return np.asarray(pieces == 1 + int(np.argmax(statistics[1:, 4])))


def measure(data: Path) -> dict[str, dict[str, float]]:
    """Return the overlap (J) with the true mask after the box and after each stroke, and the seconds of an answer."""
    scores = {}
    for clip in find_davis(data / "davis2016", year="2016").clips:
        folders = (data / "davis2016" / part / "480p" / clip.name for part in ("JPEGImages", "Annotations"))
        images, annotations = (min(folder.iterdir()) for folder in folders)
        image, ground_truth = open_video(images)[0].image, Masks.read(annotations).ids > 0
        rows, columns = (np.flatnonzero(ground_truth.any(axis=axis)) for axis in (1, 0))
        box = (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)
        whole = np.zeros_like(ground_truth)
        whole[box[1] : box[3], box[0] : box[2]] = True
        row = {"box": round(float(jaccard(whole, ground_truth)), 4)}
        hints, times = Hints(box, [], []), []
        for strokes in range(STROKES + 1):
            mask, seconds = answer(image, hints)
            times.append(seconds)
            row[f"strokes_{strokes}"] = round(float(jaccard(mask, ground_truth)), 4)
            hints = corrected(hints, mask, ground_truth)
        scores[clip.name] = {**row, "seconds": round(median(times), 3), "longest_seconds": round(max(times), 3)}
        print(clip.name, scores[clip.name], flush=True)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    cv2.setNumThreads(1)
    began = time.monotonic()
    scores = measure(data)
    means = {name: round(fmean(one[name] for one in scores.values()), 4) for name in next(iter(scores.values()))}
    print(means)
    settings = {"iterations": assist._ITERATIONS, "max_pixels": assist._MAX_PIXELS, "strokes": STROKES}
    measured = {"mean": means, "sequences": scores}
    write_record("ui_assist", settings=settings, measured=measured, seconds=time.monotonic() - began)


if __name__ == "__main__":
    main()
