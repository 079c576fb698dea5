"""`check`: the queue of a run as a list for programs, a page for people, and a sheet of pictures."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from timecycle.files import lock, write_text
from timecycle.labels import KINDS
from timecycle.outputs import label_path
from timecycle.render import Captioned, Picture, contact_sheet, object_colour, outlined, save_picture, thumbnail
from timecycle.review.calibration import calibrate, calibrated, corrected
from timecycle.review.corrections import refuse_interrupted
from timecycle.review.judged import Judged, read_judged, read_run
from timecycle.review.queue import Suggestion, suggest
from timecycle.review.report import report_html
from timecycle.review.review_files import ReviewFiles, write_review_files
from timecycle.run_record import refuse_links
from timecycle.video import open_video

_PICTURE_PX = 640  # width, on the page


@dataclass(frozen=True, eq=False)
class Checked:
    """What was found, and where it was written."""

    judged: Judged
    queue: Sequence[Suggestion]
    report: Path
    corrected: int  # objects on corrected frames, by which confidence was calibrated
    files: Mapping[int, ReviewFiles]  # by index: the frames to check, and their labels, ready to edit
    edited: Sequence[str]  # names of such files that were left as somebody had edited them


def check(folder: Path, *, count: int = 10, together: bool = False) -> Checked:
    """Rank the frames of a finished run; writes report.html, review.json, review.png and review/ into its folder.

    The best frame first, then the best once that one is drawn; or `together` the best set for who will draw them all.
    Once frames were corrected, confidence is read as they teach; the tables of the run stay as they are.
    """
    refuse_links(folder)
    read_run(folder)
    with lock(folder):
        refuse_interrupted(folder)
        return _check(folder, count, together)


def _check(folder: Path, count: int, together: bool) -> Checked:
    judged = read_judged(folder)
    known = corrected(folder)
    if known:
        judged = calibrated(judged, calibrate(known))
    queue = suggest(judged, count=count, together=together)
    pictures = _pictures(judged, queue)
    files, edited = write_review_files(judged, queue)
    report = folder / "report.html"
    write_text(report, report_html(judged, queue, pictures, files, corrected=len(known)))
    write_text(folder / "review.json", json.dumps([dataclasses.asdict(one) for one in queue], indent=2) + "\n")
    if queue:
        sheet = [
            Captioned(pictures[one.index], f"{place}. frame {one.frame_number}   {one.name}, {one.confidence:.2f}")
            for place, one in enumerate(queue, 1)
        ]
        legend = {
            judged.shown(name): object_colour(judged.kind, name, place) for place, name in enumerate(judged.names)
        }
        save_picture(folder / "review.png", contact_sheet(sheet, legend=legend))
    else:
        (folder / "review.png").unlink(missing_ok=True)
    return Checked(judged, queue, report, len(known), files, edited)


def _pictures(judged: Judged, queue: Sequence[Suggestion]) -> dict[int, Picture]:
    """The frames with their labels, from the overlay video of the run; the object in question is outlined."""
    kind, pictures = KINDS[judged.kind], {}
    with open_video(judged.folder / "overlay.mp4") as video:
        for one in queue:
            labels = kind.read(label_path(judged.folder / "labels", one.frame_number, kind))
            picture = outlined(video[one.index].image, labels, one.object)
            pictures[one.index] = thumbnail(picture, width_px=_PICTURE_PX)
    return pictures
