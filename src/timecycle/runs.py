"""One video into one output folder: labels, confidence, frames.csv, objects.csv, overlay.mp4, contact.png, run.json.

A run holds a lock, can be resumed after any interruption with the bytes an uninterrupted run would have written,
and never touches a finished folder unless told to.
"""

import csv
import dataclasses
import hashlib
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from timecycle.behind import Behind
from timecycle.errors import LabelError, OutputError, first_line
from timecycle.files import clear_parts, lock, make_folder, write_text, writing
from timecycle.kernel.library import find_kernel
from timecycle.labels import Labels, Masks, Parts
from timecycle.labels.annotated import Objects, annotated_objects
from timecycle.model.encoder import Encoder
from timecycle.model.inference import Device
from timecycle.model.registry import PrecisionChoice
from timecycle.outputs import (
    COLUMNS,
    FILES,
    OBJECT_COLUMNS,
    PASSES,
    REVIEW_FILES,
    ContactSheet,
    LabelFiles,
    Show,
    confidence_path,
    csv_lines,
    frame_row,
    label_path,
    object_rows,
    write_confidence,
    write_labels,
    write_record,
    write_summaries,
)
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.passes import PassMaps
from timecycle.propagation.propagate import LabelledFrame, check_labels, check_trust, count_steps, propagate, source_of
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.workfolder import WorkFolder
from timecycle.run_record import FOLDERS, RECORD, read_record, refuse_links
from timecycle.version import __version__
from timecycle.video import Video, VideoWriter

_WORK = ".work"
_WRITTEN = "written.csv"  # in it: what was written about each frame, for a run that goes on
_WRITTEN_COLUMNS = "index,sha256\n"
ONE_FRAME_KINDS = ("texture", "coordinates")  # refer to the one frame that was annotated, and cannot be corrected
_WAITING_FRAMES = 4  # labelled but not yet written: enough to smooth over a slow one

