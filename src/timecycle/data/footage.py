"""Where the files of videos are, and in which order an epoch takes them.

A folder's videos come in any order. Those of a pack come a few shards at a time, so that shards are read one after the
other, each once in an epoch, and only what is near has to be kept on this machine.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from timecycle.data.index import Entry
from timecycle.data.order import sample_at, shard_sample_at, shards_at
from timecycle.data.shard_cache import ShardCache
from timecycle.errors import DamagedError, MissingError, StoreError, VideoError


@runtime_checkable
class Order(Protocol):
    """The samples of an epoch: pure functions of epoch and position."""

    def sample(self, epoch: int, position: int) -> int:
        """The sample at a position."""

    def near(self, position: int, rng: np.random.Generator) -> int:
        """Another position of the epoch, one whose sample is at hand."""


@runtime_checkable
class Footage(Protocol):
    """Videos that can be read."""

    @property
    def name(self) -> str:
        """For messages."""

    def path(self, entry: Entry) -> Path:
        """The video as a file or folder on this machine; VideoError if it cannot be had."""

    def order(self, entries: Sequence[Entry], *, seed: int) -> Order:
        """How an epoch goes through these videos."""


@dataclass(frozen=True)
class FolderFootage:
    """Videos below a folder."""

    folder: Path

    @property
    def name(self) -> str:
        return str(self.folder)

    def path(self, entry: Entry) -> Path:
        return self.folder / entry.path

    def order(self, entries: Sequence[Entry], *, seed: int) -> Order:
        return _Shuffled(seed, len(entries))


@dataclass(frozen=True)
class _Shuffled:
    seed: int
    count: int

    def sample(self, epoch: int, position: int) -> int:
        return sample_at(seed=self.seed, epoch=epoch, position=position, count=self.count)

    def near(self, position: int, rng: np.random.Generator) -> int:
        return int(rng.integers(self.count))


class PackFootage:
    """The clips of a pack, through a cache on this machine; `mixed` shards at a time are shuffled together.

    A shard that is gone, or is not what was packed, is left out; when that is more than `most_lost` of the clips, the
    work ends. It ends at once when the store cannot be reached.
    """

    def __init__(self, cache: ShardCache, entries: Sequence[Entry], *, mixed: int, most_lost: float = 0.05) -> None:
        self.lost: dict[str, str] = {}  # shard to problem
        self._cache = cache
        self._mixed = mixed
        self._most_lost = most_lost
        self._clips = Counter(map(shard_of, entries))

    @property
    def name(self) -> str:
        return self._cache.name

    def path(self, entry: Entry) -> Path:
        shard = shard_of(entry)
        if shard not in self.lost:
            try:
                return self._cache.folder(shard) / Path(entry.path).name
            except (MissingError, DamagedError) as error:  # a store that does not answer is another matter
                self._lose(shard, error)
        raise VideoError(f"{entry.path} is lost: {self.lost[shard]}", remedy="pack the videos again")

    def order(self, entries: Sequence[Entry], *, seed: int) -> Order:
        counts = Counter(map(shard_of, entries))
        return _ShardByShard(seed, tuple(counts), tuple(counts.values()), self._mixed, self._cache.expect)

    def _lose(self, shard: str, error: StoreError) -> None:
        self.lost[shard] = error.problem
        lost = sum(self._clips[name] for name in self.lost)
        total = self._clips.total()
        if lost > self._most_lost * total:
            raise StoreError(
                f"{len(self.lost)} of {len(self._clips)} shards of {self.name} are lost, {lost} of {total} clips; "
                f"the last: {error.problem}",
                remedy="check the store, or pack the videos again",
            ) from error


class _ShardByShard:
    """A few shards are mixed, then the next few; before they are needed, `expect` is told of them."""

    def __init__(
        self,
        seed: int,
        shards: tuple[str, ...],
        counts: tuple[int, ...],
        mixed: int,
        expect: Callable[[Sequence[str]], None],
    ) -> None:
        self._seed, self._shards, self._counts, self._mixed, self._expect = seed, shards, counts, mixed, expect
        self._told: tuple[int, int] | None = None  # epoch and first position of the shards told of
        self._total = sum(counts)

    def sample(self, epoch: int, position: int) -> int:
        found = shard_sample_at(seed=self._seed, epoch=epoch, position=position, counts=self._counts, mixed=self._mixed)
        if self._told != (epoch, found.stop):
            self._told = (epoch, found.stop)
            self._expect(self._next_shards(epoch, found.stop))
        return found.sample

    def near(self, position: int, rng: np.random.Generator) -> int:
        # Which positions are mixed with this one depends on the epoch's own order of shards; positions before and after
        # it nearly always are.
        reach = max(1, self._total * self._mixed // (4 * len(self._counts)))
        return int(position + rng.integers(-reach, reach + 1)) % self._total

    def _next_shards(self, epoch: int, stop: int) -> list[str]:
        """Those that are mixed after this position, be it in the next epoch."""
        epoch, position = (epoch, stop) if stop < self._total else (epoch + 1, 0)
        numbers = shards_at(seed=self._seed, epoch=epoch, position=position, counts=self._counts, mixed=self._mixed)
        return [self._shards[number] for number in numbers]


def shard_of(entry: Entry) -> str:
    return entry.path.partition("/")[0]
