"""Make the pictures of docs/domains.md: python docs/domains_pictures.py DATA [NAME ...] (or set TIMECYCLE_DATA).

Annotates the first frame of clips from laboratories with boxes or points, propagates with the default settings, and
puts a few frames side by side with the confidence of every object. Credits and licences of the clips: docs/domains.md.
The name `tutorial_mouse` makes the picture of docs/tutorials/mouse.md, by the commands of that page.
"""

import os
import sys
import tempfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from timecycle.cli import main as timecycle
from timecycle.labels import Keypoints
from timecycle.render import Captioned, contact_sheet
from timecycle.runs.opened import Run
from timecycle.video import open_video

IMAGES = Path(__file__).parent / "images"
ENLARGED = 4
Box = tuple[int, int, int, int]  # x0, y0, x1, y1 in pixels of the first frame


@dataclass(frozen=True)
class Case:
    """A clip, its annotation and the frames that are shown."""

    video: str  # below the folder of data
    shown: tuple[int, ...]
    boxes: tuple[Box, ...] = ()
    points: tuple[tuple[str, int, int], ...] = ()
    frames: int | None = None  # that are propagated through; None: all
    columns: int = 4
    options: tuple[str, ...] = ()  # of propagate, beside the defaults
    crop: Box | None = None  # cut out and enlarged four times; boxes are those of the whole frame


MOUSE = (
    ("hind_paw_side", 100, 117),
    ("left_front_paw_side", 272, 104),
    ("right_front_paw_side", 313, 80),
    ("left_hind_paw_below", 103, 250),
    ("right_hind_paw_below", 87, 293),
    ("right_front_paw_below", 304, 251),
    ("left_front_paw_below", 270, 332),
    ("nose_below", 378, 273),
    ("tail_below", 56, 200),
)

CASES = {
    "cells": Case(
        "open_video/imagej_wiki/media_plugins_migrating_macrophages.mp4",
        (0, 1, 2, 4, 6, 11),
        boxes=((138, 54, 174, 84), (404, 104, 432, 147), (226, 200, 278, 232), (198, 138, 230, 168)),
        columns=3,
    ),
    "embryo": Case(
        "open_video/imagej_wiki/registration_supplementary_video_6_drosophila_spinning_disc.mp4",
        (0, 12, 24, 47),
        boxes=((16, 70, 226, 168),),
        frames=48,
    ),
    "flies": Case(
        "open_video/sleap/tests_data_videos_centered_pair_small_p0.mp4",
        (0, 24, 48, 95),
        boxes=((50, 80, 120, 134), (122, 88, 184, 150)),
    ),
    "flies_window": Case(
        "open_video/sleap/tests_data_videos_centered_pair_small_p0.mp4",
        (0, 24, 48, 95),
        boxes=((50, 80, 120, 134), (122, 88, 184, 150)),
        options=("--set", "window_px=48"),
    ),
    "small_flies": Case(
        "open_video/sleap/tests_data_tracks_clip_p0.mp4",
        (0, 24, 48, 95),
        boxes=((58, 100, 81, 115), (84, 92, 110, 107)),
        frames=96,
    ),
    "small_flies_enlarged": Case(
        "open_video/sleap/tests_data_tracks_clip_p0.mp4",
        (0, 24, 48, 95),
        boxes=((58, 100, 81, 115), (84, 92, 110, 107)),
        frames=96,
        crop=(40, 60, 200, 160),
    ),
    "mouse": Case("mirror_mouse/videos/test_vid.mp4", (0, 15, 30, 45, 60, 79), points=MOUSE, frames=80, columns=3),
    "mouse_window": Case(
        "mirror_mouse/videos/test_vid.mp4",
        (0, 15, 30, 45, 60, 79),
        points=MOUSE,
        frames=80,
        columns=3,
        options=("--set", "window_px=24"),
    ),
}


