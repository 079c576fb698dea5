"""Evaluate masks made from boxes: the box around the object of a first frame, unrefined and refined by GrabCut.

    python benchmarks/box.py DATA

The first frames of DAVIS-2016 val, each with the box around its true mask. The settings of labels/box.py were chosen on
composites of other footage. Results: box.json.
"""

import argparse
import logging
import time
from pathlib import Path
from statistics import fmean

from first_frames import first_frames
from record import write_record
from timecycle.evaluation.metrics.masks import jaccard
from timecycle.labels import box as settings
from timecycle.labels.box import object_in_box, whole_box


def measure(data: Path) -> dict[str, dict[str, float]]:
    """Return the overlap (J) with the true mask of each sequence, and the CPU seconds of refining."""
    scores = {}
    for frame in first_frames(data / "davis2016"):
        image, ground_truth = frame.image, frame.ground_truth
        left, top, right, bottom = frame.box
        box = (float(left), float(top), float(right), float(bottom))
        began = time.process_time()
        refined = object_in_box(image, box)
        seconds = time.process_time() - began
        scores[frame.sequence] = {
            "unrefined": round(float(jaccard(whole_box(image.shape[0], image.shape[1], box), ground_truth)), 4),
            "refined": round(float(jaccard(refined, ground_truth)), 4),
            "cpu_seconds": round(seconds, 2),
        }
        print(frame.sequence, scores[frame.sequence], flush=True)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    logging.basicConfig(format="%(message)s")
    began = time.monotonic()
    scores = measure(data)
    means = {
        name: round(fmean(one[name] for one in scores.values()), 4) for name in ("unrefined", "refined", "cpu_seconds")
    }
    print(means)
    write_record(
        "box",
        settings={
            "margin": settings._AROUND,
            "core": settings._MIDDLE,
            "iterations": settings._ITERATIONS,
            "max_pixels": settings._MAX_PIXELS,
        },
        measured={"mean": means, "sequences": scores},
        seconds=time.monotonic() - began,
    )


if __name__ == "__main__":
    main()
