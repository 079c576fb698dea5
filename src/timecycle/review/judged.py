"""A finished run as its folder tells it: how sure every frame and every object is."""

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from timecycle.errors import OutputError, first_line
from timecycle.labels.names import shown_name
from timecycle.propagation.confidence import State
from timecycle.run_record import read_record


@dataclass(frozen=True)
class JudgedFrame:
    """One row of frames.csv; no confidence where nothing is known."""

    index: int
    number: int  # what the video calls it, in words for people and in file names
    time_seconds: float
    source: str
    confidence: float | None
    state: str

    @property
    def given(self) -> bool:
        return self.source == "given"


@dataclass(frozen=True)
class JudgedObject:
    """One object on one frame."""

    confidence: float
    state: str
    annotated: bool = False  # on this very frame
    early: bool = False  # before the first frame on which it is annotated

    @property
    def value(self) -> float:
        return self.confidence


@dataclass(frozen=True, eq=False)
class Judged:
    """A run: its frames in order, and its objects by frame and name."""

    folder: Path
    record: Mapping[str, Any]
    frames: Sequence[JudgedFrame]
    objects: Mapping[int, Mapping[str, JudgedObject]]

    @property
    def names(self) -> list[str]:
        """Of the objects, in the order of the table."""
        return list(dict.fromkeys(name for of_frame in self.objects.values() for name in of_frame))

    @property
    def kind(self) -> str:
        return str(self.record.get("labels", {}).get("kind", "masks"))

    def shown(self, name: str) -> str:
        """What an object is called on pages and in lists."""
        return shown_name(self.kind, name, self.record.get("names", {}))

    def number(self, index: int) -> int:
        return self.frames[index].number

    @property
    def drawings(self) -> list[int]:
        return [frame.index for frame in self.frames if frame.given]


def read_judged(folder: Path) -> Judged:
    """What a run wrote; refuses a folder that holds none, or one without confidence."""
    record = read_run(folder)
    try:
        with (folder / "frames.csv").open(encoding="utf-8", newline="") as file:
            frames = [_frame(row) for row in csv.DictReader(file)]
        objects = read_objects(folder / "objects.csv")
        if len(frames) != record["video"]["frames"] or any(i != frame.index for i, frame in enumerate(frames)):
            raise ValueError("frames.csv does not have one line for every frame")
        if not all(0 <= index < len(frames) for index in objects):
            raise ValueError("objects.csv has frames that frames.csv lacks")
        if record["labels"]["kind"] in ("masks", "parts"):
            _check_numbers(objects)
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise OutputError(
            f"the tables in {folder} cannot be read: {first_line(error)}",
            remedy="carry the labels again with --overwrite",
        ) from error
    if not objects:
        raise OutputError(
            f"the run in {folder} was not judged", remedy="carry the labels again without --unjudged, with --overwrite"
        )
    return Judged(folder, record, frames, objects)


def _check_numbers(objects: Mapping[int, Mapping[str, JudgedObject]]) -> None:
    """Objects of masks and parts are called by their numbers, which their pictures are drawn by."""
    strange = [name for of_frame in objects.values() for name in of_frame if not re.fullmatch(r"[0-9]{1,12}", name)]
    if strange:
        raise ValueError(f"objects.csv has an object {strange[0][:40]!r}")


def read_objects(path: Path) -> dict[int, dict[str, JudgedObject]]:
    """The rows of objects.csv by frame and object."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return _objects(csv.DictReader(file))
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise OutputError(
            f"the tables in {path.parent} cannot be read: {first_line(error)}",
            remedy="carry the labels again with --overwrite",
        ) from error


def _objects(rows: Iterable[Mapping[str, str]]) -> dict[int, dict[str, JudgedObject]]:
    objects: dict[int, dict[str, JudgedObject]] = {}
    first: dict[str, int] = {}  # frame on which each object is annotated
    for row in rows:
        index, name, annotated = int(row["index"]), row["object"], row["source"] == "given"
        if row["state"] not in get_args(State):
            raise ValueError(f"an object on frame {index} is {row['state'][:40]!r}")
        objects.setdefault(index, {})[name] = JudgedObject(_confidence(row["confidence"]), row["state"], annotated)
        if annotated:
            first.setdefault(name, index)
    return {
        index: {name: replace(one, early=index < first.get(name, index)) for name, one in of_frame.items()}
        for index, of_frame in objects.items()
    }


def frame_numbers(folder: Path) -> list[int]:
    """What the video of a run calls each of its frames."""
    try:
        with (folder / "frames.csv").open(encoding="utf-8", newline="") as file:
            return [int(row["frame_number"]) for row in csv.DictReader(file)]
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise OutputError(
            f"{folder / 'frames.csv'} cannot be read: {first_line(error)}", remedy="propagate again with --overwrite"
        ) from error


def read_run(folder: Path) -> dict[str, Any]:
    """The record of a finished run."""
    record = read_record(folder)
    if record["status"] != "finished":
        raise OutputError(f"the run in {folder} is not finished", remedy="go on with it: pass --resume to propagate")
    return record


def _frame(row: Mapping[str, str]) -> JudgedFrame:
    confidence = _confidence(row["confidence"]) if row["confidence"] else None
    index, number = int(row["index"]), int(row["frame_number"])
    if confidence is not None and row["state"] not in get_args(State):
        raise ValueError(f"frame {index} is {row['state'][:40]!r}")
    return JudgedFrame(index, number, float(row["time_seconds"]), row["source"], confidence, row["state"])


def _confidence(text: str) -> float:
    """What is no number is not sure at all, and comes first among what is to be checked."""
    value = float(text)
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0
