"""Contents of an output folder: label and confidence files, table rows, the overlay video and the contact sheet."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from timecycle.confidence.fusion import Confidence
from timecycle.confidence.signals import SIGNALS
from timecycle.files import atomic_write
from timecycle.labels import Labels
from timecycle.labels.drawing import RGB
from timecycle.propagation.video import LabelledFrame
from timecycle.render import Captioned, Picture, contact_sheet, save_picture, thumbnail
from timecycle.video import VideoWriter

FRAME_COLUMNS = "index,frame_number,pts,time_seconds,source,confidence,state\n"
OBJECT_COLUMNS = ",".join(("index", "frame_number", "object", "name", "source", "confidence", "state", *SIGNALS)) + "\n"
_CONTACT_FRAMES = 12

LabelFiles = Literal["palette", "grey"]  # how mask files are written: PNGs with a palette, or plain grey ones


def frame_row(labelled: LabelledFrame) -> str:
    """Return the row of frames.csv for a frame; confidence is empty where nothing is known."""
    confidence = labelled.confidence
    result = f"{confidence.value:.4f},{confidence.state}" if confidence is not None else ","
    frame = f"{labelled.index},{labelled.number},{labelled.pts},{labelled.time_seconds:.6f}"
    return f"{frame},{labelled.source},{result}\n"


def object_rows(labelled: LabelledFrame, names: Mapping[str, str]) -> str:
    """Return the rows of objects.csv for a frame: the confidence of every object and the signals behind it."""
    objects = labelled.confidence.objects if labelled.confidence is not None else {}
    # On a frame that annotates some objects, the other objects are propagated.
    otherwise = "propagated" if labelled.source == "annotated" else labelled.source
    return csv_lines(
        (
            str(labelled.index),
            str(labelled.number),
            name,
            names.get(name, ""),
            "annotated" if one.annotated else otherwise,
            f"{one.value:.4f}",
            one.state,
            *(f"{one.signals[signal]:.4f}" for signal in SIGNALS),
        )
        for name, one in objects.items()
    )


def csv_lines(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def rows_by_frame(rows: str) -> dict[int, str]:
    """Group the rows of a table by the index of their frame, which comes first."""
    grouped: dict[int, str] = {}
    for row in csv.reader(io.StringIO(rows)):
        grouped[int(row[0])] = grouped.get(int(row[0]), "") + csv_lines([row])
    return grouped


def write_labels(path: Path, labels: Labels, label_files: LabelFiles) -> None:
    """Write the label file of one frame; `label_files` concerns masks with ids up to 255 only."""
    if label_files == "grey":
        labels.write_grey(path)
    else:
        labels.write(path)


def write_confidence(path: Path, confidence: Confidence) -> None:
    """Write the confidence of a frame as a grey image: one pixel per feature cell, 255 for confidence 1."""
    grey = (confidence.cells * 255).round().byte().numpy()
    with atomic_write(path) as file:
        Image.fromarray(grey).save(file, format="PNG")


class ContactSheet:
    """A sheet of small pictures of a few frames over the video, annotated ones among them, with a legend."""

    def __init__(self, frames: int, annotated: Iterable[int] = ()) -> None:
        self._wanted = _sheet_frames(frames, sorted(annotated))
        self._pictures: dict[int, Picture] = {}
        self._legends: dict[int, dict[str, RGB]] = {}

    @property
    def missing(self) -> list[int]:
        """The frames that are still to be added, in order."""
        return sorted(self._wanted - self._pictures.keys())

    def add(self, labelled: LabelledFrame, picture: Picture) -> None:
        """Add the picture of a frame if the sheet shows that frame."""
        if labelled.index in self._wanted:
            self._pictures[labelled.index] = thumbnail(picture)
            self._legends[labelled.index] = labelled.labels.legend()

    def write(self, path: Path, frames_csv: Path, kind: type[Labels], names: Mapping[str, str]) -> None:
        """Write the sheet; its captions come from frames.csv, which a resumed run has in full."""
        captioned = _captioned(frames_csv, self._pictures)
        sheet = [captioned[index] for index in sorted(self._pictures)]
        colours = {name: colour for _, legend in sorted(self._legends.items()) for name, colour in legend.items()}
        legend = {kind.display_name(name, names): colour for name, colour in colours.items()}
        save_picture(path, contact_sheet(sheet, legend=legend))


def _captioned(frames_csv: Path, pictures: Mapping[int, Picture]) -> dict[int, Captioned]:
    captioned = {}
    with frames_csv.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            index = int(row["index"])
            if index in pictures:
                annotated = row["source"] == "annotated"
                confidence = f"confidence {float(row['confidence']):.2f}" if row["confidence"] else "confidence unknown"
                frame = (f"frame {row['frame_number']}", f"{float(row['time_seconds']):.2f} s")
                caption = "   ".join((*frame, "annotated" if annotated else confidence))
                captioned[index] = Captioned(pictures[index], caption, framed=annotated)
    return captioned


def _sheet_frames(frames: int, annotated: Sequence[int]) -> set[int]:
    """Choose evenly spaced frames; the first few annotated frames replace the chosen frames nearest to them."""
    wanted = sorted({round(index) for index in np.linspace(0, frames - 1, min(frames, _CONTACT_FRAMES))})
    free = set(wanted) - set(annotated)
    for index in annotated[: _CONTACT_FRAMES // 2]:
        if index not in wanted and free:
            nearest = min(free, key=lambda one: (abs(one - index), one))
            free.remove(nearest)
            wanted[wanted.index(nearest)] = index
    return set(wanted)


class OverlayWriter:
    """Draws labelled frames into the overlay video and passes them to the contact sheet."""

    def __init__(self, video: VideoWriter, sheet: ContactSheet) -> None:
        self._video = video
        self._sheet = sheet

    def add(self, labelled: LabelledFrame) -> None:
        """Draw the next frame. Annotated frames become key frames, so that a correction can replace those between."""
        picture = labelled.labels.overlay(labelled.image)
        self._video.write(picture, labelled.pts, key=labelled.source == "annotated")
        self._sheet.add(labelled, picture)
