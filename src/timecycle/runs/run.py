"""A run: propagate the annotations of one video into one output folder.

A run holds a lock. It can be resumed after any interruption and then writes the same bytes as an uninterrupted run. It
never touches a finished folder unless asked to overwrite it.
"""

import csv
import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, TextIO

from timecycle.concurrency import BackgroundWriter
from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.device import Device
from timecycle.errors import LabelError, OutputError, first_line
from timecycle.files import lock, make_folder, write_text, writing
from timecycle.kernel.library import find_kernel
from timecycle.labels import Labels
from timecycle.model.encoder import Encoder
from timecycle.model.registry import PrecisionChoice
from timecycle.progress import OnProgress
from timecycle.propagation.pass_cache import PassCache
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import (
    LabelledFrame,
    check_labels,
    check_min_confidence,
    count_steps,
    propagate,
    source_of,
    space_of,
)
from timecycle.propagation.workfolder import WorkFolder
from timecycle.runs.exporting import check_exports, write_exports
from timecycle.runs.folder import OutputFolder
from timecycle.runs.history import recover
from timecycle.runs.measurements import (
    MeasurementConfig,
    geometry_columns,
    geometry_of,
    geometry_rows,
    is_measured,
    read_geometry,
)
from timecycle.runs.outputs import ContactSheet, LabelFiles, draw_overlay
from timecycle.runs.record import FORMAT, annotation_sha256, annotations_record, colours_record
from timecycle.runs.tables import FRAME_COLUMNS, OBJECT_COLUMNS, rows_by_frame
from timecycle.version import __version__
from timecycle.video import Video, VideoWriter

_CHECKSUMS = "written.csv"  # in the work folder: a checksum of what was written for each frame, for resuming
_CHECKSUM_COLUMNS = "index,sha256\n"
_GEOMETRY = "geometry.csv"  # in the work folder: what measurements.csv is made of
QUEUED_FRAMES = 4  # labelled but not yet written: enough to smooth over a slow write
_START_OVER = "pass --overwrite to start over"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The location of the video and the choice of encoder, as arguments of `open_video` and `load_encoder`."""

    video: str
    fps: float | None
    encoder: str
    device: Device
    precision: PrecisionChoice


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that decides what a run writes."""

    video: Video
    labels: Mapping[int, Labels]
    encoder: Encoder
    config: PropagateConfig
    confidence: ConfidenceConfig | None = field(default_factory=ConfidenceConfig)  # None: confidence is not estimated
    names: Mapping[str, str] = field(default_factory=dict)  # of objects, by their ids in objects.csv
    label_files: LabelFiles = "palette"
    measurements: MeasurementConfig = field(default_factory=MeasurementConfig)
    formats: tuple[str, ...] = ()  # other formats in which to write the labels as well
    origin: Origin | None = None  # lets `correct` find the video again; changes no output
    keep_passes: bool = True  # keep the pass cache, which makes corrections cheaper; changes no output

    @property
    def kind(self) -> type[Labels]:
        return type(next(iter(self.labels.values())))

    @property
    def caches_passes(self) -> bool:
        """Whether the run keeps a pass cache: it may, and labels of its kind can be corrected."""
        return self.keep_passes and self.kind.correctable

    def identity(self) -> dict[str, Any]:
        """Return what must be equal for a run to resume another."""
        return {
            "video": {
                "name": Path(self.video.name).name,
                "sha256": self.video.fingerprint(),
                "frames": len(self.video),
                "width_px": self.video.size.width_px,
                "height_px": self.video.size.height_px,
                "damage": self.video.damage,
                "assumed_fps": self.video.assumed_fps,
            },
            "labels": annotations_record(
                self.kind,
                {int(index): annotation_sha256(labels) for index, labels in self.labels.items()},
                {int(index): labels.annotated_objects() for index, labels in self.labels.items()},
            ),
            "encoder": {
                "name": Path(self.encoder.name).name,
                "sha256": self.encoder.sha256,
                "form": self.encoder.description,
            },
            "config": dataclasses.asdict(self.config),
            "confidence": dataclasses.asdict(self.confidence) if self.confidence else {},
            "names": dict(sorted(self.names.items())),
            "outputs": {
                "label_files": self.label_files,
                **self.measurements.recorded(),
                **({"formats": list(self.formats)} if self.formats else {}),
            },
            "matching": {"rounding": find_kernel().rounding},
        }


