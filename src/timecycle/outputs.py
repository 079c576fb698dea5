"""What an output folder holds: a label file per frame, tables of frames and objects, a film and a sheet of pictures."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from timecycle.files import atomic_write, make_folder, write_text
from timecycle.labels import Keypoints, Labels, Masks
from timecycle.labels.keypoints import keypoints_csv
from timecycle.labels.names import shown_name
from timecycle.labels.palette import RGB
from timecycle.propagation.confidence import Confidence
from timecycle.propagation.evidence import SIGNALS
from timecycle.propagation.propagate import LabelledFrame
from timecycle.render import Captioned, Picture, contact_sheet, legend_of, overlay, save_picture, thumbnail
from timecycle.video import VideoWriter

FILES = ("frames.csv", "objects.csv", "overlay.mp4", "contact.png", "keypoints.csv")  # beside labels/ and confidence/
PASSES = ".passes"  # label maps of both passes, for corrections: a cache, which may be removed
REVIEW_FILES = ("report.html", "review.json", "review.png")  # what `check` adds
COLUMNS = "index,frame_number,pts,time_seconds,source,confidence,state\n"
OBJECT_COLUMNS = ",".join(("index", "frame_number", "object", "name", "source", "confidence", "state", *SIGNALS)) + "\n"
_CONTACT_FRAMES = 12

LabelFiles = Literal["palette", "grey"]  # of masks: PNGs with a palette, or plain grey ones


def frame_row(labelled: LabelledFrame) -> str:
    """One line of frames.csv; a frame that nothing is known of has no confidence."""
    confidence = labelled.confidence
    judged = f"{confidence.value:.4f},{confidence.state}" if confidence is not None else ","
    place = f"{labelled.index},{labelled.number},{labelled.pts},{labelled.time_seconds:.6f}"
    return f"{place},{labelled.source},{judged}\n"


def object_rows(labelled: LabelledFrame, names: Mapping[str, str]) -> str:
    """A line of objects.csv for every object: its confidence, and the signals it was made of."""
    objects = labelled.confidence.objects if labelled.confidence is not None else {}
    carried = "carried" if labelled.source == "given" else labelled.source  # through a frame that annotates others
    return csv_lines(
        (
            str(labelled.index),
            str(labelled.number),
            name,
            names.get(name, ""),
            "given" if one.annotated else carried,
            f"{one.value:.4f}",
            one.state,
            *(f"{one.signals[signal]:.4f}" for signal in SIGNALS),
        )
        for name, one in objects.items()
    )


def write_confidence(folder: Path, number: int, confidence: Confidence) -> None:
    """How sure every cell is, as grey: one pixel per cell, 255 is certain."""
    grey = (confidence.cells * 255).round().byte().numpy()
    with atomic_write(confidence_path(make_folder(folder / "confidence"), number)) as file:
        Image.fromarray(grey).save(file, format="PNG")


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """run.json: what the run is, and how far it got."""
    write_text(folder / "run.json", json.dumps(record, indent=2) + "\n")


def write_labels(path: Path, labels: Labels, label_files: LabelFiles) -> None:
    """One frame's label file; only masks of up to 255 objects have a choice of two."""
    if isinstance(labels, Masks):
        labels.write(path, grey=label_files == "grey")
    else:
        labels.write(path)


def label_path(folder: Path, number: int, kind: type[Labels]) -> Path:
    """The label file of a frame by its number in the video (`Frame.number`)."""
    return folder / f"{_frame_name(number)}{kind.suffix}"


def confidence_path(folder: Path, number: int) -> Path:
    return folder / f"{_frame_name(number)}.png"


def number_of(path: Path) -> int:
    """The number of the frame that a file of labels or of confidence belongs to."""
    return int(path.stem)


def _frame_name(number: int) -> str:
    """How files of a frame are called; `number_of` reads it back."""
    return f"{number:05d}"


