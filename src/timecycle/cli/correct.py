"""`timecycle correct`"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle import device as devices
from timecycle.cli.console import Result, progress, say
from timecycle.cli.options import RunArgument
from timecycle.errors import LabelError
from timecycle.formats.reading import outside_format, read_any
from timecycle.formats.video_labels import VideoFacts
from timecycle.labels.file import frames_in_words
from timecycle.review.corrections import correct, undo
from timecycle.runs.folder import OutputFolder


@dataclass(frozen=True, kw_only=True)
class Correct:
    """Correct frames of a finished run with new annotations, or undo the last correction.

    Only the frames that depend on the corrected ones are propagated again; all others keep their bytes. Corrections
    that are given together are propagated once. The rows of a CSV of points say which frames they belong to.

    Examples:
      timecycle correct out 43=mask.png
      timecycle correct out 43=a.png 60=b.png
      timecycle correct out points.csv
      timecycle correct out --undo
    """

    folder: RunArgument
    labels: Annotated[
        Positional[tuple[str, ...]],
        arg(metavar="FRAME=LABELS ...", help="new annotations of frames; for points a CSV; or a file of another tool"),
    ] = ()
    exhaustive: Annotated[
        bool, arg(help="the annotations show every object: one that is not annotated there is absent")
    ] = False
    object: Annotated[
        int | None, arg(metavar="ID", help="id of the object that a mask of one object shows; a new id adds an object")
    ] = None
    video: Annotated[
        str | None, arg(metavar="VIDEO", help="where the video of the run is now, if it was moved or renamed")
    ] = None
    device: Annotated[devices.Device | None, arg(help="device to compute on; by default that of the run")] = None
    undo: Annotated[bool, arg(help="undo the last correction; the files become byte-identical again")] = False

    def __call__(self) -> Result:
        if self.undo == bool(self.labels):
            problem = "--undo takes no annotation" if self.undo else "no annotation was given"
            raise LabelError(problem, remedy=_REMEDY)
        if self.undo:
            numbers = OutputFolder(self.folder).frame_numbers()
            frames = [numbers[index] for index in undo(self.folder)]
            say(f"undid the last correction, of {frames_in_words(frames)}")
            say(f"timecycle check {_quoted(self.folder)} says what to do next")
            return {"folder": self.folder, "corrections": [], "undone": frames}
        kind = OutputFolder(self.folder).finished_record()["labels"]["kind"]
        numbered = [re.match(r"\d+=", label) for label in self.labels]
        outside = outside_format(self.labels) is not None  # a file of another tool, which names its frames itself
        if kind == "keypoints":
            if any(numbered):
                raise LabelError("a CSV of points already has the frame of each row", remedy="give the file alone")
        elif not all(numbered) and not outside:
            raise LabelError("an annotation was given without its frame", remedy=_REMEDY)
        numbers = OutputFolder(self.folder).frame_numbers()
        video = VideoFacts(name="the video of the run", frames=len(numbers), numbers=numbers)
        annotations = read_any(self.labels, video, kind=kind, exhaustive=self.exhaustive, together=False).labels
        with progress("correcting") as show:
            done = correct(
                self.folder, annotations, video=self.video, object_id=self.object, device=self.device, progress=show
            )
        corrections: list[Result] = [
            {
                "frames": [numbers[index] for index in correction.frames],
                "first": numbers[correction.first],
                "last": numbers[correction.last],
                "changed": [numbers[index] for index in correction.changed],
            }
            for correction in done
        ]
        for one in corrections:
            again = f"propagated again {one['first']}-{one['last']}"
            changed = frames_in_words(one["changed"]) if one["changed"] else "no frame"
            say(f"{frames_in_words(one['frames'])}: {again}, {changed} changed")
        say(f"look at {self.folder / 'overlay.mp4'}; timecycle check {_quoted(self.folder)} says what to do next")
        return {"folder": self.folder, "corrections": corrections, "undone": []}


_REMEDY = "write: timecycle correct OUT 43=mask.png, for points OUT points.csv, or OUT --undo"


def _quoted(folder: Path) -> str:
    return shlex.quote(str(folder))
