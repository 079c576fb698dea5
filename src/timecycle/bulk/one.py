"""One video of many, exactly as `timecycle propagate` does it."""

import csv
import dataclasses
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from timecycle.bulk.fingerprints import Inputs, inputs_of, is_other_video, sum_of
from timecycle.bulk.lease import Lease
from timecycle.bulk.manifest import Item
from timecycle.bulk.outputs import Outputs
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
from timecycle.labels import read_labels
from timecycle.model.encoder import Encoder
from timecycle.model.inference import Device
from timecycle.model.registry import PrecisionChoice, load_encoder
from timecycle.outputs import LabelFiles
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.propagate import check_labels
from timecycle.propagation.settings import PropagateConfig
from timecycle.runs import Origin, Task, run
from timecycle.shortages import check_verdict, shortage
from timecycle.store import is_address, open_store
from timecycle.video import open_video


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is done to every video, and where its output goes."""

    place: str
    encoder: str
    config: PropagateConfig
    trust: TrustConfig | None
    device: Device = "auto"
    precision: PrecisionChoice = "fp32"
    label_files: LabelFiles = "palette"
    allow_damaged: bool = False  # no setting of the output: a whole video gives the same with it
    manifest: str = ""  # its checksum, for the records
    encoder_sha256: str = ""  # of the weights that every process must find under the encoder's name
    encoder_form: str = ""

    def settings(self) -> dict[str, Any]:
        """What must be the same for all videos of one output."""
        return {
            "encoder": {"sha256": self.encoder_sha256, "form": self.encoder_form},
            "config": asdict(self.config),
            "trust": asdict(self.trust) if self.trust else {},
            "outputs": {"label_files": self.label_files},
        }


@dataclass(frozen=True, kw_only=True)
class Record:
    """A video that is done, and what it was made from."""

    name: str
    frames: int
    seconds: float  # of the run itself
    confidence: float | None  # the mean over its frames
    lowest: float | None  # of a frame
    video: str  # see fingerprints.Inputs
    video_sha256: str
    labels: str
    settings: str  # checksum of Work.settings
    manifest: str
    damage: str | None = None  # of a video that was accepted though it is damaged


@dataclass(frozen=True)
class Already:
    """A video that another process has done."""

    record: dict[str, Any]


@dataclass(frozen=True)
class Refused:
    """A video that cannot be done, however often it is tried."""

    problem: str


@dataclass(frozen=True)
class Busy:
    """A video that another process is doing."""

    problem: str


@dataclass(frozen=True)
class Stopped:
    """What no video is to blame for: the run must end."""

    error: TimecycleError


def prepare(work: Work) -> Work:
    """Load the encoder: what is wrong with it, or with the settings, is said before the first video."""
    encoder = _encoder(work.encoder, work.device, work.precision)
    return dataclasses.replace(work, encoder_sha256=encoder.sha256, encoder_form=encoder.form)


def label_one(item: Item, work: Work) -> Record | Already | Refused | Busy | Stopped:
    """Propagate the labels through one video and commit the output."""
    doing = f"while {item.name} was labelled"
    try:
        return _label(item, work)
    except InUseError as error:
        return Busy(error.problem)
    except TimecycleError as error:
        if not _is_of_the_video(error):  # the next one would meet it too
            return Stopped(shortage(error, doing) or error)
        try:
            check_verdict(error, doing)
        except ShortageError as short:
            return Stopped(short)
        return Refused(f"{error.problem}; {error.remedy}")
    except Exception as error:
        found = shortage(error, doing)
        if found is None:
            raise
        return Stopped(found)


def _is_of_the_video(error: TimecycleError) -> bool:
    """Not of the output's disk, the store, the encoder or the settings. A writer may also fail on a strange video."""
    if isinstance(error, OutputError):
        return not isinstance(error.__cause__, OSError)
    return isinstance(error, VideoError | LabelError)


def outdated(item: Item, record: dict[str, Any], work: Work, inputs: Inputs | None = None) -> str:
    """Why a record does not speak of this item any more, in words; empty if it does.

    A video that is gone by now was labelled before; that is no reason to doubt it.
    """
    if record.get("settings") != sum_of(work.settings()):
        return "it was made with another encoder or other settings"
    now = inputs or inputs_of(item)
    if now.labels and now.labels != record.get("labels"):
        return "its labels have changed"
    if now.video and now.video != record.get("video"):
        try:
            if is_other_video(item, str(record.get("video_sha256"))):
                return f"{item.video} has changed"
        except VideoError as error:
            check_verdict(error, f"while {item.video} was compared")
            return error.problem
    return ""


def _label(item: Item, work: Work) -> Record | Already:
    outputs = Outputs(work.place)
    with outputs.lease(item.name) as held:
        known = outputs.record(item.name)
        if known is not None and not outputs.difference(known) and not outdated(item, known, work):
            return Already(known)
        return _labelled(item, work, outputs, held)


def _labelled(item: Item, work: Work, outputs: Outputs, held: Lease) -> Record:
    encoder = _encoder(work.encoder, work.device, work.precision)
    if work.encoder_sha256 and encoder.sha256 != work.encoder_sha256:
        raise WeightsError(
            f"{work.encoder} is another encoder here than where the run was started",
            remedy="install the same weights on every machine",
        )
    inputs = inputs_of(item)
    with ExitStack() as stack:
        folder = stack.enter_context(outputs.work_folder(item.name, held)) / "out"
        video = stack.enter_context(open_video(_at_hand(item.video, stack), allow_damaged=work.allow_damaged))
        labels = check_labels(video, read_labels(item.labels, numbers=video.numbers, size=video.size.shape))
        origin = Origin(video=item.video, fps=None, encoder=work.encoder, device=work.device, precision=work.precision)
        task = Task(
            keep_passes=False,
            video=video,
            labels=labels,
            encoder=encoder,
            config=work.config,
            trust=work.trust,
            label_files=work.label_files,
            origin=origin,
        )
        began = time.monotonic()
        done = run(task, folder)
        seconds = round(time.monotonic() - began, 3)
        if inputs_of(item) != inputs:
            raise VideoError(
                f"{item.video} or its labels changed while they were read", remedy="run it again when they are complete"
            )
        sure = _confidences(folder / "frames.csv")
        record = Record(
            name=item.name,
            frames=done.frames,
            seconds=seconds,
            confidence=round(statistics.fmean(sure), 4) if sure else None,
            lowest=min(sure, default=None),
            video=inputs.video,
            video_sha256=video.fingerprint(),
            labels=inputs.labels,
            settings=sum_of(work.settings()),
            manifest=work.manifest,
            damage=video.damage,
        )
        outputs.commit(item.name, folder, asdict(record), held)
    return record


def _at_hand(video: str, stack: ExitStack) -> str:
    """The video as a path on this machine."""
    if not is_address(video):
        return video
    place, _, name = video.rpartition("/")
    path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="timecycle-"))) / name
    try:
        open_store(place).fetch(name, path)
    except StoreError as error:
        # Without the right to list a bucket, what is missing looks forbidden: both are said of this video alone.
        if isinstance(error.__cause__, FileNotFoundError | PermissionError):
            raise VideoError(error.problem, remedy=error.remedy) from error
        raise
    return str(path)


def _confidences(table: Path) -> list[float]:
    with table.open(encoding="utf-8", newline="") as file:
        return [float(row["confidence"]) for row in csv.DictReader(file) if row["confidence"]]


@lru_cache(maxsize=1)  # a worker does many videos
def _encoder(name: str, device: Device, precision: PrecisionChoice) -> Encoder:
    return load_encoder(name, device=device, precision=precision)