@dataclass(frozen=True)
class RunResult:
    """The result of a run."""

    folder: Path
    frames: int
    seconds: float
    already: bool = False  # the run was finished before, so there was nothing to resume


def run(
    spec: RunSpec,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    progress: OnProgress | None = None,
) -> RunResult:
    """Propagate the annotations through the video and write the output folder."""
    if resume and overwrite:
        raise OutputError("--resume and --overwrite cannot be combined", remedy="pass only one of them")
    spec = replace(spec, labels=check_labels(spec.video, spec.labels))
    check_min_confidence(spec.labels, spec.confidence)
    if spec.label_files == "grey" and not spec.kind.numbered:
        raise LabelError(f"grey label files were asked for {spec.kind.kind}", remedy="leave out --label-files")
    check_exports(spec.formats, spec.kind)
    spec.measurements.check(spec.kind, space_of(spec.labels).objects)
    refuse_inside(folder, [Path(spec.video.name)])
    started = time.monotonic()
    output = OutputFolder(make_folder(folder))
    with lock(folder):
        if resume and (finished := _finished(output, spec)) is not None:
            _complete(output, spec.video)
            return finished
        record = _open_record(output, spec, resume=resume, overwrite=overwrite)
        _write_frames(spec, output, progress)
        seconds = time.monotonic() - started
        record |= {"status": "finished", "seconds": round(seconds, 3)}
        record |= {"exports": {}} if spec.formats else {}
        output.write_record(record)
        write_exports(output, record, spec.video)
        shutil.rmtree(output.work, ignore_errors=True)
    return RunResult(folder, len(spec.video), seconds)


def _complete(folder: OutputFolder, video: Video) -> None:
    """Complete a finished run that was interrupted at its very end, or while it was corrected."""
    folder.refuse_links()
    recover(folder)
    record = folder.finished_record()
    if "exports" in record or not folder.exports.is_dir():  # earlier versions did not record what is written
        write_exports(folder, record, video)
    shutil.rmtree(folder.work, ignore_errors=True)


def refuse_inside(folder: Path, inputs: Iterable[Path]) -> None:
    """Refuse inputs that lie in the output folder, where a run would replace them."""
    for path in inputs:
        if path.exists() and path.resolve().is_relative_to(folder.resolve()):
            raise OutputError(
                f"{path} lies in the output folder {folder}, where it would be replaced",
                remedy="copy it elsewhere, or choose another folder with -o",
            )


# Record


def _finished(folder: OutputFolder, spec: RunSpec) -> RunResult | None:
    """Return the result of this very run if it is finished, corrected or not."""
    if not folder.record_file.is_file():
        return None
    old = folder.read_record()
    if old["status"] != "finished":
        return None
    fresh = json.loads(json.dumps(spec.identity()))
    _refuse_difference(folder, old, fresh | ({"labels": old["labels"]} if old.get("corrections") else {}))
    return RunResult(folder.path, len(spec.video), float(old.get("seconds") or 0.0), already=True)


