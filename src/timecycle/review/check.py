"""`check`: the queue of a run as a list for programs, a page for people, and a sheet of pictures."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from timecycle.files import lock, write_text
from timecycle.render import Captioned, Picture, contact_sheet, save_picture, thumbnail
from timecycle.review.calibration import calibrate, calibrated, corrected
from timecycle.review.corrections import recover
from timecycle.review.judged import Judged, read_judged, read_run
from timecycle.review.queue import Suggestion, suggest
from timecycle.review.report import report_html
from timecycle.video import open_video

_PICTURE_PX = 640  # width, on the page


@dataclass(frozen=True, eq=False)
class Checked:
    """What was found, and where it was written."""

    judged: Judged
    queue: Sequence[Suggestion]
    report: Path
    corrected: int  # objects on corrected frames, by which confidence was calibrated


def check(folder: Path, *, count: int = 10, together: bool = False) -> Checked:
    """Rank the frames of a finished run; writes report.html, review.json and review.png into its folder.

    The best frame first, then the best once that one is drawn; or `together` the best set for who will draw them all.
    Once frames were corrected, confidence is read as they teach; the tables of the run stay as they are.
    """
    read_run(folder)
    with lock(folder):
        recover(folder)
        return _check(folder, count, together)


def _check(folder: Path, count: int, together: bool) -> Checked:
    judged = read_judged(folder)
    known = corrected(folder)
    if known:
        judged = calibrated(judged, calibrate(known))
    queue = suggest(judged, count=count, together=together)
    pictures = _pictures(folder, [one.index for one in queue])
    report = folder / "report.html"
    write_text(report, report_html(judged, queue, pictures, corrected=len(known)))
    write_text(folder / "review.json", json.dumps([dataclasses.asdict(one) for one in queue], indent=2) + "\n")
    if queue:
        sheet = [
            Captioned(pictures[one.index], f"{place}. frame {one.index}   {one.state}, {one.confidence:.2f}")
            for place, one in enumerate(queue, 1)
        ]
        save_picture(folder / "review.png", contact_sheet(sheet))
    else:
        (folder / "review.png").unlink(missing_ok=True)
    return Checked(judged, queue, report, len(known))


def _pictures(folder: Path, frames: Sequence[int]) -> dict[int, Picture]:
    """The frames with their labels, from the film that the run drew."""
    with open_video(folder / "overlay.mp4") as film:
        return {index: thumbnail(film[index].image, width_px=_PICTURE_PX) for index in frames}
