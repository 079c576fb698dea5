"""review/: pictures of the frames to check, and copies of their labels to edit.

A file that a person changed is never overwritten or removed. `check` recognises its own files by their checksums.
"""

import io
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from timecycle.errors import TimecycleError
from timecycle.files import atomic_write, make_folder, sha256, write_text
from timecycle.labels import KINDS, Masks
from timecycle.labels.mask_file import ids_png
from timecycle.review.queue import Suggestion
from timecycle.runs.folder import OutputFolder
from timecycle.runs.run import ONE_FRAME_KINDS
from timecycle.runs.tables import RunTables
from timecycle.video import Video

_CHECKSUMS = "written.json"
_JPEG_QUALITY = 95


@dataclass(frozen=True)
class ReviewFiles:
    """The picture and the labels of a frame to check, by name in the output folder; None where not written."""

    frame: str | None
    labels: str | None


def write_review_files(
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
            if tables.kind not in ONE_FRAME_KINDS:
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


def correct_command(tables: RunTables, one: Suggestion, files: ReviewFiles | None) -> str | None:
    """Return the command to run once the labels of a frame are edited; it works from any folder.

    None where there are no labels to edit, or where the run does not record the location of its video.
    """
    if files is None or files.labels is None or not tables.record.get("origin"):
        return None
    folder = tables.folder.absolute()
    edited = str(folder / files.labels)
    argument = edited if tables.kind == "keypoints" else f"{one.frame_number}={edited}"
    return shlex.join(["timecycle", "correct", str(folder), argument])


def _open_source(run: OutputFolder) -> Video | None:
    """Open the video that was labelled; None where it is not at its recorded location any more."""
    try:
        return run.open_video()
    except TimecycleError:
        return None


def _editable(source: Path, tables: RunTables) -> bytes:
    """Return the label file of a frame for editing: in colours, even where the files of the run are grey."""
    if tables.kind != Masks.kind or tables.record["outputs"]["label_files"] != "grey":
        return source.read_bytes()
    ids = Masks.read(source).ids
    return source.read_bytes() if ids.max(initial=0) > 255 else ids_png(ids)


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