def csv_lines(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_summaries(
    folder: Path, sheet: "ContactSheet", kind: type[Labels], numbers: Sequence[int], names: Mapping[str, str]
) -> None:
    """What is made once all frames are there: the contact sheet, and of keypoints one table."""
    sheet.write(folder, kind, names)
    if kind is Keypoints:
        collect_keypoints(folder / "labels", folder / "keypoints.csv", numbers)


def _captions(table: Path, frames: Mapping[int, Picture]) -> dict[int, Captioned]:
    """What stands under the pictures of some frames: from the table, which a resumed run has whole."""
    found = {}
    with table.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            index = int(row["index"])
            if index in frames:
                annotated = row["source"] == "given"
                sure = f"confidence {float(row['confidence']):.2f}" if row["confidence"] else "confidence unknown"
                words = (f"frame {row['frame_number']}", f"{float(row['time_seconds']):.2f} s")
                caption = "   ".join((*words, "annotated" if annotated else sure))
                found[index] = Captioned(frames[index], caption, framed=annotated)
    return found


class ContactSheet:
    """Gathers small pictures of a few frames over the video, annotated ones among them, with their objects' colours."""

    def __init__(self, frames: int, annotated: Iterable[int] = ()) -> None:
        self._wanted = _sheet_frames(frames, sorted(annotated))
        self._pictures: dict[int, Picture] = {}
        self._legends: dict[int, dict[str, RGB]] = {}

    @property
    def missing(self) -> list[int]:
        """The frames that are still to be added, in order."""
        return sorted(self._wanted - self._pictures.keys())

    def add(self, labelled: LabelledFrame, picture: Picture) -> None:
        """Take the picture of a frame with its labels, if the sheet shows that frame."""
        if labelled.index in self._wanted:
            self._pictures[labelled.index] = thumbnail(picture)
            self._legends[labelled.index] = dict(legend_of(labelled.labels))

    def write(self, folder: Path, kind: type[Labels], names: Mapping[str, str]) -> None:
        """Write contact.png; what it says of the frames is taken from frames.csv beside it."""
        captions = _captions(folder / "frames.csv", self._pictures)
        sheet = [captions[index] for index in sorted(self._pictures)]
        colours = {name: colour for _, legend in sorted(self._legends.items()) for name, colour in legend.items()}
        legend = {shown_name(kind.kind, name, names): colour for name, colour in colours.items()}
        save_picture(folder / "contact.png", contact_sheet(sheet, legend=legend))


def _sheet_frames(frames: int, annotated: Sequence[int]) -> set[int]:
    """Frames at equal distances; annotated ones, the first few of them, stand in for those nearest to them."""
    wanted = sorted({round(place) for place in np.linspace(0, frames - 1, min(frames, _CONTACT_FRAMES))})
    free = set(wanted) - set(annotated)
    for index in annotated[: _CONTACT_FRAMES // 2]:
        if index not in wanted and free:
            nearest = min(free, key=lambda one: (abs(one - index), one))
            free.remove(nearest)
            wanted[wanted.index(nearest)] = index
    return set(wanted)


class Show:
    """Draws the overlay video and gathers the pictures of the contact sheet."""

    def __init__(self, movie: VideoWriter, sheet: ContactSheet) -> None:
        self.movie = movie
        self.sheet = sheet

    def add(self, labelled: LabelledFrame) -> None:
        """Draw the next frame. Annotated ones become key frames: a correction can then replace what lies between."""
        picture = overlay(labelled.image, labelled.labels)
        self.movie.write(picture, labelled.pts, key=labelled.source == "given")
        self.sheet.add(labelled, picture)


def collect_keypoints(folder: Path, path: Path, numbers: Sequence[int]) -> None:
    """All points in one file, which is what people open."""
    with atomic_write(path) as file:
        for index, number in enumerate(numbers):
            text = keypoints_csv({number: Keypoints.read(label_path(folder, number, Keypoints))})
            file.write((text if index == 0 else text.partition("\n")[2]).encode())
