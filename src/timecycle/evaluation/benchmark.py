"""The interface of a benchmark: clips with one annotated frame each, and a score for predictions."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from timecycle.errors import SettingsError
from timecycle.evaluation.methods.method import Method
from timecycle.labels import Labels
from timecycle.progress import OnProgress
from timecycle.propagation.settings import PropagateConfig

OnFrame = Callable[[], None]  # called after every frame


@dataclass(frozen=True, kw_only=True)
class Clip:
    """One video of a benchmark and its annotated frame, whose labels a method is given."""

    name: str
    frames: tuple[Path, ...]  # the images, in order
    annotated_frame: int = 0  # frames before it are not predicted
    read_annotation: Callable[[], Labels]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores by name, of the whole benchmark and of every clip. A list of a clip has one value per frame."""

    overall: Mapping[str, float]
    per_sequence: Mapping[str, Mapping[str, Any]]


@runtime_checkable
class Benchmark(Protocol):
    """A dataset on disk, with its protocol."""

    @property
    def name(self) -> str:
        """The protocol and its year, as reports name it."""
        ...

    @property
    def clips(self) -> Sequence[Clip]: ...

    @property
    def ground_truth_files(self) -> Sequence[Path]:
        """The files of the ground truth, whose checksum identifies a copy of the dataset."""
        ...

    def predict_clip(
        self, clip: Clip, method: Method, config: PropagateConfig, folder: Path, *, on_frame: OnFrame
    ) -> None:
        """Write the method's predictions for a clip into an empty folder."""
        ...

    def score(self, predictions: Path, *, progress: OnProgress | None = None) -> Scores:
        """Compare `predictions/CLIP/00000...` with the ground truth."""
        ...


def choose_clips(available: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the wanted clips in the benchmark's own order; all of them if none is named."""
    unknown = [name for name in wanted if name not in available]
    if unknown:
        raise SettingsError(f"there is no sequence {unknown[0]!r}", remedy=f"the sequences are {', '.join(available)}")
    return [name for name in available if not wanted or name in wanted]


def describe(benchmark: Benchmark) -> dict[str, Any]:
    """Describe the data of an evaluation, so that two results can be checked for the same data."""
    files = [path for clip in benchmark.clips for path in clip.frames]
    return {
        "name": benchmark.name,
        "sequences": len(benchmark.clips),
        "frames": len(files),
        "sha256": checksum([*files, *benchmark.ground_truth_files]),
    }


def checksum(files: Sequence[Path]) -> str:
    """Hash files together with their names, their folders' names and their lengths."""
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.parent.name}/{path.name}\0{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
