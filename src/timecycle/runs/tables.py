"""The tables of a run, written and read back: the confidence of every frame and every object."""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from timecycle.confidence.fusion import State
from timecycle.confidence.signals import SIGNALS
from timecycle.labels import KINDS
from timecycle.propagation.video import LabelledFrame

FRAME_COLUMNS = "index,frame_number,pts,time_seconds,source,confidence,state\n"
OBJECT_COLUMNS = ",".join(("index", "frame_number", "object", "name", "source", "confidence", "state", *SIGNALS)) + "\n"

_NEED_REVIEW: tuple[State, ...] = ("uncertain", "lost")

ObjectsByFrame = dict[int, dict[str, "ObjectRow"]]  # by frame index and object


# Writing


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
    return _csv_lines(
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


def _csv_lines(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def rows_by_frame(rows: str) -> dict[int, str]:
    """Group the rows of a table by the index of their frame, which comes first."""
    grouped: dict[int, str] = {}
    for row in csv.reader(io.StringIO(rows)):
        grouped[int(row[0])] = grouped.get(int(row[0]), "") + _csv_lines([row])
    return grouped


# Reading


@dataclass(frozen=True)
class FrameRow:
    """A row of frames.csv; confidence is None where nothing is known."""

    index: int
    number: int  # as people and file names call the frame
    time_seconds: float
    source: str
    confidence: float | None
    state: str

    @property
    def annotated(self) -> bool:
        return self.source == "annotated"

    @property
    def needs_review(self) -> bool:
        return self.state in _NEED_REVIEW


@dataclass(frozen=True)
class ObjectRow:
    """A row of objects.csv: one object on one frame."""

    confidence: float
    state: str
    annotated: bool = False  # on this very frame
    before_annotation: bool = False  # this frame comes before the first one on which the object is annotated

    @property
    def value(self) -> float:
        return self.confidence


@dataclass(frozen=True, eq=False)
class RunTables:
    """The tables of a run: its frames in order, and its objects by frame index and name."""

    folder: Path
    record: Mapping[str, Any]
    frames: Sequence[FrameRow]
    objects: Mapping[int, Mapping[str, ObjectRow]]

    @property
    def names(self) -> list[str]:
        """The objects, in the order of the table."""
        return list(dict.fromkeys(name for of_frame in self.objects.values() for name in of_frame))

    @property
    def kind(self) -> str:
        return str(self.record.get("labels", {}).get("kind", "masks"))

    def shown(self, name: str) -> str:
        """Return the name of an object for people."""
        return KINDS[self.kind].display_name(name, self.record.get("names", {}))

    def number(self, index: int) -> int:
        return self.frames[index].number

    @property
    def annotated_frames(self) -> list[int]:
        return [frame.index for frame in self.frames if frame.annotated]


def read_frames(path: Path, *, growing: bool = False) -> list[FrameRow]:
    """Read frames.csv; raises ValueError, KeyError, TypeError or csv.Error where it is damaged.

    A `growing` table belongs to a run that is not finished: its last line may be incomplete.
    """
    frames = [_frame_row(row) for row in csv.DictReader(_lines(path, growing))]
    if any(index != frame.index for index, frame in enumerate(frames)):
        raise ValueError("frames.csv does not have one line for every frame")
    return frames


def read_objects(path: Path, *, growing: bool = False) -> ObjectsByFrame:
    """Read objects.csv; raises ValueError, KeyError, TypeError or csv.Error where it is damaged."""
    return _object_rows(csv.DictReader(_lines(path, growing)))


def _lines(path: Path, growing: bool) -> io.StringIO:
    text = path.read_bytes().decode("utf-8")
    return io.StringIO(text[: text.rfind("\n") + 1] if growing else text, newline="")


def check_objects(objects: ObjectsByFrame, frames: int, kind: str) -> None:
    """Check that objects are on frames of the video, and that objects of masks and parts have numbers for names."""
    if not all(0 <= index < frames for index in objects):
        raise ValueError("objects.csv has frames that frames.csv lacks")
    if KINDS[kind].numbered:
        names = (name for of_frame in objects.values() for name in of_frame)
        invalid = next((name for name in names if not re.fullmatch(r"[0-9]{1,12}", name)), None)
        if invalid is not None:
            raise ValueError(f"objects.csv has an object {invalid[:40]!r}")


def _frame_row(row: Mapping[str, str]) -> FrameRow:
    confidence = _confidence(row["confidence"]) if row["confidence"] else None
    index, number = int(row["index"]), int(row["frame_number"])
    if confidence is not None and row["state"] not in get_args(State):
        raise ValueError(f"frame {index} has the state {row['state'][:40]!r}")
    return FrameRow(index, number, float(row["time_seconds"]), row["source"], confidence, row["state"])


def _object_rows(rows: Iterable[Mapping[str, str]]) -> ObjectsByFrame:
    objects: ObjectsByFrame = {}
    first_annotated: dict[str, int] = {}
    for row in rows:
        index, name, annotated = int(row["index"]), row["object"], row["source"] == "annotated"
        if row["state"] not in get_args(State):
            raise ValueError(f"an object on frame {index} has the state {row['state'][:40]!r}")
        objects.setdefault(index, {})[name] = ObjectRow(_confidence(row["confidence"]), row["state"], annotated)
        if annotated:
            first_annotated.setdefault(name, index)
    return {
        index: {
            name: replace(one, before_annotation=index < first_annotated.get(name, index))
            for name, one in of_frame.items()
        }
        for index, of_frame in objects.items()
    }


def _confidence(text: str) -> float:
    """Parse a confidence; what is not a number counts as 0, so that it comes first in the review queue."""
    value = float(text)
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0