Progress = Callable[[int, int], None]  # steps done, steps in all


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where the video lies and which encoder was asked for, in the words of `open_video` and `load_encoder`."""

    video: str
    fps: float | None
    encoder: str
    device: Device
    precision: PrecisionChoice


@dataclass(frozen=True, kw_only=True)
class Task:
    """Everything that decides what a run writes."""

    video: Video
    labels: Mapping[int, Labels]
    encoder: Encoder
    config: PropagateConfig
    trust: TrustConfig | None = field(default_factory=TrustConfig)  # none: nothing is judged
    names: Mapping[str, str] = field(default_factory=dict)  # of objects, by what stands in objects.csv
    label_files: LabelFiles = "palette"
    origin: Origin | None = None  # for going back to the video later; changes nothing of what is written
    keep_passes: bool = True  # what makes corrections cheaper, a few kB for each frame; changes no output

    @property
    def kind(self) -> type[Labels]:
        return type(next(iter(self.labels.values())))

    @property
    def correctable(self) -> bool:
        """Whether to keep what corrections can use."""
        return self.keep_passes and self.kind.kind not in ONE_FRAME_KINDS

    def identity(self) -> dict[str, Any]:
        """What must be the same for a run to go on where another stopped."""
        return {
            "video": {
                "name": Path(self.video.name).name,
                "sha256": self.video.fingerprint(),
                "frames": len(self.video),
                "width_px": self.video.size.width_px,
                "height_px": self.video.size.height_px,
                "damage": self.video.damage,
            },
            "labels": annotations_record(
                self.kind,
                {int(index): annotation_sha256(labels) for index, labels in self.labels.items()},
                {int(index): annotated_objects(labels) for index, labels in self.labels.items()},
            ),
            "encoder": {
                "name": Path(self.encoder.name).name,
                "sha256": self.encoder.sha256,
                "form": self.encoder.form,
            },
            "config": dataclasses.asdict(self.config),
            "trust": dataclasses.asdict(self.trust) if self.trust else {},
            "names": dict(sorted(self.names.items())),
            "outputs": {"label_files": self.label_files},
            "matching": {"rounding": find_kernel().rounding},
        }


@dataclass(frozen=True)
class Finished:
    """What a run left behind."""

    folder: Path
    frames: int
    seconds: float
    already: bool = False  # it had been finished before, and there was nothing to resume


def run(
    task: Task,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Finished:
    """Carry the labels through the video and write the output folder."""
    if resume and overwrite:
        raise OutputError(
            "a run cannot both go on and begin anew", remedy="pass either --resume or --overwrite, not both"
        )
    task = replace(task, labels=check_labels(task.video, task.labels))
    check_trust(task.labels, task.trust)
    if task.label_files == "grey" and not issubclass(task.kind, Masks | Parts):
        raise LabelError(f"grey label files were asked for {task.kind.kind}", remedy="leave out --label-files")
    refuse_inside(folder, [Path(task.video.name)])
    started = time.monotonic()
    make_folder(folder)
    with lock(folder):
        if resume and (finished := _finished(folder, task)) is not None:
            return finished
        record = _open_record(folder, task, resume=resume, overwrite=overwrite)
        _write_frames(task, folder, progress)
        seconds = time.monotonic() - started
        write_record(folder, record | {"status": "finished", "seconds": round(seconds, 3)})
        shutil.rmtree(folder / _WORK, ignore_errors=True)
    return Finished(folder, len(task.video), seconds)


def _finished(folder: Path, task: Task) -> Finished | None:
    """What this very run left behind, if it is finished, with corrections or without."""
    if not (folder / RECORD).is_file():
        return None
    old = read_record(folder)
    if old["status"] != "finished":
        return None
    fresh = json.loads(json.dumps(task.identity()))
    _refuse_difference(folder, old, fresh | ({"labels": old["labels"]} if old.get("corrections") else {}))
    return Finished(folder, len(task.video), float(old.get("seconds", 0.0)), already=True)


def refuse_inside(folder: Path, inputs: Iterable[Path]) -> None:
    """Refuse inputs that lie in the output folder, where a run would replace them."""
    for path in inputs:
        if path.exists() and path.resolve().is_relative_to(folder.resolve()):
            raise OutputError(
                f"{path} lies in the output folder {folder}, where it would be replaced",
                remedy="copy it elsewhere, or choose another folder with -o",
            )


def _open_record(folder: Path, task: Task, *, resume: bool, overwrite: bool) -> dict[str, Any]:
    """The run's record, new or taken up again; refuses to mix two runs or to lose a finished one."""
    # Through JSON at once: what cannot be recorded must fail before anything is cleared.
    origin = {"origin": dataclasses.asdict(task.origin) if task.origin else None}
    about = {"status": "running", "timecycle": __version__, **origin, **_colours_record(task.labels.values())}
    fresh: dict[str, Any] = json.loads(json.dumps(task.identity() | about))
    refuse_links(folder)
    others = [item for item in folder.iterdir() if item.name != ".lock"]
    old = (_any_record if overwrite else read_record)(folder) if (folder / RECORD).is_file() else {}
    if others and "timecycle" not in old:
        raise OutputError(f"{folder} is not empty and holds no run", remedy="choose an empty or new folder with -o")
    if old and not overwrite:
        if old.get("status") == "finished":
            raise OutputError(
                f"{folder} holds a finished run",
                remedy="choose another folder with -o, or pass --overwrite to replace it",
            )
        if not resume:
            raise OutputError(
                f"{folder} holds an unfinished run",
                remedy="pass --resume to go on with it, or --overwrite to begin anew",
            )
        _refuse_difference(folder, old, fresh)
    if not old or overwrite or WorkFolder(folder / _WORK).is_empty():
        # Recorded as running first: a kill while clearing must not leave a folder that looks finished.
        write_record(folder, fresh)
        _clear(folder)
    _clear_parts(folder)
    return fresh