def _open_record(folder: OutputFolder, spec: RunSpec, *, resume: bool, overwrite: bool) -> dict[str, Any]:
    """Return the record of the run, new or resumed; refuse to mix two runs or to lose a finished one."""
    # Through JSON at once: what cannot be recorded must fail before anything is cleared.
    origin = {"origin": dataclasses.asdict(spec.origin) if spec.origin else None}
    about = {"format": FORMAT, "status": "running", "timecycle": __version__, **origin}
    fresh: dict[str, Any] = json.loads(json.dumps(spec.identity() | about | colours_record(spec.labels.values())))
    folder.refuse_links()
    others = [item for item in folder.path.iterdir() if item.name != ".lock"]
    old: dict[str, Any] = {}
    if folder.record_file.is_file():
        old = _any_record(folder) if overwrite else folder.read_record()
    if others and "timecycle" not in old:
        raise OutputError(
            f"{folder.path} is not empty and holds no run", remedy="choose an empty or new folder with -o"
        )
    if old and not overwrite:
        if old["status"] == "finished":
            raise OutputError(
                f"{folder.path} holds a finished run",
                remedy="choose another folder with -o, or pass --overwrite (in Python overwrite=True) to replace it",
            )
        if not resume:
            raise OutputError(
                f"{folder.path} holds an unfinished run", remedy=f"pass --resume to continue it, or {_START_OVER}"
            )
        _refuse_difference(folder, old, fresh)
    if not old or overwrite or WorkFolder(folder.work).is_empty():
        # Recorded as running first: a kill while clearing must not leave a folder that looks finished.
        folder.write_record(fresh)
        folder.clear()
    folder.clear_partial_files()
    return fresh


