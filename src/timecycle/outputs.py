"""What an output folder holds: a label file per frame, tables of frames and objects, a film and a sheet of pictures."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from timecycle.files import atomic_write, make_folder, write_text
from timecycle.labels import Keypoints, Labels
from timecycle.labels.keypoints import keypoints_csv
from timecycle.propagation.confidence import Confidence
from timecycle.propagation.evidence import SIGNALS
from timecycle.propagation.propagate import LabelledFrame
from timecycle.render import Captioned, contact_sheet, overlay, save_picture, thumbnail
from timecycle.video import VideoWriter

FILES = ("frames.csv", "objects.csv", "overlay.mp4", "contact.png", "keypoints.csv")  # beside labels/ and confidence/
REVIEW_FILES = ("report.html", "review.json", "review.png")  # what `check` adds
COLUMNS = "index,pts,time_seconds,source,confidence,state\n"
OBJECT_COLUMNS = ",".join(("index", "object", "confidence", "state", *SIGNALS)) + "\n"
_CONTACT_FRAMES = 12


def frame_row(labelled: LabelledFrame) -> str:
    """One line of frames.csv; a frame that nothing is known of has no confidence."""
    confidence = labelled.confidence
    judged = f"{confidence.value:.4f},{confidence.state}" if confidence is not None else ","
    return f"{labelled.index},{labelled.pts},{labelled.time_seconds:.6f},{labelled.source},{judged}\n"


def object_rows(index: int, confidence: Confidence) -> str:
    """A line of objects.csv for every object: its confidence, and the signals it was made of."""
    return csv_lines(
        (str(index), name, f"{one.value:.4f}", one.state, *(f"{one.signals[signal]:.4f}" for signal in SIGNALS))
        for name, one in confidence.objects.items()
    )


def write_confidence(folder: Path, index: int, confidence: Confidence) -> None:
    """How sure every cell is, as grey: one pixel per cell, 255 is certain."""
    grey = (confidence.cells * 255).round().byte().numpy()
    with atomic_write(make_folder(folder / "confidence") / f"{index:05d}.png") as file:
        Image.fromarray(grey).save(file, format="PNG")


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """run.json: what the run is, and how far it got."""
    write_text(folder / "run.json", json.dumps(record, indent=2) + "\n")


def label_path(folder: Path, index: int, kind: type[Labels]) -> Path:
    return folder / f"{index:05d}{kind.suffix}"


def csv_lines(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_summaries(folder: Path, show: "Show", kind: type[Labels], frames: int) -> None:
    """What is made once all frames are there: the sheet of pictures, and of points one table."""
    save_picture(folder / "contact.png", contact_sheet(show.sheet))
    if kind is Keypoints:
        collect_keypoints(folder / "labels", folder / "keypoints.csv", frames)


class Show:
    """Draws the film and gathers the pictures of the contact sheet."""

    def __init__(self, movie: VideoWriter, frames: int) -> None:
        self.movie = movie
        self.sheet: list[Captioned] = []
        self._wanted = {round(place) for place in np.linspace(0, frames - 1, min(frames, _CONTACT_FRAMES))}

    def add(self, labelled: LabelledFrame) -> None:
        picture = overlay(labelled.image, labelled.labels)
        self.movie.write(picture, labelled.pts)
        if labelled.index in self._wanted:
            self.sheet.append(Captioned(thumbnail(picture), f"frame {labelled.index}   {labelled.time_seconds:.2f} s"))


def collect_keypoints(folder: Path, path: Path, frames: int) -> None:
    """All points in one file, which is what people open."""
    with atomic_write(path) as file:
        for index in range(frames):
            text = keypoints_csv({index: Keypoints.read(label_path(folder, index, Keypoints))})
            file.write((text if index == 0 else text.partition("\n")[2]).encode())
