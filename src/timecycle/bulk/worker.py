"""The worker of a bulk run: processes one video as `timecycle propagate` does and commits its output."""

import csv
import dataclasses
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from timecycle.bulk.fingerprints import checksum, has_other_content, inputs_of
from timecycle.bulk.manifest import Item
from timecycle.bulk.outputs import Outputs
from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.device import Device
from timecycle.errors import (
    InUseError,
    LabelError,
    OutputError,
    ShortageError,
    StoreError,
    TimecycleError,
    VideoError,
    WeightsError,
)
from timecycle.formats.reading import read_any
from timecycle.formats.video_labels import facts_of
from timecycle.labels.names import names_of
from timecycle.model.encoder import Encoder
from timecycle.model.registry import PrecisionChoice, load_encoder
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import check_labels, space_of
from timecycle.runs.measurements import MeasurementConfig
from timecycle.runs.outputs import LabelFiles
from timecycle.runs.run import Origin, RunSpec, run
from timecycle.shortages import find_shortage, raise_if_shortage
from timecycle.store import is_address, open_store
from timecycle.video import open_video

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class BulkJob:
    """What is done with every video, and where outputs go."""

    output: str  # a folder or an address
    encoder: str
    config: PropagateConfig
    confidence: ConfidenceConfig | None
    device: Device = "auto"
    precision: PrecisionChoice = "fp32"
    label_files: LabelFiles = "palette"
    measurements: MeasurementConfig = field(default_factory=MeasurementConfig)
    formats: tuple[str, ...] = ()  # other formats in which to write the labels as well
    chunk: int | None = None  # videos that are committed together; None: each by itself
    allow_damaged: bool = False  # not among the settings: an intact video gives the same output
    manifest: str = ""  # checksum, for the records
    run: str = ""  # identifies one call of bulk
    encoder_sha256: str = ""  # every process must find these weights under the encoder's name
    encoder_form: str = ""

    def settings(self) -> dict[str, Any]:
        """The settings that all videos of one output must share."""
        # Only what was asked for: outputs without it keep their settings.
        asked = {**self.measurements.recorded(), **({"formats": list(self.formats)} if self.formats else {})}
        return {
            "encoder": {"sha256": self.encoder_sha256, "form": self.encoder_form},
            "config": asdict(self.config),
            "confidence": asdict(self.confidence) if self.confidence else {},
            "outputs": {"label_files": self.label_files} | asked | ({"chunk": self.chunk} if self.chunk else {}),
        }


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished video and the fingerprints of its inputs."""

    name: str
    frames: int
    seconds: float  # of the propagation alone
    confidence: float | None  # mean over frames
    lowest: float | None  # over frames
    video: str  # see fingerprints.inputs_of
    video_sha256: str
    labels: str
    settings: str  # checksum of BulkJob.settings
    manifest: str
    damage: str | None = None  # of a damaged video that was allowed


@dataclass(frozen=True)
class Already:
    """A video that another process has finished."""

    record: dict[str, Any]


@dataclass(frozen=True)
class Failed:
    """A video that cannot be processed; trying again does not help."""

    problem: str


@dataclass(frozen=True)
class Busy:
    """A video that another process holds."""

    problem: str


@dataclass(frozen=True)
class Stopped:
    """An error that is not the fault of the video: the run must end."""

    error: TimecycleError


def prepare(job: BulkJob) -> BulkJob:
    """Load the encoder before the first video, so that its errors are raised early; record its checksum."""
    encoder = _encoder(job.encoder, job.device, job.precision)
    return dataclasses.replace(
        job, encoder_sha256=encoder.sha256, encoder_form=encoder.description, run=secrets.token_hex(8)
    )


def process_video(item: Item, job: BulkJob) -> Record | Already | Failed | Busy | Stopped:
    """Propagate the labels through one video and commit the output."""
    return outcome_of(item.name, lambda: _process(item, job))


def outcome_of(name: str, process: Callable[[], Result]) -> Result | Failed | Busy | Stopped:
    """Process a video, and tell its own errors from those that must end the run; unexpected errors are raised."""
    doing = f"while {name} was processed"
    try:
        return process()
    except InUseError as error:
        return Busy(error.problem)
    except TimecycleError as error:
        if not _is_fault_of_video(error):  # the next video would meet it too
            return Stopped(find_shortage(error, doing) or error)
        try:
            raise_if_shortage(error, doing)
        except ShortageError as lack:
            return Stopped(lack)
        return Failed(f"{error.problem}; {error.remedy}")
    except Exception as error:
        cause = find_shortage(error, doing)
        if cause is None:
            raise
        return Stopped(cause)


def _is_fault_of_video(error: TimecycleError) -> bool:
    """Whether an error is not one of the disk, the store, the encoder or the settings."""
    if isinstance(error, OutputError):
        return not isinstance(error.__cause__, OSError)  # writing the output can also fail on an unusual video
    return isinstance(error, VideoError | LabelError)


def outdated(item: Item, record: dict[str, Any], job: BulkJob) -> str:
    """Describe why the output of an item is out of date; empty if it is not.

    The output of a video that was removed since stays valid.
    """
    if record.get("settings") != checksum(job.settings()):
        return "it was made with another encoder or other settings"
    video, labels = inputs_of(item)
    if labels and labels != record.get("labels"):
        return "its labels have changed"
    if video and video != record.get("video"):
        try:
            if has_other_content(item, str(record.get("video_sha256"))):
                return f"{item.video} has changed"
        except VideoError as error:
            raise_if_shortage(error, f"while {item.video} was compared")
            return error.problem
    return ""


def _process(item: Item, job: BulkJob) -> Record | Already:
    outputs = Outputs(job.output)
    with outputs.lease(item.name) as lease:
        record = outputs.record(item.name)
        if record is not None and not outputs.difference(record) and not outdated(item, record, job):
            return Already(record)
        with outputs.work_folder(item.name, lease) as work:
            done = label_video(item, job, work / "out")
            outputs.commit(item.name, work / "out", asdict(done), lease)
        return done


def label_video(item: Item, job: BulkJob, folder: Path) -> Record:
    """Propagate the labels through one video, into a new folder."""
    encoder = _encoder(job.encoder, job.device, job.precision)
    if job.encoder_sha256 and encoder.sha256 != job.encoder_sha256:
        raise WeightsError(
            f"{job.encoder} is another encoder on this machine than where the run was started",
            remedy="install the same weights on every machine",
        )
    inputs = inputs_of(item)
    with ExitStack() as stack:
        video = stack.enter_context(open_video(_local_path(item.video, stack), allow_damaged=job.allow_damaged))
        read = read_any(item.labels, facts_of(video))
        labels = check_labels(video, read.labels)
        origin = Origin(video=item.video, fps=None, encoder=job.encoder, device=job.device, precision=job.precision)
        spec = RunSpec(
            keep_passes=False,
            video=video,
            labels=labels,
            encoder=encoder,
            config=job.config,
            confidence=job.confidence,
            names=names_of(space_of(labels).objects, read.names, {}),
            label_files=job.label_files,
            measurements=job.measurements,
            formats=job.formats,
            origin=origin,
        )
        start = time.monotonic()
        done = run(spec, folder)
        seconds = round(time.monotonic() - start, 3)
        if inputs_of(item) != inputs:
            raise VideoError(
                f"{item.video} or its labels changed while they were read", remedy="run it again when they are complete"
            )
        confidences = _confidences(folder / "frames.csv")
        return Record(
            name=item.name,
            frames=done.frames,
            seconds=seconds,
            confidence=round(statistics.fmean(confidences), 4) if confidences else None,
            lowest=min(confidences, default=None),
            video=inputs[0],
            video_sha256=video.fingerprint(),
            labels=inputs[1],
            settings=checksum(job.settings()),
            manifest=job.manifest,
            damage=video.damage,
        )


def _local_path(video: str, stack: ExitStack) -> str:
    """The path of the video; one in an object store is downloaded to a temporary folder."""
    if not is_address(video):
        return video
    location, _, name = video.rpartition("/")
    path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="timecycle-"))) / name
    try:
        open_store(location).fetch(name, path)
    except StoreError as error:
        # Without the right to list a bucket, a missing object looks forbidden: both fail this video alone.
        if isinstance(error.__cause__, FileNotFoundError | PermissionError):
            raise VideoError(error.problem, remedy=error.remedy) from error
        raise
    return str(path)


def _confidences(table: Path) -> list[float]:
    with table.open(encoding="utf-8", newline="") as file:
        return [float(row["confidence"]) for row in csv.DictReader(file) if row["confidence"]]


@lru_cache(maxsize=1)  # a worker processes many videos
def _encoder(name: str, device: Device, precision: PrecisionChoice) -> Encoder:
    return load_encoder(name, device=device, precision=precision)
