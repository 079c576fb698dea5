"""`timecycle correct`"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.cli.console import out, progress
from timecycle.errors import LabelError
from timecycle.labels import read_labels
from timecycle.labels.masks import colours_in
from timecycle.review.corrections import correct, undo
from timecycle.review.judged import read_run


@dataclass(frozen=True, kw_only=True)
class Correct:
    """Draw a frame of a finished run anew; the frames it controls are carried again, no other is touched.

    For example: timecycle correct out 43=drawing.png

    or, for points, whose rows say which frame they are on: timecycle correct out points.csv

    or: timecycle correct out --undo
    """

    folder: Annotated[Positional[Path], arg(metavar="OUT", help="what `timecycle propagate ... -o OUT` wrote")]
    labels: Annotated[
        Positional[tuple[str, ...]], arg(metavar="INDEX=LABELS ...", help="frames drawn anew; for points a CSV")
    ] = ()
    complete: Annotated[bool, arg(help="the drawing shows every object: one that is not drawn is not there")] = False
    undo: Annotated[bool, arg(help="take the last correction back, to the byte")] = False

    def __call__(self) -> None:
        if self.undo == bool(self.labels):
            raise LabelError("no drawing was given" if not self.undo else "--undo takes no drawing", remedy=_REMEDY)
        if self.undo:
            out.print(f"frame {undo(self.folder)} is as it was before it was drawn anew")
            return
        kind = read_run(self.folder)["labels"]["kind"]
        numbered = [re.match(r"\d+=", label) for label in self.labels]
        if kind == "keypoints":
            if any(numbered):
                raise LabelError("a CSV of points says itself which frames they are on", remedy="give the file alone")
        elif not all(numbered):
            raise LabelError("a drawing does not say which frame it is of", remedy=_REMEDY)
        if kind == "masks" and colours_in([Path(label.partition("=")[2]) for label in self.labels]):
            raise LabelError(
                "the drawing shows objects as colours of its own, which do not tell which object is which",
                remedy=f"draw over the frame's file in {self.folder / 'labels'}, and save a palette PNG",
            )
        drawn = read_labels(self.labels, kind=kind, complete=self.complete)
        with progress("correcting") as show:
            done = correct(self.folder, drawn, progress=show)
        for index, one in zip(sorted(drawn), done, strict=True):
            out.print(
                f"frame {index}: carried again {one.first}-{one.last}, {len(one.changed)} frames changed"
                f"{': ' + _ranges(one.changed) if one.changed else ''}"
            )
        out.print(f"look at {self.folder / 'overlay.mp4'}; timecycle check {self.folder} says what to do next")


_REMEDY = "write: timecycle correct OUT 43=drawing.png, for points OUT points.csv, or OUT --undo"


def _ranges(frames: Sequence[int]) -> str:
    """1-4, 7, 9-12"""
    parts: list[list[int]] = []
    for frame in frames:
        if parts and parts[-1][1] == frame - 1:
            parts[-1][1] = frame
        else:
            parts.append([frame, frame])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
