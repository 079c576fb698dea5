"""`timecycle check`"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.cli.console import err, hanging, out
from timecycle.review.check import check
from timecycle.review.review_files import correct_command


@dataclass(frozen=True, kw_only=True)
class Check:
    """Which frames of a finished run to look at first, as a list and as a page with pictures.

    For example: timecycle check out
    """

    folder: Annotated[Positional[Path], arg(metavar="OUT", help="what `timecycle propagate ... -o OUT` wrote")]
    count: Annotated[int, arg(aliases=["-n"], help="frames to suggest at most")] = 10
    together: Annotated[bool, arg(help="choose them as a set, as you will draw them all: -n 3 --together")] = False

    def __call__(self) -> None:
        done = check(self.folder, count=self.count, together=self.together)
        if not done.queue:
            out.print("nothing to check: every frame is annotated, or as sure as can be")
        for place, one in enumerate(done.queue, 1):
            out.print(hanging(f"{place:>2}. frame {one.frame_number:<6} {one.time_seconds:8.2f} s   ", one.reason))
        if done.corrected:
            plural = "" if done.corrected == 1 else "s"
            out.print(f"confidence is calibrated by what you corrected: {done.corrected} object{plural}")
        for name in done.edited:
            err.print(f"note: {self.folder / 'review' / name} was edited and is left as it is")
        best = done.queue[0] if done.queue else None
        files = done.files.get(best.index) if best is not None else None
        command = correct_command(done.judged, best, files) if best is not None else None
        if files is not None and command is not None:
            out.print(f"to fix frame {done.queue[0].frame_number}: edit {self.folder / str(files.labels)}, then")
            out.print(f"  {command}")
        out.print(f"look at {done.report}")
