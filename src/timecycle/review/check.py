"""`check`: write the review queue of a run as a list, a page and a sheet of pictures, and the files to edit to review/.

A file of review/ that a person changed is never overwritten or removed. `check` recognises its own by their checksums.
"""

import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from timecycle.errors import TimecycleError
from timecycle.files import atomic_write, make_folder, sha256, write_text
from timecycle.labels import KINDS
from timecycle.render import Captioned, Picture, contact_sheet, save_picture, thumbnail
from timecycle.review.calibration import calibrate, corrected_objects, with_calibration
from timecycle.review.queue import Suggestion, suggest
from timecycle.review.report import ReviewFiles, report_html
from timecycle.runs.folder import OutputFolder
from timecycle.runs.history import refuse_interrupted
from timecycle.runs.tables import RunTables
from timecycle.video import Video, open_video

_PICTURE_PX = 640  # width, on the page
_CHECKSUMS = "written.json"
_JPEG_QUALITY = 95


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
        frames = f"{len(self.queue)} frame{'' if len(self.queue) == 1 else 's'} to annotate next"
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
    files, edited = _write_review_files(run, tables, queue)
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


# review/


def _write_review_files(
    run: OutputFolder, tables: RunTables, queue: Sequence[Suggestion]
) -> tuple[dict[int, ReviewFiles], list[str]]:
    """Write the files of every suggested frame, and remove those of earlier suggestions.

    Returns the files by frame index, and the names of files that were kept because a person had edited them.
    """
    folder = make_folder(run.review)
    before = _read_checksums(folder)
    ours = {name for name, digest in before.items() if (folder / name).is_file() and sha256([folder / name]) == digest}
    checksums: dict[str, str] = {}
    files: dict[int, ReviewFiles] = {}
    edited: list[str] = []

    def write(name: str, content: bytes) -> str:
        if (folder / name).exists() and name not in ours:
            edited.append(name)
        else:
            with atomic_write(folder / name) as file:
                file.write(content)
            checksums[name] = sha256([folder / name])
        return f"{folder.name}/{name}"

    video = _open_source(run)
    try:
        for one in queue:
            picture = labels = None
            if video is not None:
                picture = write(f"{one.frame_number:05d}.jpg", _jpeg(video, one.index))
            if KINDS[tables.kind].correctable:
                source = run.label_file(one.frame_number, KINDS[tables.kind])
                labels = write(source.name, _editable(source, tables))
            files[one.index] = ReviewFiles(picture, labels)
    finally:
        if video is not None:
            video.close()
    for name in ours - set(checksums):
        (folder / name).unlink()
    write_text(folder / _CHECKSUMS, json.dumps(checksums, indent=2) + "\n")
    return files, edited


def _open_source(run: OutputFolder) -> Video | None:
    """Open the video that was labelled; None where it is not at its recorded location any more."""
    try:
        return run.open_video()
    except TimecycleError:
        return None


def _editable(source: Path, tables: RunTables) -> bytes:
    """Return the label file of a frame for editing: in colours, even where the files of the run are grey."""
    grey = tables.record["outputs"]["label_files"] == "grey"
    return KINDS[tables.kind].in_colours(source) if grey else source.read_bytes()


def _jpeg(video: Video, index: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(video[index].image).save(file, format="JPEG", quality=_JPEG_QUALITY)
    return file.getvalue()


def _read_checksums(folder: Path) -> Mapping[str, str]:
    """Read the checksums of what an earlier `check` wrote; empty where they are missing or damaged."""
    try:
        checksums = json.loads((folder / _CHECKSUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(checksums, dict):
        return {}
    # A name must be a file of this folder, whatever the list says.
    return {name: str(digest) for name, digest in checksums.items() if Path(name).name == name}
