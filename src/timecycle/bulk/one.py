"""One video of many, exactly as `timecycle propagate` does it."""

import csv
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from timecycle.bulk.manifest import Item
from timecycle.bulk.outputs import Outputs
from timecycle.errors import TimecycleError
from timecycle.labels import read_labels
from timecycle.model.encoder import Encoder
from timecycle.model.inference import Device
from timecycle.model.registry import PrecisionChoice, load_encoder
from timecycle.outputs import LabelFiles
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.propagate import check_labels
from timecycle.propagation.settings import PropagateConfig
from timecycle.runs import Origin, Task, run
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


@dataclass(frozen=True, kw_only=True)
class Record:
    """A video that is done."""

    name: str
    frames: int
    seconds: float  # of the run itself
    confidence: float | None  # the mean over its frames
    lowest: float | None  # of a frame


@dataclass(frozen=True)
class Refused:
    """A video that cannot be done, however often it is tried."""

    problem: str


def label_one(item: Item, work: Work) -> Record | Refused:
    """Carry the labels through one video and commit the output."""
    try:
        return _label(item, work)
    except TimecycleError as error:
        return Refused(f"{error.problem}; {error.remedy}")


def _label(item: Item, work: Work) -> Record:
    outputs = Outputs(work.place)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(outputs.work_folder(item.name))) / "out"
        video = stack.enter_context(open_video(_at_hand(item.video, stack)))
        labels = check_labels(video, read_labels(item.labels, numbers=video.numbers))
        origin = Origin(video=item.video, fps=None, encoder=work.encoder, device=work.device, precision=work.precision)
        task = Task(
            keep_passes=False,
            video=video,
            labels=labels,
            encoder=_encoder(work.encoder, work.device, work.precision),
            config=work.config,
            trust=work.trust,
            label_files=work.label_files,
            origin=origin,
        )
        began = time.monotonic()
        done = run(task, folder)
        sure = _confidences(folder / "frames.csv")
        record = Record(
            name=item.name,
            frames=done.frames,
            seconds=round(time.monotonic() - began, 3),
            confidence=round(statistics.fmean(sure), 4) if sure else None,
            lowest=min(sure, default=None),
        )
        outputs.commit(item.name, folder, asdict(record))
    return record


def _at_hand(video: str, stack: ExitStack) -> str:
    """The video as a path on this machine."""
    if not is_address(video):
        return video
    place, _, name = video.rpartition("/")
    path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="timecycle-"))) / name
    open_store(place).fetch(name, path)
    return str(path)


def _confidences(table: Path) -> list[float]:
    with table.open(encoding="utf-8", newline="") as file:
        return [float(row["confidence"]) for row in csv.DictReader(file) if row["confidence"]]


@lru_cache(maxsize=1)  # a worker does many videos
def _encoder(name: str, device: Device, precision: PrecisionChoice) -> Encoder:
    return load_encoder(name, device=device, precision=precision)
