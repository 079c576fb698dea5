"""The order of samples and their random numbers.

The order is a pure function of (seed, epoch, position): it does not depend on the number of processes or workers, nor
on interruptions. An epoch is one pass over `count` samples. Global positions count on through all epochs:
divmod(position, count) is the epoch and the position within it.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Int64

from timecycle.errors import SettingsError

SampleKey = tuple[int, int]  # epoch, position within it

_WORD = 2**32
# The last word of every seed states its purpose: numpy reads a missing word as zero, so without it the order of an
# epoch and the random numbers of its first sample would come from the same stream.
_ORDER, _SAMPLE, _MIX = 1, 2, 3


def sample_at(*, seed: int, epoch: int, position: int, count: int) -> int:
    """Return the sample at a position of an epoch; an epoch visits each of `count` samples once."""
    if not 0 <= position < count:
        raise SettingsError(
            f"an epoch of {count} samples has no position {position}", remedy=f"ask for 0 to {count - 1}"
        )
    return int(_permutation(seed, epoch, count)[position])


class ShardOrder:
    """The order of samples that lie in shards of `counts` samples; an epoch visits each sample once.

    Every epoch shuffles the shards, forms groups of `mixed_shards` and shuffles the samples within each group. So only
    one group is read at a time, any position is computed without visiting those before it, and a few numbers per shard
    are all that is held in memory.
    """

    def __init__(self, counts: Sequence[int] | Int64[np.ndarray, " shards"], *, seed: int, mixed_shards: int) -> None:
        self._counts = np.asarray(counts, np.int64)
        self._firsts = np.concatenate([[0], np.cumsum(self._counts)])
        self._seed, self._mixed = seed, mixed_shards
        self._stops = lru_cache(maxsize=4)(self._group_stops)  # a batch may span two epochs
        self._samples = lru_cache(maxsize=8)(self._mixed_samples)  # workers prefetch from one group into the next

    def __len__(self) -> int:
        """Return the number of samples in an epoch."""
        return int(self._firsts[-1])

    def sample(self, epoch: int, position: int) -> tuple[int, int]:
        """Return the sample at a position of an epoch, and the first position after its group."""
        group, start, stop = self._group_at(epoch, position)
        return int(self._samples(epoch, group)[position - start]), stop

    def shards(self, epoch: int, position: int) -> list[int]:
        """Return the group of shards that is read at a position."""
        return [int(shard) for shard in self._shards(epoch, self._group_at(epoch, position)[0])]

    def shard_of(self, sample: int) -> tuple[int, int]:
        """Return the shard of a sample, and which of the shard's samples it is."""
        shard = int(np.searchsorted(self._firsts, sample, side="right")) - 1
        return shard, sample - int(self._firsts[shard])

    def _group_at(self, epoch: int, position: int) -> tuple[int, int, int]:
        """Return the group of shards at a position, its first position, and the first position after it."""
        stops = self._stops(epoch)
        if not 0 <= position < len(self):
            raise SettingsError(
                f"an epoch of {len(self)} samples has no position {position}", remedy=f"ask for 0 to {len(self) - 1}"
            )
        group = int(np.searchsorted(stops, position, side="right"))
        return group, int(stops[group - 1]) if group else 0, int(stops[group])

    def _shards(self, epoch: int, group: int) -> Int64[np.ndarray, " mixed"]:
        order = _permutation(self._seed, epoch, len(self._counts))
        return order[group * self._mixed : (group + 1) * self._mixed]

    def _group_stops(self, epoch: int) -> Int64[np.ndarray, " groups"]:
        ordered = self._counts[_permutation(self._seed, epoch, len(self._counts))]
        return np.cumsum(np.add.reduceat(ordered, np.arange(0, len(ordered), self._mixed)))

    def _mixed_samples(self, epoch: int, group: int) -> Int64[np.ndarray, " samples"]:
        ranges = [np.arange(self._firsts[shard], self._firsts[shard + 1]) for shard in self._shards(epoch, group)]
        return _stream(self._seed, epoch, group, _MIX).permutation(np.concatenate(ranges))


def generator(*, seed: int, epoch: int, position: int) -> np.random.Generator:
    """Return the random generator of one sample, independent of those of all others."""
    return _stream(seed, epoch, position, _SAMPLE)


def positions(step: int, *, batch: int, rank: int, world_size: int) -> range:
    """Return the global positions of a process at a step: an equal, contiguous part of the batch."""
    if batch % world_size:
        fitting = [size for size in range(1, batch + 1) if batch % size == 0]
        raise SettingsError(
            f"a batch of {batch} cannot be shared equally by {world_size} processes",
            remedy=f"start {' or '.join(map(str, fitting))} processes, or choose a batch that {world_size} divides",
        )
    if not 0 <= rank < world_size:
        raise SettingsError(
            f"there is no process {rank} of {world_size}", remedy=f"number them from 0 to {world_size - 1}"
        )
    share = batch // world_size
    start = step * batch + rank * share
    return range(start, start + share)


def sample_keys(step: int, *, batch: int, rank: int, world_size: int, count: int) -> list[SampleKey]:
    """Return epoch and position of the samples of a process at a step; a batch may span two epochs."""
    return [divmod(position, count) for position in positions(step, batch=batch, rank=rank, world_size=world_size)]


@lru_cache(maxsize=4)  # a batch may span two epochs; workers prefetch
def _permutation(seed: int, epoch: int, count: int) -> Int64[np.ndarray, " count"]:
    order = _stream(seed, epoch, 0, _ORDER).permutation(count)
    order.flags.writeable = False
    return order


def _stream(seed: int, epoch: int, position: int, purpose: int) -> np.random.Generator:
    words = {"seed": seed, "epoch": epoch, "position": position}
    for name, word in words.items():
        if not 0 <= word < _WORD:
            raise SettingsError(f"the {name} is {word}", remedy=f"give 0 to {_WORD - 1}")
    return np.random.default_rng([*words.values(), purpose])
