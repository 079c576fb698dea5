"""Time a person's job on the page, from `timecycle ui camel.mp4` to a corrected and exported result.

    python benchmarks/ui_job.py DATA --work DIR

A simulated person draws a box around the camel, strokes what is wrong, propagates, opens the suggested frame, corrects
it the same way, applies that and exports. Presses of the mouse and of keys are counted; the person's own thinking is
not. The same masks are then given to the command line, whose commands and characters are counted; painting the masks in
an image editor comes on top of that, twice. Results: ui_job.json.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

from driven import Driven
from record import write_record
from served import Served
from timecycle.evaluation.metrics.masks import jaccard
from timecycle.labels import Masks
from timecycle.ui.assist import Hints
from timecycle.video import Size, VideoWriter, open_video
from ui_assist import corrected

STROKES = 3
_SWITCHES = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


def draw_object(page: Driven, ground_truth: np.ndarray) -> None:
    """Draw the object with the assisted tool: a box, then strokes where the mask is wrong."""
    page.press("a")
    rows, columns = (np.flatnonzero(ground_truth.any(axis=axis)) for axis in (1, 0))
    page.drag_and_save((columns[0] - 3, rows[0] - 3), (columns[-1] + 3, rows[-1] + 3))
    for _ in range(STROKES):
        hints = corrected(Hints(None, [], []), shown_mask(page, ground_truth.shape), ground_truth)
        for strokes, key in ((hints.inside, None), (hints.outside, "Shift")):
            for stroke in strokes:
                page.drag_and_save(*stroke.points, *stroke.points[-1:], key=key)


def shown_mask(page: Driven, shape: tuple[int, ...]) -> np.ndarray:
    """The mask that the page shows."""
    ids = page.page.evaluate(
        "async () => Array.from((await import('/static/editor.js')).currentMask().ids, (id) => (id ? 1 : 0))"
    )
    return np.array(ids, bool).reshape(shape)


def work_on_page(video: Path, truth: list[np.ndarray], work: Path, preset: str) -> dict[str, Any]:
    """Do the job on the page; returns clicks, seconds, and which frame was corrected."""
    began = time.monotonic()
    server = Served(video, "-o", work / "page", cwd=work)
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=list(_SWITCHES))
            page = Driven(browser, server).opened()
            draw_object(page, truth[0])
            annotated_seconds = time.monotonic() - began
            page.name_object(1, "camel")
            page.page.select_option("#choose-preset", preset)
            page.clicks += 1
            page.primary("Propagate")
            page.job_done("propagate", seconds=1200)
            propagated_seconds = time.monotonic() - began
            page.primary("Go to frame")
            index = page.value("timecycle.store.run.queue[0].index")
            page.shows(index)
            draw_object(page, truth[index])
            page.primary("Apply")
            page.job_done("correct", seconds=1200)
            page.button("4 Export")
            page.export("png", work)
            return {
                "presses": page.clicks,
                "seconds": round(time.monotonic() - began, 1),
                "of_which_propagating_seconds": round(propagated_seconds - annotated_seconds, 1),
                "corrected_frame": index,
                "corrected_mask": page.value(f"timecycle.project().frames[{index}].mask"),
            }
    finally:
        server.stop()


def work_on_command_line(video: Path, done: dict[str, Any], work: Path, preset: str) -> dict[str, Any]:
    """Do the same with commands, with the masks that were drawn on the page; returns what had to be typed."""
    first = work / "page_annotations" / "masks" / "00000.png"
    second = work / "page_annotations" / "edits" / done["corrected_mask"]
    commands = [
        ["frames", video.name, "0", "-o", "to_annotate"],
        ["propagate", video.name, str(first), "-o", "cli", "--preset", preset, "--names", "1=camel"],
        ["check", "cli"],
        ["correct", "cli", f"{done['corrected_frame']}={second}"],
    ]
    began = time.monotonic()
    for words in commands:
        subprocess.run([sys.executable, "-m", "timecycle", *words, "--quiet"], check=True, cwd=work)
    return {
        "commands": len(commands),
        "typed_characters": sum(len(shlex.join(["timecycle", *words])) for words in commands),
        "masks_to_paint_elsewhere": 2,
        "seconds_without_painting": round(time.monotonic() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--preset", default="fast")
    arguments = parser.parse_args()
    began = time.monotonic()
    work: Path = arguments.work
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    frames, masks = (arguments.data / "davis2016" / part / "480p" / "camel" for part in ("JPEGImages", "Annotations"))
    truth = [Masks.read(path).ids > 0 for path in sorted(masks.iterdir())]
    source, video = open_video(frames), work / "camel.mp4"
    with VideoWriter(video, Size(*source.size.shape), source.time_base) as writer:
        for frame in source:
            writer.write(frame.image, frame.pts)
    page = work_on_page(video, truth, work, arguments.preset)
    command_line = work_on_command_line(video, page, work, arguments.preset)
    ours, theirs = (
        [Masks.read(path).ids > 0 for path in sorted((work / name / "labels").iterdir())] for name in ("page", "cli")
    )
    measured = {
        "page": page,
        "command_line": command_line,
        "same_labels": all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)),
        "mean_j": round(fmean(float(jaccard(a, b)) for a, b in zip(ours, truth, strict=True)), 4),
    }
    print(measured)
    write_record("ui_job", settings={"preset": arguments.preset}, measured=measured, seconds=time.monotonic() - began)


if __name__ == "__main__":
    main()
