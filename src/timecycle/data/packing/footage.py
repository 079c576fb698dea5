"""The clips of a pack as footage: read shard by shard through a local cache.

Clips are shuffled within a few shards at a time: shards are then read one after the other, each once per epoch. Only a
few of them have to be on this machine, and only the lists of their clips are in memory.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from timecycle.data.corpus.footage import Order
from timecycle.data.corpus.index import Entry
from timecycle.data.corpus.order import ShardOrder
from timecycle.data.packing.shard_list import Part, ShardList
from timecycle.data.packing.shards import ShardCache, shard_name
from timecycle.errors import DamagedError, MissingError, StoreError, VideoError

_Read = TypeVar("_Read")


class PackFootage:
    """The clips of one part of a pack; `mixed_shards` at a time are shuffled together.

    A shard that is missing or damaged is left out. A StoreError is raised when this loses more than the share
    `max_lost` of the clips, and at once when the store cannot be reached.
    """

    def __init__(
        self,
        cache: ShardCache,
        shards: ShardList,
        part: Part,
        *,
        is_usable: Callable[[Entry], bool],
        mixed_shards: int,
        max_lost: float = 0.05,
    ) -> None:
        self.lost: dict[str, str] = {}  # shard to problem
        self._cache, self._shards, self._part, self._is_usable = cache, shards, part, is_usable
        self._mixed, self._max_lost = mixed_shards, max_lost
        self._listed = np.flatnonzero(shards.count(part))  # the shards that have such clips
        self._counts = shards.count(part)[self._listed]
        self._order = ShardOrder(self._counts, seed=0, mixed_shards=mixed_shards)
        self._entries: OrderedDict[int, Sequence[Entry]] = OrderedDict()  # of the shards used last
        self._guard = threading.Lock()

    @property
    def name(self) -> str:
        return self._cache.name

    def __len__(self) -> int:
        return int(self._counts.sum())

    def __getitem__(self, sample: int) -> Entry:
        number, position = self._order.shard_of(sample)
        return self._clips(number)[position]

    def path(self, entry: Entry) -> Path:
        shard, _, clip = entry.path.partition("/")
        return self._kept(shard, lambda: self._cache.folder(shard)) / clip

    def order(self, *, seed: int) -> Order:
        order = ShardOrder(self._counts, seed=seed, mixed_shards=self._mixed)
        distance = max(1, len(self) * self._mixed // (4 * len(self._counts)))
        return _PrefetchingOrder(order, self._name, self._cache.prefetch, distance=distance)

    def _name(self, number: int) -> str:
        return shard_name(int(self._shards.numbers[self._listed[number]]))

    def _clips(self, number: int) -> Sequence[Entry]:
        with self._guard:
            if number in self._entries:
                self._entries.move_to_end(number)
                return self._entries[number]
        shard = self._name(number)
        clips = self._kept(shard, lambda: self._read(number, shard))  # by two threads at once, perhaps: they are equal
        with self._guard:
            self._entries[number] = clips
            while len(self._entries) > 2 * self._mixed:  # the shards that are read, and the ones before or after them
                self._entries.popitem(last=False)
        return clips

    def _read(self, number: int, name: str) -> Sequence[Entry]:
        position = int(self._listed[number])
        return self._shards.clips(position, self._cache.shard(name), self._part, is_usable=self._is_usable)

    def _kept(self, shard: str, read: Callable[[], _Read]) -> _Read:
        """Read something of a shard; a shard that cannot be read is lost from then on."""
        if shard not in self.lost:
            try:
                return read()
            except (MissingError, DamagedError) as error:  # but not a store that does not answer
                self._lose(shard, error)
        raise VideoError(f"{shard} is lost: {self.lost[shard]}", remedy="pack the videos again")

    def _lose(self, shard: str, error: StoreError) -> None:
        self.lost[shard] = error.problem
        lost = sum(int(count) for number, count in enumerate(self._counts) if self._name(number) in self.lost)
        if lost > self._max_lost * len(self):
            raise StoreError(
                f"{len(self.lost)} of {len(self._counts)} shards of {self.name} are lost, {lost} of {len(self)} clips; "
                f"the last: {error.problem}",
                remedy="check the store, or pack the videos again",
            ) from error


class _PrefetchingOrder:
    """An order over groups of a few shards; `prefetch` is called with the shards of the next group."""

    def __init__(
        self,
        order: ShardOrder,
        name: Callable[[int], str],
        prefetch: Callable[[Sequence[str]], None],
        *,
        distance: int,
    ) -> None:
        self._order, self._name, self._prefetch = order, name, prefetch
        self._distance = distance  # of positions whose shards are nearly always read at the same time
        self._prefetched: tuple[int, int] | None = None  # epoch and position up to which prefetch was called

    def sample(self, epoch: int, position: int) -> int:
        sample, stop = self._order.sample(epoch, position)
        if self._prefetched != (epoch, stop):
            self._prefetched = (epoch, stop)
            following = (epoch, stop) if stop < len(self._order) else (epoch + 1, 0)
            self._prefetch([self._name(number) for number in self._order.shards(*following)])
        return sample

    def nearby(self, position: int, rng: np.random.Generator) -> int:
        return int(position + rng.integers(-self._distance, self._distance + 1)) % len(self._order)
