"""The split into training and held-out videos, and the order of samples and their random numbers.

A scene is a video's path within the corpus without the suffix of a clip. Clips of one scene stay together, and videos
of the same name in different folders are different scenes.

The order is a pure function of (seed, epoch, position): it does not depend on the number of processes or workers, nor
on interruptions. An epoch is one pass over `count` samples. Global positions count on through all epochs:
divmod(position, count) is the epoch and the position within it.
"""

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePosixPath

import numpy as np
from jaxtyping import Int64

from timecycle.data.corpus.index import VIDEO_SUFFIXES, Entry, Index
from timecycle.errors import SettingsError, VideoError

SampleKey = tuple[int, int]  # epoch, position within it

_WORD = 2**32
# The last word of every seed states its purpose: numpy reads a missing word as zero, so without it the order of an
# epoch and the random numbers of its first sample would come from the same stream.
_ORDER, _SAMPLE, _MIX = 1, 2, 3

_CLIP = re.compile(r"(v_.+_g\d+)_c\d+")  # clips of one scene in UCF-101: v_Archery_g01_c02
_MIN_HELD_OUT = 0.2  # of a single video: its last fifth is held out, however small the share
_GAP_SECONDS = 1.0  # between the training part and the held-out part
_MAX_GAP = 0.1  # of the video


# The order


def sample_at(*, seed: int, epoch: int, position: int, count: int) -> int:
    """Return the sample at a position of an epoch; an epoch visits each of `count` samples once."""
    if not 0 <= position < count:
        raise SettingsError(
            f"an epoch of {count} samples has no position {position}", remedy=f"ask for 0 to {count - 1}"
        )
    return int(_permutation(seed, epoch, count)[position])


def shard_sample_at(
    *, seed: int, epoch: int, position: int, counts: tuple[int, ...], mixed_shards: int
) -> tuple[int, int]:
    """Return the sample at a position of an epoch over shards of `counts` samples; an epoch visits each sample once.

    Every epoch shuffles the shards, forms groups of `mixed_shards` and shuffles the samples within each group. So only
    one group is read at a time, and any position is computed without visiting those before it. Also return the first
    position after the group.
    """
    group, start, stop = _group_at(seed, epoch, position, counts, mixed_shards)
    samples = _mixed_samples(seed, epoch, group, counts, mixed_shards)
    return int(samples[position - start]), stop


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


# The split


def split(index: Index, held_out_share: float, *, clip_frames: int = 2) -> tuple[Index, Index]:
    """Split videos into training and held-out ones; neither is empty if the share is above 0.

    The hash of the scene decides, so that videos added later do not move the others. If this would hold out nothing or
    everything, the one scene with the smallest hash is held out. A single scene is split in time, with a gap: its last
    clips are held out, or its last frames if it is one video; both parts have at least `clip_frames` frames.
    """
    if not 0 <= held_out_share < 1:
        raise SettingsError(f"held_out_share is {held_out_share}", remedy="give a share from 0 to below 1")
    scenes = _scenes(index.entries)
    if held_out_share == 0 or not scenes:
        return Index(index.entries), Index(())
    if len(scenes) == 1:
        return _split_in_time(index.entries, held_out_share, clip_frames)
    fractions = {scene: _fraction(key) for scene, key in _keys(scenes).items()}
    held_out = {scene for scene, fraction in fractions.items() if fraction < held_out_share}
    if not 0 < len(held_out) < len(scenes):
        held_out = {min(fractions, key=lambda scene: (fractions[scene], scene))}
    kept = tuple(entry for entry in index.entries if scene_of(entry) not in held_out)
    return Index(kept), Index(tuple(entry for entry in index.entries if scene_of(entry) in held_out))


def scene_of(entry: Entry) -> str:
    """Return the path within the corpus, without suffixes, of the video or of the one a packed clip was cut from."""
    path = PurePosixPath(entry.source or entry.path)
    if path.suffix.lower() in VIDEO_SUFFIXES:  # the name of a folder of images may contain dots
        path = path.with_suffix("")
    clip = _CLIP.fullmatch(path.name)
    return str(path.with_name(clip[1]) if clip else path)


def _scenes(entries: Iterable[Entry]) -> list[str]:
    return sorted({scene_of(entry) for entry in entries})


def _keys(scenes: Sequence[str]) -> dict[str, str]:
    """Return the text to hash for every scene: its name if that is unique in the corpus, otherwise its path.

    So a corpus keeps its split when its folders are reorganised.
    """
    folders = defaultdict(list)
    for scene in scenes:
        folders[PurePosixPath(scene).name].append(scene)
    return {scene: name if len(same) == 1 else scene for name, same in folders.items() for scene in same}


def _fraction(text: str) -> float:
    """Hash a text to a number from 0 to below 1."""
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogateescape")).digest()[:6], "big") / 2**48


def _split_in_time(entries: Sequence[Entry], share: float, clip_frames: int) -> tuple[Index, Index]:
    """Hold out the end of a single scene."""
    if len(entries) == 1:
        first, last = _split_frames(entries[0], share, clip_frames)
        return Index((first,)), Index((last,))
    count = min(math.ceil(share * len(entries)), len(entries) - 1)
    gap = 1 if len(entries) - count >= 3 else 0  # adjacent clips may show nearly the same
    return Index(tuple(entries[: -count - gap])), Index(tuple(entries[-count:]))


def _split_frames(entry: Entry, share: float, clip_frames: int) -> tuple[Entry, Entry]:
    """Split a video into its first frames and, after a gap, its last frames."""
    room = entry.frames - 2 * clip_frames
    if room < 0:
        raise VideoError(
            f"{entry.path} is the only video to train on, and its {entry.frames} frames are too few to hold some out: "
            f"a clip takes {clip_frames}",
            remedy="give a longer video, or several",
        )
    held_out = clip_frames + min(max(0, math.ceil(max(share, _MIN_HELD_OUT) * entry.frames) - clip_frames), room)
    gap = min(round(_GAP_SECONDS * entry.fps), int(_MAX_GAP * entry.frames), entry.frames - clip_frames - held_out)
    return (
        replace(entry, frames=entry.frames - held_out - gap),
        replace(entry, first=entry.first + entry.frames - held_out, frames=held_out),
    )