def _any_record(folder: OutputFolder) -> dict[str, Any]:
    """Read a record that will be overwritten: of any format, without validation, and damaged beside a run's table."""
    try:
        record = json.loads(folder.record_file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if _has_frames_table(folder):
            return {"timecycle": None}
        raise OutputError(
            f"{folder.record_file} cannot be read: {first_line(error)}",
            remedy="choose another folder with -o, or remove this one",
        ) from error
    return record if isinstance(record, dict) else {}


def _has_frames_table(folder: OutputFolder) -> bool:
    """Return whether frames.csv is one that a run writes."""
    try:
        with folder.frames_csv.open(encoding="utf-8", newline="") as file:
            return file.readline(len(FRAME_COLUMNS)) == FRAME_COLUMNS
    except (OSError, ValueError):
        return False


def _refuse_difference(folder: OutputFolder, old: dict[str, Any], new: dict[str, Any]) -> None:
    # Records of earlier versions do not say which frame rate was assumed.
    old = old | {"video": {"assumed_fps": new["video"]["assumed_fps"], **old["video"]}}
    for section in ("video", "labels", "encoder", "config", "confidence", "names", "outputs", "matching"):
        was, now = old.get(section) or {}, new[section]
        for name in {**was, **now}:
            if was.get(name) != now.get(name):
                raise OutputError(
                    f"{folder.path} was begun with {section} {name} = {was.get(name)}, now it is {now.get(name)}",
                    remedy=f"resume with the same video, labels and settings, or {_START_OVER}",
                )


# Frames


def _write_frames(spec: RunSpec, folder: OutputFolder, progress: OnProgress | None) -> None:
    work = WorkFolder(folder.work)
    done = work.next_index("forward") or 0
    on_step = step_counter(done + count_steps(spec.video, spec.labels, spec.config, work), progress)
    video = spec.video
    with (
        _table(folder.frames_csv, FRAME_COLUMNS, done) as frames,
        _table(folder.objects_csv, OBJECT_COLUMNS, done) as objects,
        _table(make_folder(work.path) / _CHECKSUMS, _CHECKSUM_COLUMNS, done) as checksums,
        # Measured again when a run is resumed, as the frames are drawn again.
        _table(work.path / _GEOMETRY, geometry_columns(spec.kind), 0) as geometry,
        VideoWriter(folder.overlay, video.size, video.time_base) as overlay_video,
        BackgroundWriter(QUEUED_FRAMES) as background,
    ):
        sheet = ContactSheet(len(video), spec.labels)

        def write(labelled: LabelledFrame) -> None:
            if labelled.index >= done:
                rows = folder.write_frame(labelled, spec.names, spec.label_files)
                for table, text in zip((frames, objects), rows, strict=False):
                    table.append(text)
                checksums.append(f"{labelled.index},{_frame_sha256(folder, spec.kind, labelled.number, rows)}\n")
            geometry.append(geometry_rows(labelled.index, geometry_of(labelled, video)))
            draw_overlay(overlay_video, sheet, labelled)

        def flush() -> None:
            background.flush()
            for table in (frames, objects, checksums):
                table.sync()

        def verify(index: int, number: int) -> None:
            rows = [table.kept[index] for table in (frames, objects) if index in table.kept]
            if checksums.kept.get(index) != f"{index},{_frame_sha256(folder, spec.kind, number, rows)}\n":
                raise OutputError(
                    f"frame {number} of the unfinished run in {folder.path} has changed since it was written",
                    remedy=_START_OVER,
                )

        stream = chain(
            _read_back(spec, folder, done, on_step, verify),
            propagate(
                video,
                spec.labels,
                encoder=spec.encoder,
                config=spec.config,
                confidence=spec.confidence,
                work=work,
                cache=PassCache(folder.pass_cache) if spec.caches_passes else None,
                on_step=on_step,
                before_snapshot=flush,
            ),
        )
        for labelled in stream:
            background(partial(write, labelled))
    sheet.write(folder.contact_sheet, folder.frames_csv, spec.kind, spec.names)
    label_files = {number: folder.label_file(number, spec.kind) for number in video.numbers}
    spec.kind.write_table(folder.keypoints_csv, label_files)
    if is_measured(spec.kind):
        geometry_by_frame = read_geometry(work.path / _GEOMETRY, spec.kind)
        folder.write_measurements(folder, geometry_by_frame, spec.kind, spec.names, spec.measurements)


def _read_back(
    spec: RunSpec, folder: OutputFolder, done: int, on_step: Callable[[], None], verify: Callable[[int, int], None]
) -> Iterator[LabelledFrame]:
    """Read the frames written before an interruption: the overlay video cannot be continued, only drawn again."""
    for frame in spec.video.frames(0, done):
        verify(frame.index, frame.number)
        labels = folder.read_labels(frame.number, spec.kind)
        source = source_of(frame.index, spec.labels, spec.config)
        yield LabelledFrame(
            frame.index, frame.pts, frame.time_seconds, frame.image, labels, source, number=frame.number
        )
        on_step()


def _frame_sha256(folder: OutputFolder, kind: type[Labels], number: int, rows: Iterable[str]) -> str:
    """Return a checksum over everything a run wrote for a frame."""
    digest = hashlib.sha256("".join(rows).encode())
    for path in (folder.label_file(number, kind), folder.confidence_file(number)):
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


@dataclass(frozen=True)
class _Table:
    """A table that grows during a run; its rows begin with the index of a frame."""

    path: Path
    file: TextIO
    kept: Mapping[int, str]  # rows of the frames before an interruption

    def append(self, rows: str) -> None:
        with writing(self.path):
            self.file.write(rows)
            self.file.flush()

    def sync(self) -> None:
        """Flush to disk, so that a snapshot may rely on the rows."""
        with writing(self.path):
            os.fsync(self.file.fileno())


@contextmanager
def _table(path: Path, columns: str, done: int) -> Iterator[_Table]:
    """Open a table with the rows that an interrupted run wrote for the frames before `done`."""
    kept = _rows_before(path, done) if done and path.is_file() else {}
    write_text(path, columns + "".join(kept.values()))  # atomically: there is no other copy of these rows
    with writing(path):
        file = path.open("a", newline="", encoding="utf-8")
    with file:
        yield _Table(path, file, kept)


def _rows_before(path: Path, done: int) -> dict[int, str]:
    try:
        whole = path.read_text(encoding="utf-8").rpartition("\n")[0]  # the last line may be incomplete
        return {index: row for index, row in rows_by_frame(whole.partition("\n")[2]).items() if index < done}
    except (OSError, ValueError, IndexError, csv.Error) as error:
        raise OutputError(f"{path} cannot be read: {first_line(error)}", remedy=_START_OVER) from error


def step_counter(total: int, progress: OnProgress | None) -> Callable[[], None]:
    """Return a function that reports one more step of `total` each time it is called."""
    steps = count(1)
    return lambda: progress(next(steps), total) if progress is not None else None
