"""`timecycle correct`"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.cli.console import out, progress
from timecycle.errors import LabelError
from timecycle.labels import read_labels
from timecycle.review.corrections import correct, undo
from timecycle.review.judged import frame_numbers, read_run


@dataclass(frozen=True, kw_only=True)
class Correct:
    """Annotate frames of a finished run again; the frames they control are propagated again, no other is touched.

    For example: timecycle correct out 43=drawing.png

    Several given together are propagated once: timecycle correct out 43=a.png 60=b.png

    or, for points, whose rows say which frame they are on: timecycle correct out points.csv

    or: timecycle correct out --undo
    """

    folder: Annotated[Positional[Path], arg(metavar="OUT", help="what `timecycle propagate ... -o OUT` wrote")]
    labels: Annotated[
        Positional[tuple[str, ...]], arg(metavar="FRAME=LABELS ...", help="frames drawn anew; for points a CSV")
    ] = ()
    complete: Annotated[bool, arg(help="the drawing shows every object: one that is not drawn is not there")] = False
    object: Annotated[
        int | None, arg(metavar="ID", help="the object that a mask of one object shows; a new id adds an object")
    ] = None
    undo: Annotated[bool, arg(help="take back what the last `correct` did, to the byte")] = False

    def __call__(self) -> None:
        if self.undo == bool(self.labels):
            raise LabelError("no drawing was given" if not self.undo else "--undo takes no drawing", remedy=_REMEDY)
        if self.undo:
            numbers = frame_numbers(self.folder)
            frames = [numbers[index] for index in undo(self.folder)]
            is_as = "is as it was" if len(frames) == 1 else "are as they were"
            out.print(f"{_named(frames)} {is_as} before the last correction")
            out.print(f"timecycle check {_quoted(self.folder)} says what to do next")
            return
        kind = read_run(self.folder)["labels"]["kind"]
        numbered = [re.match(r"\d+=", label) for label in self.labels]
        if kind == "keypoints":
            if any(numbered):
                raise LabelError("a CSV of points says itself which frames they are on", remedy="give the file alone")
        elif not all(numbered):
            raise LabelError("a drawing does not say which frame it is of", remedy=_REMEDY)
        numbers = frame_numbers(self.folder)
        drawn = read_labels(self.labels, kind=kind, complete=self.complete, numbers=numbers, together=False)
        with progress("correcting") as show:
            done = correct(self.folder, drawn, object_id=self.object, progress=show)
        for one in done:
            changed = [numbers[index] for index in one.changed]
            out.print(
                f"{_named([numbers[index] for index in one.frames])}: "
                f"propagated again {numbers[one.first]}-{numbers[one.last]}, "
                f"{len(changed)} frames changed{': ' + _ranges(changed) if changed else ''}"
            )
        out.print(f"look at {self.folder / 'overlay.mp4'}; timecycle check {_quoted(self.folder)} says what to do next")


_REMEDY = "write: timecycle correct OUT 43=drawing.png, for points OUT points.csv, or OUT --undo"


def _quoted(folder: Path) -> str:
    return shlex.quote(str(folder))


def _named(frames: Sequence[int]) -> str:
    return f"frame{'s' if len(frames) > 1 else ''} {', '.join(map(str, frames))}"


def _ranges(frames: Sequence[int]) -> str:
    """1-4, 7, 9-12"""
    parts: list[list[int]] = []
    for frame in frames:
        if parts and parts[-1][1] == frame - 1:
            parts[-1][1] = frame
        else:
            parts.append([frame, frame])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
