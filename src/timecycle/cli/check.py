"""`timecycle check`"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.cli.console import out
from timecycle.review.check import check


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
            out.print("nothing to check: every frame was drawn, or is as sure as can be")
        for place, one in enumerate(done.queue, 1):
            out.print(
                f"{place:>2}. frame {one.index:<6} {one.time_seconds:8.2f} s   object {one.object} is {one.state}, "
                f"confidence {one.confidence:.2f}; controls {one.first}-{one.last}"
            )
        if done.corrected:
            out.print(f"confidence is calibrated by what you corrected: {done.corrected} objects")
        out.print(f"look at {done.report}")
