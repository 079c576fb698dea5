"""A finished run as its folder tells it: how sure every frame and every object is."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timecycle.errors import OutputError


@dataclass(frozen=True)
class JudgedFrame:
    """One row of frames.csv; no confidence where nothing is known."""

    index: int
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
    def drawings(self) -> list[int]:
        return [frame.index for frame in self.frames if frame.given]


def read_judged(folder: Path) -> Judged:
    """What a run wrote; refuses a folder that holds none, or one without confidence."""
    record = read_run(folder)
    try:
        with (folder / "frames.csv").open(encoding="utf-8", newline="") as file:
            frames = [_frame(row) for row in csv.DictReader(file)]
        objects: dict[int, dict[str, JudgedObject]] = {}
        with (folder / "objects.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                judged = JudgedObject(float(row["confidence"]), row["state"])
                objects.setdefault(int(row["index"]), {})[row["object"]] = judged
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OutputError(
            f"the tables in {folder} cannot be read: {error}", remedy="carry the labels again with --overwrite"
        ) from error
    if not objects:
        raise OutputError(
            f"the run in {folder} was not judged", remedy="carry the labels again without --unjudged, with --overwrite"
        )
    return Judged(folder, record, frames, objects)


def read_run(folder: Path) -> dict[str, Any]:
    """The record of a finished run."""
    path = folder / "run.json"
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        status = record["status"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OutputError(
            f"{folder} holds no run", remedy="give the folder that `timecycle propagate ... -o FOLDER` wrote"
        ) from error
    if status != "finished":
        raise OutputError(f"the run in {folder} is not finished", remedy="go on with it: pass --resume to propagate")
    return record


def _frame(row: Mapping[str, str]) -> JudgedFrame:
    confidence = float(row["confidence"]) if row["confidence"] else None
    return JudgedFrame(int(row["index"]), float(row["time_seconds"]), row["source"], confidence, row["state"])
