"""Which sample comes when, and with which chance: pure functions of (seed, epoch, position).

Nothing here knows how many processes or workers there are, so their number, and every interruption, leaves a run
as it was. An epoch is one pass over `count` samples; positions count on through all epochs, and
divmod(position, count) is the epoch and the position within it.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Int64

from timecycle.errors import SettingsError

Place = tuple[int, int]  # epoch, position within it

_WORD = 2**32
# The last word of every seed says what it is for: numpy takes a missing word for a zero, so that without it the
# order of an epoch and the chance of its first sample would come from the same stream.
_ORDER, _SAMPLE, _MIX = 1, 2, 3


def sample_at(*, seed: int, epoch: int, position: int, count: int) -> int:
    """The sample at a position of an epoch; over the epoch's positions, every one of `count` samples once."""
    if not 0 <= position < count:
        raise SettingsError(
            f"an epoch of {count} samples has no position {position}", remedy=f"ask for 0 to {count - 1}"
        )
    return int(_permutation(seed, epoch, count)[position])


@dataclass(frozen=True)
class ShardSample:
    """A sample of a pack, and the first position after the shards it is mixed with."""

    sample: int
    stop: int


def shard_sample_at(*, seed: int, epoch: int, position: int, counts: tuple[int, ...], mixed: int) -> ShardSample:
    """The sample at a position of an epoch over shards with so many samples each; over the epoch, every one once.

    Shards come in the epoch's own order, `mixed` of them at a time, and only the samples of these are shuffled: what is
    read lies close together, and any position is found without going through those before it.
    """
    group, start, stop = _group_at(seed, epoch, position, counts, mixed)
    samples = _mixed_samples(seed, epoch, group, counts, mixed)
    return ShardSample(int(samples[position - start]), stop)


def shards_at(*, seed: int, epoch: int, position: int, counts: tuple[int, ...], mixed: int) -> list[int]:
    """The shards that are mixed at a position."""
    group, _, _ = _group_at(seed, epoch, position, counts, mixed)
    return [int(shard) for shard in _permutation(seed, epoch, len(counts))[group * mixed : (group + 1) * mixed]]


def generator(*, seed: int, epoch: int, position: int) -> np.random.Generator:
    """The random numbers of one sample, independent of those of every other."""
    return _stream(seed, epoch, position, _SAMPLE)


def positions(step: int, *, batch: int, rank: int, world: int) -> range:
    """The positions a process takes at a step: an equal, contiguous part of the batch all processes share."""
    if batch % world:
        fitting = [size for size in range(1, batch + 1) if batch % size == 0]
        raise SettingsError(
            f"a batch of {batch} cannot be shared equally by {world} processes",
            remedy=f"start {' or '.join(map(str, fitting))} processes, or choose a batch that {world} divides",
        )
    if not 0 <= rank < world:
        raise SettingsError(f"there is no process {rank} of {world}", remedy=f"number them from 0 to {world - 1}")
    share = batch // world
    start = step * batch + rank * share
    return range(start, start + share)


def places(step: int, *, batch: int, rank: int, world: int, count: int) -> list[Place]:
    """Epoch and position of the samples a process takes at a step; a batch may end one epoch and begin the next."""
    return [divmod(position, count) for position in positions(step, batch=batch, rank=rank, world=world)]


@lru_cache(maxsize=4)  # a batch may span two epochs; workers read ahead
def _permutation(seed: int, epoch: int, count: int) -> Int64[np.ndarray, " count"]:
    order = _stream(seed, epoch, 0, _ORDER).permutation(count)
    order.flags.writeable = False
    return order


def _group_at(seed: int, epoch: int, position: int, counts: tuple[int, ...], mixed: int) -> tuple[int, int, int]:
    """The group of shards at a position, its first position, and the first after it."""
    stops = _group_stops(seed, epoch, counts, mixed)
    if not 0 <= position < stops[-1]:
        raise SettingsError(
            f"an epoch of {stops[-1]} samples has no position {position}", remedy=f"ask for 0 to {stops[-1] - 1}"
        )
    group = int(np.searchsorted(stops, position, side="right"))
    return group, int(stops[group - 1]) if group else 0, int(stops[group])


@lru_cache(maxsize=4)
def _group_stops(seed: int, epoch: int, counts: tuple[int, ...], mixed: int) -> Int64[np.ndarray, " groups"]:
    ordered = np.asarray(counts, np.int64)[_permutation(seed, epoch, len(counts))]
    stops = np.cumsum(np.add.reduceat(ordered, np.arange(0, len(counts), mixed)))
    stops.flags.writeable = False
    return stops


@lru_cache(maxsize=8)  # workers read ahead, from one group into the next
def _mixed_samples(
    seed: int, epoch: int, group: int, counts: tuple[int, ...], mixed: int
) -> Int64[np.ndarray, " samples"]:
    firsts = np.concatenate([[0], np.cumsum(counts)])
    shards = _permutation(seed, epoch, len(counts))[group * mixed : (group + 1) * mixed]
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
