"""Evaluate clicks: alone, and as corrections of a box and of a mask that is ten frames old.

    python benchmarks/clicks.py DATA

The first frames of DAVIS-2016 val. A simulated person clicks the middle of the largest piece of what is wrong: inside
where the object is missing, outside where it is too much. Clicks alone are strokes of one point for the page's assisted
tool. J is the overlap with the true mask. Results: clicks.json.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median

import cv2
import numpy as np

from record import write_record
from timecycle.evaluation.metrics.masks import jaccard
from timecycle.evaluation.protocols.davis import find_davis
from timecycle.labels import Masks
from timecycle.labels.box import object_in_box, whole_box
from timecycle.labels.clicks import Click, corrected_by_clicks
from timecycle.labels.grab_cut import Region
from timecycle.ui.assist import Hints, Stroke, segment
from timecycle.video import open_video

Answer = Callable[[Sequence[Click], Sequence[Click]], Region]  # from clicks inside and outside

CLICKS = 3
_CLICK_PX = 8.0  # as wide as a stroke of the page


def middle_of(region: Region) -> Click:
    """Return the innermost pixel of the largest piece of a region."""
    count, pieces, statistics, _ = cv2.connectedComponentsWithStats(region.astype(np.uint8))
    largest = pieces == 1 + int(np.argmax(statistics[1:, 4])) if count > 1 else region
    depth = cv2.distanceTransform(np.pad(largest.astype(np.uint8), 1), cv2.DIST_L2, 5)[1:-1, 1:-1]
    y, x = np.unravel_index(int(depth.argmax()), depth.shape)
    return float(x), float(y)


def next_click(mask: Region, ground_truth: Region) -> tuple[Click, bool] | None:
    """Return the next click, and whether it is inside; None if nothing is wrong."""
    missing, extra = ground_truth & ~mask, mask & ~ground_truth
    if not (missing | extra).any():
        return None
    is_missing = bool(missing.sum() >= extra.sum())
    return middle_of(missing if is_missing else extra), is_missing


def clicks_alone(image: np.ndarray, inside: Sequence[Click], outside: Sequence[Click]) -> Region:
    """Segment by clicks without anything that says how large the object is."""
    strokes = ([Stroke([click], _CLICK_PX) for click in clicks] for clicks in (inside, outside))
    hints = Hints(None, *strokes)
    x0, y0, x1, y1 = hints.region(image.shape[0], image.shape[1])
    region = np.zeros(image.shape[:2], bool)
    region[y0:y1, x0:x1] = segment(np.ascontiguousarray(image[y0:y1, x0:x1]), hints, (x0, y0))
    return region


def clicked(start: Region, ground_truth: Region, answer: Answer) -> tuple[list[float], list[float]]:
    """Return the overlap before any click and after each, and the seconds of each answer."""
    inside: list[Click] = []
    outside: list[Click] = []
    mask, scores, times = start, [float(jaccard(start, ground_truth))], []
    for _ in range(CLICKS):
        click = next_click(mask, ground_truth)
        if click is not None:
            (inside if click[1] else outside).append(click[0])
            began = time.perf_counter()
            mask = answer(inside, outside)
            times.append(time.perf_counter() - began)
        scores.append(float(jaccard(mask, ground_truth)))
    return scores, times


def measure(data: Path) -> dict[str, dict[str, float]]:
    """Measure the first frame of every clip."""
    scores = {}
    for clip in find_davis(data / "davis2016", year="2016").clips:
        folders = (data / "davis2016" / part / "480p" / clip.name for part in ("JPEGImages", "Annotations"))
        images, annotations = (sorted(folder.iterdir()) for folder in folders)
        image = open_video(images[0])[0].image
        ground_truth, lagging = (Masks.read(annotations[frame]).ids > 0 for frame in (0, 10))
        rows, columns = (np.flatnonzero(ground_truth.any(axis=axis)) for axis in (1, 0))
        box = (float(columns[0]), float(rows[0]), float(columns[-1]), float(rows[-1]))
        in_box = object_in_box(image, box)
        within = whole_box(ground_truth.shape[0], ground_truth.shape[1], box)
        ways: dict[str, tuple[Region, Answer]] = {
            "alone": (np.zeros_like(ground_truth), partial(clicks_alone, image)),
            "box": (in_box, partial(_corrected, image, in_box, within)),
            "lagging": (lagging, partial(_corrected, image, lagging, None)),
        }
        row: dict[str, float] = {}
        for name, (start, answer) in ways.items():
            reached, times = clicked(start, ground_truth, answer)
            row |= {f"{name}_{clicks}": round(score, 4) for clicks, score in enumerate(reached)}
            row[f"{name}_seconds"] = round(median(times), 3)
        scores[clip.name] = row
        print(clip.name, row, flush=True)
    return scores


def _corrected(
    image: np.ndarray, start: Region, within: Region | None, inside: Sequence[Click], outside: Sequence[Click]
) -> Region:
    return corrected_by_clicks(image, start, inside=inside, outside=outside, within=within)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    cv2.setNumThreads(1)
    began = time.monotonic()
    scores = measure(data)
    means = {name: round(fmean(one[name] for one in scores.values()), 4) for name in next(iter(scores.values()))}
    print(means)
    write_record(
        "clicks",
        settings={"clicks": CLICKS},
        measured={"mean": means, "sequences": scores},
        seconds=time.monotonic() - began,
    )


if __name__ == "__main__":
    main()
