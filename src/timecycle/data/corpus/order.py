"""The order of samples and their random numbers, as pure functions of (seed, epoch, position).

The order does not depend on the number of processes or workers, nor on interruptions. An epoch is one pass over `count`
samples. Global positions count on through all epochs: divmod(position, count) is the epoch and the position within it.
"""

from dataclasses import dataclass
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


@dataclass(frozen=True)
class ShardSample:
    """A sample of a pack, and the first position after the group of shards it is shuffled with."""

    sample: int
    stop: int


def shard_sample_at(*, seed: int, epoch: int, position: int, counts: tuple[int, ...], mixed_shards: int) -> ShardSample:
    """Return the sample at a position of an epoch over shards of `counts` samples; an epoch visits each sample once.

    Every epoch shuffles the shards, forms groups of `mixed_shards` and shuffles the samples within each group. So only
    one group is read at a time, and any position is computed without visiting those before it.
    """
    group, start, stop = _group_at(seed, epoch, position, counts, mixed_shards)
    samples = _mixed_samples(seed, epoch, group, counts, mixed_shards)
    return ShardSample(int(samples[position - start]), stop)


def shards_at(*, seed: int, epoch: int, position: int, counts: tuple[int, ...], mixed_shards: int) -> list[int]:
    """Return the group of shards that is read at a position."""
    group, _, _ = _group_at(seed, epoch, position, counts, mixed_shards)
    return [
        int(shard)
        for shard in _permutation(seed, epoch, len(counts))[group * mixed_shards : (group + 1) * mixed_shards]
    ]


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


def _group_at(seed: int, epoch: int, position: int, counts: tuple[int, ...], mixed_shards: int) -> tuple[int, int, int]:
    """Return the group of shards at a position, its first position, and the first position after it."""
    stops = _group_stops(seed, epoch, counts, mixed_shards)
    if not 0 <= position < stops[-1]:
        raise SettingsError(
            f"an epoch of {stops[-1]} samples has no position {position}", remedy=f"ask for 0 to {stops[-1] - 1}"
        )
    group = int(np.searchsorted(stops, position, side="right"))
    return group, int(stops[group - 1]) if group else 0, int(stops[group])


@lru_cache(maxsize=4)
def _group_stops(seed: int, epoch: int, counts: tuple[int, ...], mixed_shards: int) -> Int64[np.ndarray, " groups"]:
    ordered = np.asarray(counts, np.int64)[_permutation(seed, epoch, len(counts))]
    stops = np.cumsum(np.add.reduceat(ordered, np.arange(0, len(counts), mixed_shards)))
    stops.flags.writeable = False
    return stops


@lru_cache(maxsize=8)  # workers prefetch from one group into the next
def _mixed_samples(
    seed: int, epoch: int, group: int, counts: tuple[int, ...], mixed_shards: int
) -> Int64[np.ndarray, " samples"]:
    firsts = np.concatenate([[0], np.cumsum(counts)])
    shards = _permutation(seed, epoch, len(counts))[group * mixed_shards : (group + 1) * mixed_shards]
    samples = np.concatenate([np.arange(firsts[shard], firsts[shard + 1]) for shard in shards])
    shuffled = _stream(seed, epoch, group, _MIX).permutation(samples)
    shuffled.flags.writeable = False
    return shuffled


def _stream(seed: int, epoch: int, position: int, purpose: int) -> np.random.Generator:
    words = {"seed": seed, "epoch": epoch, "position": position}
    for name, word in words.items():
        if not 0 <= word < _WORD:
            raise SettingsError(f"the {name} is {word}", remedy=f"give 0 to {_WORD - 1}")
    return np.random.default_rng([*words.values(), purpose])
