"""Locate the files of indexed videos, and order the samples of an epoch.

The videos of a folder are shuffled as a whole. The clips of a pack are shuffled within a few shards at a time: shards
are then read one after the other, each once per epoch, and only a few have to be cached on this machine.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from timecycle.data.corpus.index import Entry
from timecycle.data.corpus.order import sample_at, shard_sample_at, shards_at
from timecycle.data.packing.shard_cache import ShardCache
from timecycle.errors import DamagedError, MissingError, StoreError, VideoError


@runtime_checkable
class Order(Protocol):
    """The order of the samples of an epoch, as pure functions of epoch and position."""

    def sample(self, epoch: int, position: int) -> int:
        """Return the sample at a position."""

    def nearby(self, position: int, rng: np.random.Generator) -> int:
        """Draw another position of the epoch whose sample is cheap to read."""


@runtime_checkable
class Footage(Protocol):
    """A source of indexed videos."""

    @property
    def name(self) -> str:
        """The name used in messages."""

    def path(self, entry: Entry) -> Path:
        """Return the video as a local file or folder; raise VideoError if it cannot be read."""

    def order(self, entries: Sequence[Entry], *, seed: int) -> Order:
        """Return the order in which epochs read these videos."""


@dataclass(frozen=True)
class FolderFootage:
    """The videos below a folder."""

    folder: Path

    @property
    def name(self) -> str:
        return str(self.folder)

    def path(self, entry: Entry) -> Path:
        return self.folder / entry.path

    def order(self, entries: Sequence[Entry], *, seed: int) -> Order:
        return _ShuffledOrder(seed, len(entries))


@dataclass(frozen=True)
class _ShuffledOrder:
    seed: int
    count: int

    def sample(self, epoch: int, position: int) -> int:
        return sample_at(seed=self.seed, epoch=epoch, position=position, count=self.count)

    def nearby(self, position: int, rng: np.random.Generator) -> int:
        return int(rng.integers(self.count))


class PackFootage:
    """The clips of a pack, read through a local cache; `mixed_shards` at a time are shuffled together.

    A shard that is missing or damaged is left out. A StoreError is raised when this loses more than the share
    `max_lost` of the clips, and at once when the store cannot be reached.
    """

    def __init__(
        self, cache: ShardCache, entries: Sequence[Entry], *, mixed_shards: int, max_lost: float = 0.05
    ) -> None:
        self.lost: dict[str, str] = {}  # shard to problem
        self._cache = cache
        self._mixed = mixed_shards
        self._max_lost = max_lost
        self._clips = Counter(map(shard_of, entries))

    @property
    def name(self) -> str:
        return self._cache.name

    def path(self, entry: Entry) -> Path:
        shard = shard_of(entry)
        if shard not in self.lost:
            try:
                return self._cache.folder(shard) / Path(entry.path).name
            except (MissingError, DamagedError) as error:  # but not a store that does not answer
                self._lose(shard, error)
        raise VideoError(f"{entry.path} is lost: {self.lost[shard]}", remedy="pack the videos again")

    def order(self, entries: Sequence[Entry], *, seed: int) -> Order:
        counts = Counter(map(shard_of, entries))
        return _ShardOrder(seed, tuple(counts), tuple(counts.values()), self._mixed, self._cache.prefetch)

    def _lose(self, shard: str, error: StoreError) -> None:
        self.lost[shard] = error.problem
        lost = sum(self._clips[name] for name in self.lost)
        total = self._clips.total()
        if lost > self._max_lost * total:
            raise StoreError(
                f"{len(self.lost)} of {len(self._clips)} shards of {self.name} are lost, {lost} of {total} clips; "
                f"the last: {error.problem}",
                remedy="check the store, or pack the videos again",
            ) from error


class _ShardOrder:
    """An order over groups of a few shards; `prefetch` is called with the shards of the next group."""

    def __init__(
        self,
        seed: int,
        shards: tuple[str, ...],
        counts: tuple[int, ...],
        mixed_shards: int,
        prefetch: Callable[[Sequence[str]], None],
    ) -> None:
        self._seed, self._shards, self._counts = seed, shards, counts
        self._mixed, self._prefetch = mixed_shards, prefetch
        self._prefetched: tuple[int, int] | None = None  # epoch and position up to which prefetch was called
        self._total = sum(counts)

    def sample(self, epoch: int, position: int) -> int:
        current = shard_sample_at(
            seed=self._seed, epoch=epoch, position=position, counts=self._counts, mixed_shards=self._mixed
        )
        if self._prefetched != (epoch, current.stop):
            self._prefetched = (epoch, current.stop)
            self._prefetch(self._next_shards(epoch, current.stop))
        return current.sample

    def nearby(self, position: int, rng: np.random.Generator) -> int:
        # Which positions share a group depends on the epoch's order of shards; close positions nearly always do.
        distance = max(1, self._total * self._mixed // (4 * len(self._counts)))
        return int(position + rng.integers(-distance, distance + 1)) % self._total

    def _next_shards(self, epoch: int, stop: int) -> list[str]:
        """Return the shards of the group after this position, which may be in the next epoch."""
        epoch, position = (epoch, stop) if stop < self._total else (epoch + 1, 0)
        numbers = shards_at(
            seed=self._seed, epoch=epoch, position=position, counts=self._counts, mixed_shards=self._mixed
        )
        return [self._shards[number] for number in numbers]


def shard_of(entry: Entry) -> str:
    return entry.path.partition("/")[0]