TUTORIAL = "tutorial_mouse"
TUTORIAL_POINTS = "frame,name,x,y,visible\n24,nose,378,273,1\n24,wheel,325,137,1\n"
TUTORIAL_WIDTH_PX = 900


def main() -> None:
    data = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["TIMECYCLE_DATA"])
    for name in sys.argv[2:] or (*CASES, TUTORIAL):
        with tempfile.TemporaryDirectory() as folder:
            if name == TUTORIAL:
                _tutorial_picture(data, Path(folder))
            else:
                _picture(name, CASES[name], data, Path(folder))


def _tutorial_picture(data: Path, work: Path) -> None:
    """Propagate two points through the first 60 frames of the mouse, and save a smaller copy of the contact sheet."""
    (work / "points.csv").write_text(TUTORIAL_POINTS, encoding="utf-8")
    _run("frames", data / CASES["mouse"].video, *range(60), "-o", work / "clip")
    _run("propagate", work / "clip", work / "points.csv", "--fps", 250, "-o", work / "run")
    sheet = Run(work / "run").show()
    height_px = round(sheet.height * TUTORIAL_WIDTH_PX / sheet.width)
    smaller = sheet.resize((TUTORIAL_WIDTH_PX, height_px), Image.Resampling.LANCZOS)
    smaller.save(IMAGES / "tutorial_mouse.jpg", quality=85, optimize=True)


def _run(*words: str | int | Path) -> None:
    """Run a command of timecycle; end if it fails."""
    if timecycle([*map(str, words)]) != 0:
        sys.exit(f"failed: timecycle {' '.join(map(str, words))}")


def _picture(name: str, case: Case, data: Path, work: Path) -> None:
    clip, run = data / case.video, work / "run"
    if case.frames is not None:
        clip = _cut(clip, work / "frames", case)
    words: list[str | Path] = ["propagate", clip]
    if case.points:
        names = tuple(one for one, _, _ in case.points)
        places = np.array([place for _, *place in case.points], np.float32)
        points = Keypoints(names, places, np.ones(len(names), bool))
        points.write(work / "points.csv")
        words += [work / "points.csv"]
    if case.boxes:
        words += [word for box in case.boxes for word in ("--box", ",".join(map(str, _within(box, case.crop))))]
    _run(*words, *case.options, "-o", run)
    shots = _shots(clip, Run(run), case)
    sheet: np.ndarray = contact_sheet(shots, columns=case.columns, width_px=320 if case.columns == 3 else 240)
    Image.fromarray(sheet).save(IMAGES / f"domain_{name}.jpg", quality=80, optimize=True)


def _cut(video: Path, folder: Path, case: Case) -> Path:
    """Save the first frames as images, as `timecycle frames` does, or what the crop shows of them."""
    folder.mkdir()
    for frame in islice(open_video(video), case.frames):
        image = Image.fromarray(frame.image)
        if case.crop is not None:
            image = image.crop(case.crop)
            image = image.resize((image.width * ENLARGED, image.height * ENLARGED), Image.Resampling.BICUBIC)
        image.save(folder / f"{frame.index:05d}.png")
    return folder


def _within(box: Box, crop: Box | None) -> tuple[int, ...]:
    """Return a box in pixels of the enlarged crop."""
    if crop is None:
        return box
    return tuple((edge - start) * ENLARGED for edge, start in zip(box, crop[:2] * 2, strict=True))


def _shots(clip: Path, run: Run, case: Case) -> list[Captioned]:
    video, shots = open_video(clip), []
    for index in case.shown:
        confidence = [row.confidence for row in run.confidence.get(index, {}).values()]
        lowest = f", confidence {min(confidence):.2f}" if index and confidence else ", annotated"
        if len(confidence) > 1 and index:
            lowest = f", confidence {min(confidence):.2f} to {max(confidence):.2f}"
        shots.append(Captioned(run.labels[index].overlay(video[index].image), f"frame {index}{lowest}"))
    return shots


if __name__ == "__main__":
    main()
