"""Corrections: annotate frames of a finished run again, and propagate again only the frames they control.

A correction controls the frames up to the nearest frames on either side on which its objects are annotated
(intervals.py). Those stay as they are. Labels are propagated from all of these frames together: corrections between
the same two annotated frames are propagated once. The new files are staged and then committed in one step, and what
they replace goes into the history, so that corrections made together can be undone exactly (runs/history.py).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from timecycle.concurrency import BackgroundWriter
from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.device import Device
from timecycle.errors import LabelError, OutputError
from timecycle.files import make_folder, write_text
from timecycle.labels import KINDS, Labels
from timecycle.labels.file import frames_in_words, note
from timecycle.labels.fitting import absent_where_empty, name_of, refuse_empty
from timecycle.labels.space import Objects
from timecycle.model.encoder import Encoder
from timecycle.model.hub import offline
from timecycle.model.registry import load_encoder
from timecycle.progress import OnProgress
from timecycle.propagation.pass_cache import PassCache
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import LabelledFrame, fit_labels, space_of
from timecycle.propagation.workfolder import WorkFolder
from timecycle.review.intervals import Interval, intervals_of, propagate_interval
from timecycle.runs.exporting import write_exports
from timecycle.runs.folder import OutputFolder
from timecycle.runs.history import commit, recover, undo_last
from timecycle.runs.measurements import (
    MeasurementConfig,
    geometry_columns,
    geometry_of,
    geometry_rows,
    read_geometry,
    replace_geometry,
)
from timecycle.runs.outputs import Draw, LabelFiles, OverlayUpdate
from timecycle.runs.record import (
    annotation_sha256,
    annotations_record,
    read_settings,
    recorded_checksums,
    recorded_colours,
    recorded_objects,
)
from timecycle.runs.run import QUEUED_FRAMES, step_counter
from timecycle.runs.tables import rows_by_frame
from timecycle.video import Video


@dataclass(frozen=True)
class CorrectedInterval:
    """The frames that were propagated again for some corrections, and those of them whose labels changed."""

    frames: Sequence[int]  # that were corrected
    first: int
    last: int
    changed: Sequence[int]


def correct(
    folder: Path,
    corrections: Mapping[int, Labels],
    *,
    video: Video | str | Path | np.ndarray | None = None,
    encoder: Encoder | None = None,
    object_id: int | None = None,
    device: Device | None = None,
    progress: OnProgress | None = None,
) -> list[CorrectedInterval]:
    """Annotate frames of a finished run again. Video and encoder must be those of the run.

    A `video` that is not open is opened as it was when it was labelled. The encoder is loaded to the `device` of the
    run, or to another where the run's is missing.

    Corrections between the same two annotated frames are propagated together. All of them are one entry of the history.
    A mask of one object shows the object `object_id`, which may be new. Without `object_id` it shows the object whose
    id it has, or the only object of the run. An empty mask says that no object is on its frame.
    """
    run = OutputFolder(folder)
    with run.lock_finished():
        recover(run)
        record = run.finished_record()
        with _opened(run, record, video, encoder, device) as (source, loaded):
            fitted = fit_labels(source, corrections)
            _check_kind(folder, record, corrections)
            job = _Job(run, record, source, loaded)
            annotations = with_run_ids(
                fitted,
                job.current_labels,
                record["labels"]["frames"],
                source.numbers,
                object_id=object_id,
                colours=recorded_colours(record),
            )
            done = job.correct(annotations, progress)
            write_exports(run, run.finished_record(), source)
            return done


def undo(folder: Path) -> list[int]:
    """Undo the last corrections, all that were made together, exactly; returns the frames they were made on.

    An interrupted correction counts as the last.
    """
    run = OutputFolder(folder)
    with run.lock_finished():
        try:
            frames = undo_last(run)
        except OutputError:  # nothing may be left to undo but the exports of an undo that was interrupted
            write_exports(run, run.finished_record())
            raise
        write_exports(run, run.finished_record())
        return frames


@dataclass(frozen=True, eq=False)
class _Job:
    """A run that is being corrected, with its video and encoder."""

    run: OutputFolder
    record: Mapping[str, Any]
    video: Video
    encoder: Encoder

    @property
    def kind(self) -> type[Labels]:
        return KINDS[self.record["labels"]["kind"]]

    @property
    def config(self) -> PropagateConfig:
        return read_settings(self.record, "config", PropagateConfig)

    def current_labels(self, index: int) -> Labels:
        return self.run.read_labels(self.video.numbers[index], self.kind)

    def correct(self, corrections: Mapping[int, Labels], progress: OnProgress | None) -> list[CorrectedInterval]:
        numbers, annotated = self.video.numbers, recorded_objects(self.record)
        annotations = {
            index: _merged(labels, self.current_labels(index), annotated[index]) if index in annotated else labels
            for index, labels in corrections.items()
        }
        confidence = _propagated_confidence(self.run, annotated)
        intervals = intervals_of(
            self.video,
            annotations,
            self.current_labels,
            annotated,
            self.config,
            confidence=lambda index: confidence.get(index, {}),
        )
        staged = self._stage(intervals, annotated.keys() | annotations.keys(), progress)
        checksums = recorded_checksums(self.record)
        checksums |= {index: annotation_sha256(labels) for index, labels in annotations.items()}
        annotated |= {index: labels.annotated_objects() for index, labels in annotations.items()}
        changed = commit(
            self.run,
            staged,
            {**self.record, "labels": annotations_record(self.kind, checksums, annotated)},
            objects={index: labels.annotated_objects() for index, labels in sorted(corrections.items())},
            numbers=[numbers[index] for one in intervals for index in range(one.first, one.last + 1)],
            kind=self.kind,
        )
        return [
            CorrectedInterval(
                one.corrected,
                one.first,
                one.last,
                [index for index in range(one.first, one.last + 1) if numbers[index] in changed],
            )
            for one in intervals
        ]

    def _stage(self, intervals: Sequence[Interval], annotated: Set[int], progress: OnProgress | None) -> OutputFolder:
        """Propagate the intervals and write all files that change into the staging folder."""
        staged, names = OutputFolder(make_folder(self.run.staging)), self.record["names"]
        label_files: LabelFiles = self.record["outputs"]["label_files"]
        rows: tuple[dict[int, str], dict[int, str]] = {}, {}  # of frames.csv and objects.csv, by frame
        geometry = staged.path / "geometry.csv"
        write_text(geometry, geometry_columns(self.kind))

        def label_file(number: int) -> Path:
            new = staged.label_file(number, self.kind)
            return new if new.is_file() else self.run.label_file(number, self.kind)

        def write(draw: Draw, frame: LabelledFrame) -> None:
            for by_frame, text in zip(rows, staged.write_frame(frame, names, label_files), strict=False):
                by_frame[frame.index] = text
            with geometry.open("a", encoding="utf-8", newline="") as file:
                file.write(geometry_rows(frame.index, geometry_of(frame, self.video)))
            draw(frame)

        overlay = OverlayUpdate(self.run.overlay, staged.path, self.video, self.kind, annotated, label_file)
        on_step = step_counter(sum(one.steps for one in intervals), progress)
        for one in intervals:
            stream = propagate_interval(
                one,
                encoder=self.encoder,
                config=self.config,
                confidence=read_settings(self.record, "confidence", ConfidenceConfig)
                if self.record["confidence"]
                else None,
                work=WorkFolder(staged.path / "work" / str(one.first)),
                cache=PassCache(self.run.pass_cache, offset=one.start),
                on_step=on_step,
            )
            with overlay.segment(one.first, one.last) as draw, BackgroundWriter(QUEUED_FRAMES) as background:
                for frame in stream:
                    background(partial(write, draw, frame))
        _replace_rows(self.run.frames_csv, rows[0], staged.frames_csv)
        _replace_rows(self.run.objects_csv, rows[1], staged.objects_csv)
        overlay.finish(staged.overlay).write(staged.contact_sheet, staged.frames_csv, self.kind, names)
        self.kind.write_table(staged.keypoints_csv, {number: label_file(number) for number in self.video.numbers})
        if self.run.measurements_csv.is_file():
            old, new = (read_geometry(path, self.kind) for path in (self.run.measurements_csv, geometry))
            config = MeasurementConfig.of_record(self.record["outputs"])
            staged.write_measurements(staged, replace_geometry(old, new, rows[0]), self.kind, names, config)
        return staged


def with_run_ids(
    corrections: Mapping[int, Labels],
    current_labels: Callable[[int], Labels],
    annotated: Collection[int],
    numbers: Sequence[int],
    *,
    object_id: int | None = None,
    colours: Mapping[int, int] | None = None,
) -> dict[int, Labels]:
    """Return the corrections with the object ids of the run (`Masks.with_run_ids`).

    `current_labels` returns the labels that a frame has now, `annotated` are the annotated frames of the run, `numbers`
    the numbers of its frames and `colours` those (0xRRGGBB) in which its objects were annotated.
    """
    now = {index: current_labels(index) for index in annotated}
    objects = space_of(now).objects
    result = {
        index: labels.with_run_ids(objects, colours or {}, object_id=object_id, name=name_of(numbers[index], labels))
        for index, labels in corrections.items()
    }
    result = absent_where_empty(result, objects, numbers, or_else="; if that is not meant, take it back with --undo")
    # Labels that equal the propagated ones were confirmed, or edited but not saved.
    new = {index: labels for index, labels in result.items() if index not in annotated}
    same = [numbers[index] for index, labels in new.items() if labels.is_same(current_labels(index))]
    if same:
        note(f"the labels given for {frames_in_words(same)} equal the propagated ones: they count as confirmed")
    refuse_empty(now | result, numbers)
    return result


def _propagated_confidence(run: OutputFolder, annotated: Mapping[int, Objects]) -> dict[int, dict[str, float]]:
    """Return the confidence of objects that were propagated to annotated frames, by frame and object."""
    return {
        index: {name: one.confidence for name, one in objects.items() if not one.annotated}
        for index, objects in run.objects().items()
        if index in annotated
    }


def _merged(new: Labels, old: Labels, objects: Objects) -> Labels:
    """Merge a correction of an annotated frame with its annotation of `objects`: objects not in the correction stay."""
    if new.annotated_objects() is None:
        return new
    merged = new.merged_with(old.restricted_to(objects))
    return merged.as_exhaustive() if objects is None else merged


def _replace_rows(path: Path, rows: Mapping[int, str], target: Path) -> None:
    """Write a copy of a table in which the rows of some frames are replaced."""
    header, _, body = path.read_text(encoding="utf-8").partition("\n")
    merged = rows_by_frame(body) | dict(rows)
    write_text(target, f"{header}\n" + "".join(merged[index] for index in sorted(merged)))


@contextmanager
def _opened(
    folder: OutputFolder,
    record: Mapping[str, Any],
    video: Video | str | Path | np.ndarray | None,
    encoder: Encoder | None,
    device: Device | None,
) -> Iterator[tuple[Video, Encoder]]:
    """Open the video and load the encoder of the run where they are not given; refuse others."""
    with ExitStack() as stack:
        if isinstance(video, Video):
            folder.check_video(video, record)
        else:
            video = stack.enter_context(folder.open_video(video))
        if encoder is None:
            encoder = _load_encoder(folder, record, device)
        if encoder.sha256 != record["encoder"]["sha256"]:
            raise OutputError(
                f"the encoder {encoder.name} is not the one that propagated the labels in {folder.path}",
                remedy="give the same weights, or propagate again",
            )
        yield video, encoder


def _load_encoder(folder: OutputFolder, record: Mapping[str, Any], device: Device | None) -> Encoder:
    origin = record.get("origin")
    if not origin:
        raise OutputError(
            f"{folder.path} does not say how its encoder is loaded", remedy="in Python, pass the encoder too"
        )
    # The folder may come from anyone: it must not choose what is downloaded.
    with offline():
        return load_encoder(origin["encoder"], device=device or origin["device"], precision=origin["precision"])


def _check_kind(folder: Path, record: Mapping[str, Any], corrections: Mapping[int, Labels]) -> None:
    kind = record["labels"]["kind"]
    if not KINDS[kind].correctable:
        raise LabelError(
            f"the labels in {folder} are {kind}, which refer to one frame only and cannot be corrected",
            remedy="propagate again from a better frame",
        )
    for index, labels in corrections.items():
        if labels.kind != kind:
            raise LabelError(
                f"frame {index} was given {labels.kind} but the labels in {folder} are {kind}",
                remedy=f"annotate {kind}",
            )
