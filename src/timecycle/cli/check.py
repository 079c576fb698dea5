"""`timecycle check`"""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from timecycle.cli.console import Result, hanging, out, say
from timecycle.cli.options import RunArgument
from timecycle.labels.file import note
from timecycle.review.check import check
from timecycle.review.report import correct_command


@dataclass(frozen=True, kw_only=True)
class Check:
    """List the frames of a finished run to review first, and write a page with pictures of them.

    Examples:
      timecycle check out
      timecycle check out -n 3 --together
    """

    folder: RunArgument
    count: Annotated[int, arg(aliases=["-n"], help="number of frames to suggest at most")] = 10
    together: Annotated[bool, arg(help="choose the frames as a set, for when you will annotate them all")] = False

    def __call__(self) -> Result:
        done = check(self.folder, count=self.count, together=self.together)
        if not done.queue:
            say("nothing to review: every frame is annotated, or its confidence is high")
        for rank, suggested in enumerate(done.queue, 1):
            start = f"{rank:>2}. frame {suggested.frame_number:<6} {suggested.time_seconds:8.2f} s   "
            out.print(hanging(start, suggested.reason))
        if done.corrected:
            plural = "" if done.corrected == 1 else "s"
            say(f"confidence is calibrated with your corrections: {done.corrected} object{plural}")
        for name in done.edited:
            note(f"{self.folder / 'review' / name} was edited and is kept")
        best = done.queue[0] if done.queue else None
        files = done.files.get(best.index) if best is not None else None
        command = correct_command(done.tables, best, files, folder=self.folder) if best is not None else None
        if best is not None and files is not None and command is not None:
            say(f"to fix frame {best.frame_number}: edit {self.folder / str(files.labels)}, then")
            say(f"  {command}")
        say(f"look at {done.report}")
        return {
            "folder": self.folder,
            "queue": done.queue,
            "corrected_objects": done.corrected,
            "edited_files": [self.folder / "review" / name for name in done.edited],
            "report": done.report,
        }
