"""What every benchmark offers: sequences with the labels of one frame, and a way to score what was predicted."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from timecycle.errors import SettingsError
from timecycle.evaluation.methods import Method
from timecycle.labels import Labels
from timecycle.propagation.settings import PropagateConfig

Progress = Callable[[int, int], None]  # done, in all
OnFrame = Callable[[], None]  # called after every frame


@dataclass(frozen=True, kw_only=True)
class Clip:
    """One video of a benchmark and the one frame whose labels are given."""

    name: str
    frames: tuple[Path, ...]  # the images, in order
    first: int = 0  # the frame whose labels are given; frames before it are not predicted
    given: Callable[[], Labels]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores by name, of the whole benchmark and of every clip (in which a list has one value per frame)."""

    overall: Mapping[str, float]
    per_sequence: Mapping[str, Mapping[str, Any]]


@runtime_checkable
class Benchmark(Protocol):
    """A dataset found on disk, with its protocol."""

    @property
    def name(self) -> str:
        """The protocol and its year, as it stands in a report."""
        ...

    @property
    def clips(self) -> Sequence[Clip]: ...

    @property
    def truth_files(self) -> Sequence[Path]:
        """The files that hold the truth, to tell one copy of a dataset from another."""
        ...

    def predict_clip(
        self, clip: Clip, method: Method, config: PropagateConfig, folder: Path, *, on_frame: OnFrame
    ) -> None:
        """Write what the method makes of a clip into an empty folder."""
        ...

    def score(self, predictions: Path, *, progress: Progress | None = None) -> Scores:
        """Compare `predictions/CLIP/00000...` with the truth."""
        ...


def choose(known: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The wanted clips in the benchmark's own order; all of them if none is named."""
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise SettingsError(f"there is no sequence {unknown[0]!r}", remedy=f"the sequences are {', '.join(known)}")
    return [name for name in known if not wanted or name in wanted]


def describe(benchmark: Benchmark) -> dict[str, Any]:
    """What was evaluated on: enough to see whether two results come from the same data."""
    files = [path for clip in benchmark.clips for path in clip.frames]
    return {
        "name": benchmark.name,
        "sequences": len(benchmark.clips),
        "frames": len(files),
        "sha256": checksum([*files, *benchmark.truth_files]),
    }


def checksum(files: Sequence[Path]) -> str:
    """One checksum over files, which knows the name of each, its folder's name, and where it ends."""
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.parent.name}/{path.name}\0{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
