"""`check`: write the review queue of a run as a list, a page and a sheet of pictures."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from timecycle.files import write_text
from timecycle.labels import KINDS
from timecycle.render import Captioned, Picture, contact_sheet, save_picture, thumbnail
from timecycle.review.calibration import calibrate, corrected_objects, with_calibration
from timecycle.review.queue import Suggestion, suggest
from timecycle.review.report import report_html
from timecycle.review.review_files import ReviewFiles, write_review_files
from timecycle.runs.folder import OutputFolder
from timecycle.runs.history import refuse_interrupted
from timecycle.runs.tables import RunTables
from timecycle.video import open_video

_PICTURE_PX = 640  # width, on the page


@dataclass(frozen=True, eq=False)
class CheckResult:
    """The review queue, and the files that were written for it."""

    tables: RunTables
    queue: Sequence[Suggestion]
    report: Path
    corrected: int  # objects on corrected frames, from which confidence was calibrated
    files: Mapping[int, ReviewFiles]  # by index: the pictures of the frames to check, and their labels to edit
    edited: Sequence[str]  # names of such files that a person had edited, and that were left as they were

    def __repr__(self) -> str:
        frames = f"{len(self.queue)} frame{'' if len(self.queue) == 1 else 's'} to review"
        lines = (f"  frame {one.frame_number}: {one.reason}" for one in self.queue)
        return "\n".join((f"CheckResult({str(self.report)!r}, {frames})", *lines))


def check(folder: Path, *, count: int = 10, together: bool = False) -> CheckResult:
    """Rank the frames of a finished run; write report.html, review.json, review.png and review/ into its folder.

    Each suggestion is the best frame once those before it are annotated; with `together`, the suggestions are the best
    set for a person who will annotate all of them. Corrected frames calibrate confidence here; the tables of the run
    do not change.
    """
    run = OutputFolder(folder)
    with run.lock_finished():
        refuse_interrupted(run)
        return _check(run, count, together)


def _check(run: OutputFolder, count: int, together: bool) -> CheckResult:
    tables = run.tables()
    corrected = corrected_objects(run)
    if corrected:
        tables = with_calibration(tables, calibrate(corrected))
    queue = suggest(tables, count=count, together=together)
    pictures = _pictures(run, tables, queue)
    files, edited = write_review_files(run, tables, queue)
    report, sheet_file = run.path / "report.html", run.path / "review.png"
    write_text(report, report_html(tables, queue, pictures, files, corrected=len(corrected)))
    write_text(run.path / "review.json", json.dumps([dataclasses.asdict(one) for one in queue], indent=2) + "\n")
    if queue:
        sheet = [
            Captioned(pictures[one.index], f"{rank}. frame {one.frame_number}   {one.name}, {one.confidence:.2f}")
            for rank, one in enumerate(queue, 1)
        ]
        legend = {
            tables.shown(name): KINDS[tables.kind].object_colour(name, at) for at, name in enumerate(tables.names)
        }
        save_picture(sheet_file, contact_sheet(sheet, legend=legend))
    else:
        sheet_file.unlink(missing_ok=True)
    return CheckResult(tables, queue, report, len(corrected), files, edited)


def _pictures(run: OutputFolder, tables: RunTables, queue: Sequence[Suggestion]) -> dict[int, Picture]:
    """Take the frames with their labels from the overlay video, and outline the least confident object."""
    kind, pictures = KINDS[tables.kind], {}
    with open_video(run.overlay) as video:
        for one in queue:
            picture = run.read_labels(one.frame_number, kind).outline(video[one.index].image, one.object)
            pictures[one.index] = thumbnail(picture, width_px=_PICTURE_PX)
    return pictures