def _any_record(folder: Path) -> dict[str, Any]:
    """What is to be replaced may say anything, if only it says that a run wrote it."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OutputError(
            f"{folder / RECORD} cannot be read: {first_line(error)}", remedy="choose another folder with -o"
        ) from error
    return record if isinstance(record, dict) else {}


def _refuse_difference(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    for part in ("video", "labels", "encoder", "config", "trust", "names", "outputs", "matching"):
        was, now = old.get(part, {}), new[part]
        for name in {**was, **now}:
            if was.get(name) != now.get(name):
                raise OutputError(
                    f"{folder} was begun with {part} {name} = {was.get(name)}, now it is {now.get(name)}",
                    remedy="resume with the same video, labels and settings, or pass --overwrite to begin anew",
                )


def _clear(folder: Path) -> None:
    """Remove what an earlier run made, and nothing else."""
    with writing(folder):
        for name in FOLDERS:
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
        for name in (*FILES, *REVIEW_FILES):
            (folder / name).unlink(missing_ok=True)


def _clear_parts(folder: Path) -> None:
    """Remove files that were being written when the run was killed."""
    for place in (".", "labels", "confidence"):
        clear_parts(folder / place)


def _write_frames(task: Task, folder: Path, progress: Progress | None) -> None:
    work = WorkFolder(folder / _WORK)
    done = work.next_index("forward") or 0
    steps = _Steps(done + count_steps(task.video, task.labels, task.config, work), progress)
    labels_folder = make_folder(folder / "labels")
    video = task.video
    with (
        _table(folder / "frames.csv", COLUMNS, done) as frames,
        _table(folder / "objects.csv", OBJECT_COLUMNS, done) as objects,
        _table(make_folder(work.path) / _WRITTEN, _WRITTEN_COLUMNS, done) as written,
        VideoWriter(folder / "overlay.mp4", video.size, video.time_base) as movie,
        Behind(_WAITING_FRAMES) as behind,
    ):
        sheet = ContactSheet(len(video), task.labels)
        show = Show(movie, sheet)

        def write(labelled: LabelledFrame) -> None:
            if labelled.index >= done:
                write_labels(label_path(labels_folder, labelled.number, task.kind), labelled.labels, task.label_files)
                rows = [frame_row(labelled)]
                if labelled.confidence is not None:
                    rows.append(object_rows(labelled, task.names))
                    write_confidence(folder, labelled.number, labelled.confidence)
                for table, text in zip((frames, objects), rows, strict=False):
                    table.append(text)
                written.append(f"{labelled.index},{_frame_sha256(folder, task.kind, labelled.number, rows)}\n")
            show.add(labelled)

        def catch_up() -> None:
            behind.catch_up()
            for table in (frames, objects, written):
                table.sync()

        def check(index: int, number: int) -> None:
            rows = [table.kept[index] for table in (frames, objects) if index in table.kept]
            if written.kept.get(index) != f"{index},{_frame_sha256(folder, task.kind, number, rows)}\n":
                raise OutputError(
                    f"frame {number} of the unfinished run in {folder} is not as it was written",
                    remedy="pass --overwrite to begin anew",
                )

        stream = chain(
            _read_again(task, labels_folder, done, steps, check),
            propagate(
                video,
                task.labels,
                encoder=task.encoder,
                config=task.config,
                trust=task.trust,
                work=work,
                maps=PassMaps(folder / PASSES) if task.correctable else None,
                on_step=steps.step,
                before_snapshot=catch_up,
            ),
        )
        for labelled in stream:
            behind(partial(write, labelled))
    write_summaries(folder, sheet, task.kind, video.numbers, task.names)


def _read_again(
    task: Task, labels_folder: Path, done: int, steps: "_Steps", check: Callable[[int, int], None]
) -> Iterator[LabelledFrame]:
    """The frames before an interruption, with their labels from disk: a film cannot be continued, only redrawn."""
    for frame in task.video.frames(0, done):
        check(frame.index, frame.number)
        labels = task.kind.read(label_path(labels_folder, frame.number, task.kind))
        source = source_of(frame.index, task.labels, task.config)
        yield LabelledFrame(
            frame.index, frame.pts, frame.time_seconds, frame.image, labels, source, number=frame.number
        )
        steps.step()


def _frame_sha256(folder: Path, kind: type[Labels], number: int, rows: Iterable[str]) -> str:
    """Identifies all that a run wrote about a frame."""
    digest = hashlib.sha256("".join(rows).encode())
    for path in (label_path(folder / "labels", number, kind), confidence_path(folder / "confidence", number)):
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


@dataclass(frozen=True)
class _Table:
    """Rows that are added while a run goes on; they begin with the index of a frame."""

    path: Path
    file: TextIO
    kept: Mapping[int, str]  # by frame, of the frames before an interruption

    def append(self, rows: str) -> None:
        with writing(self.path):
            self.file.write(rows)
            self.file.flush()

    def sync(self) -> None:
        """Bring everything to the disk, so that a snapshot may count on it."""
        with writing(self.path):
            os.fsync(self.file.fileno())


@contextmanager
def _table(path: Path, columns: str, done: int) -> Iterator[_Table]:
    """A new table, with what an interrupted run wrote about the frames before `done`."""
    kept = _rows_before(path, done) if done and path.is_file() else {}
    write_text(path, columns + "".join(kept.values()))  # whole or not at all: these rows are nowhere else
    with writing(path):
        file = path.open("a", newline="", encoding="utf-8")
    with file:
        yield _Table(path, file, kept)


def _rows_before(path: Path, done: int) -> dict[int, str]:
    kept: dict[int, str] = {}
    try:
        whole = path.read_text(encoding="utf-8").rpartition("\n")[0]  # a last line may have been cut
        for row in list(csv.reader(io.StringIO(whole)))[1:]:
            if int(row[0]) < done:
                kept[int(row[0])] = kept.get(int(row[0]), "") + csv_lines([row])
    except (OSError, ValueError, IndexError, csv.Error) as error:
        raise OutputError(
            f"{path} cannot be read: {first_line(error)}", remedy="pass --overwrite to begin anew"
        ) from error
    return kept


@dataclass
class _Steps:
    total: int
    progress: Progress | None
    done: int = 0

    def step(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)


def annotation_sha256(labels: Labels) -> str:
    """Identifies the annotation of one frame."""
    digest = hashlib.sha256()
    for part in dataclasses.fields(labels):  # type: ignore[arg-type]
        if not part.compare:  # where they came from
            continue
        value = getattr(labels, part.name)
        digest.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return digest.hexdigest()


def _colours_record(labels: Iterable[Labels]) -> dict[str, Any]:
    """What run.json says of colours that only this run's annotations give a meaning, so that corrections may use them.

    Outside of what a run is compared by: it follows from the annotations.
    """
    numbered = [mask for mask in labels if isinstance(mask, Masks) and mask.coloured]
    table = {f"#{code:06x}": identity for mask in numbered for code, identity in mask.colours.items()}
    return {"colours": dict(sorted(table.items()))} if table else {}


def colours_of(record: Mapping[str, Any]) -> dict[int, int]:
    """The ids of the colours (0xRRGGBB) in which the objects of a run were annotated."""
    return {int(code.removeprefix("#"), 16): int(identity) for code, identity in record.get("colours", {}).items()}


def annotations_record(
    kind: type[Labels], sha256_by_frame: Mapping[int, str], objects: Mapping[int, Objects]
) -> dict[str, Any]:
    """What run.json says of the annotations: each frame's checksum and objects (null: all), and one checksum of all,
    whatever order they came in."""
    ordered = dict(sorted(sha256_by_frame.items()))
    whole = "".join(f"{index} {digest}\n" for index, digest in ordered.items())
    return {
        "kind": kind.kind,
        "frames": list(ordered),
        "sha256": hashlib.sha256(whole.encode()).hexdigest(),
        "sha256_by_frame": {str(index): digest for index, digest in ordered.items()},
        "objects_by_frame": {
            str(index): None if (there := objects[index]) is None else sorted(there) for index in ordered
        },
    }
