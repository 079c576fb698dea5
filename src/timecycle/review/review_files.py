"""review/: the frames to check as pictures, with their labels as files that are ready to edit.

A file that a person changed is never written over or removed: what `check` itself wrote is known by its checksum.
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
from timecycle.outputs import label_path
from timecycle.review.judged import Judged
from timecycle.review.queue import Suggestion
from timecycle.video import Video, open_video

FOLDER = "review"
_WRITTEN = "written.json"
_QUALITY = 95
EDITABLE = ("masks", "parts", "keypoints")  # textures and coordinates refer to one frame and cannot be corrected


@dataclass(frozen=True)
class ReviewFiles:
    """Of a frame to check, by name in the output folder: its picture and its labels, where they could be written."""

    frame: str | None
    labels: str | None


def write_review_files(judged: Judged, queue: Sequence[Suggestion]) -> tuple[dict[int, ReviewFiles], list[str]]:
    """Write the files of every suggested frame, and remove those of earlier suggestions; also gives, by name, the files
    that are kept because somebody edited them."""
    folder = make_folder(judged.folder / FOLDER)
    before = _read_written(folder)
    ours = {name for name, digest in before.items() if (folder / name).is_file() and sha256([folder / name]) == digest}
    fresh: dict[str, str] = {}
    files: dict[int, ReviewFiles] = {}
    edited: list[str] = []

    def write(name: str, content: bytes) -> str:
        if (folder / name).exists() and name not in ours:
            edited.append(name)
        else:
            with atomic_write(folder / name) as file:
                file.write(content)
            fresh[name] = sha256([folder / name])
        return f"{FOLDER}/{name}"

    video = _video_of(judged)
    try:
        for one in queue:
            picture = labels = None
            if video is not None:
                picture = write(f"{one.frame_number:05d}.jpg", _jpeg(video, one.index))
            if judged.kind in EDITABLE:
                source = label_path(judged.folder / "labels", one.frame_number, KINDS[judged.kind])
                labels = write(source.name, _to_paint(source, judged))
            files[one.index] = ReviewFiles(picture, labels)
    finally:
        if video is not None:
            video.close()
    for name in ours - set(fresh):
        (folder / name).unlink()
    write_text(folder / _WRITTEN, json.dumps(fresh, indent=2) + "\n")
    return files, edited


def correct_command(judged: Judged, one: Suggestion, files: ReviewFiles | None) -> str | None:
    """What to type once the labels of a frame are edited; it works from any folder. None where nothing can be: labels
    of one frame only, or a run from Python that does not say where its video lies."""
    if files is None or files.labels is None or not judged.record.get("origin"):
        return None
    folder = judged.folder.absolute()
    edited = str(folder / files.labels)
    argument = edited if judged.kind == "keypoints" else f"{one.frame_number}={edited}"
    return shlex.join(["timecycle", "correct", str(folder), argument])


def _video_of(judged: Judged) -> Video | None:
    """The video that was labelled; None where it is no longer where it was, or another."""
    origin = judged.record.get("origin")
    if not origin:
        return None
    try:
        video = open_video(origin["video"], fps=origin["fps"], allow_damaged=bool(judged.record["video"].get("damage")))
        if video.fingerprint() == judged.record["video"]["sha256"]:
            return video
        video.close()
    except TimecycleError:
        return None
    return None


def _to_paint(source: Path, judged: Judged) -> bytes:
    """The labels of a frame as they are edited: in colours, also where the run's own files are grey."""
    if judged.kind != Masks.kind or judged.record.get("outputs", {}).get("label_files") != "grey":
        return source.read_bytes()
    ids = Masks.read(source).ids
    return source.read_bytes() if ids.max(initial=0) > 255 else ids_png(ids, deep=False, grey=False)


def _jpeg(video: Video, index: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(video[index].image).save(file, format="JPEG", quality=_QUALITY)
    return file.getvalue()


def _read_written(folder: Path) -> Mapping[str, str]:
    """The checksums of what an earlier `check` wrote; nothing where that cannot be told."""
    try:
        written = json.loads((folder / _WRITTEN).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(written, dict):
        return {}
    # A name is a file of this folder, whatever the list says.
    return {name: str(digest) for name, digest in written.items() if Path(name).name == name}
