"""The videos of a run: examined once, some kept aside for validation."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from timecycle.data.index import Index, make_index, read_index, split
from timecycle.training.settings import TrainConfig

_INDEX = "index.jsonl"


@dataclass(frozen=True)
class Corpus:
    """What is learned from, and what only judges."""

    training: Index
    held_out: Index


def examine_videos(
    videos: Path,
    folder: Path,
    *,
    processes: int = 0,
    show: Callable[[int, int], None] | None = None,
    warn: Callable[[str], None],
) -> None:
    """Bring RUN/index.jsonl up to date and name what cannot be used."""
    path = folder / _INDEX
    index = make_index(videos, path, workers=processes, progress=show)
    if index.bad:
        total = len(index.bad) + len(index.entries)
        warn(f"{len(index.bad)} of {total} videos cannot be used and are left out; {path} lists why")


def read_corpus(folder: Path, config: TrainConfig) -> Corpus:
    """The examined videos, divided."""
    return Corpus(*split(read_index(folder / _INDEX), config.held_out))
