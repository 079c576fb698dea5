"""The split into training and held-out videos.

A scene is a video's path within the corpus without the suffix of a clip. Clips of one scene stay together, and videos
of the same name in different folders are different scenes. The hash of the scene decides, so that videos added later do
not move the others, and a part of the corpus is split without reading the rest.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PurePosixPath

import numpy as np
from jaxtyping import Bool, UInt64

from timecycle.data.corpus.index import VIDEO_SUFFIXES, Entry, Index
from timecycle.errors import SettingsError, VideoError

SceneHashes = UInt64[np.ndarray, "scenes 2"]  # of the name, and of the path

_CLIP = re.compile(r"(v_.+_g\d+)_c\d+")  # clips of one scene in UCF-101: v_Archery_g01_c02
_MIN_HELD_OUT = 0.2  # of a single video: its last fifth is held out, however small the share
_GAP_SECONDS = 1.0  # between the training part and the held-out part
_MAX_GAP = 0.1  # of the video


@dataclass(frozen=True, kw_only=True)
class SplitRule:
    """Which scenes are held out: those whose hash is below a bound; of a single scene, its end."""

    below: float
    repeated: frozenset[int] = frozenset()  # hashes of the names that several scenes have: their paths are hashed
    in_time: bool = False

    def holds_out(self, hashes: SceneHashes) -> Bool[np.ndarray, " scenes"]:
        """Tell for each scene of a corpus of several whether it is held out."""
        return _fractions(hashes, self.repeated) < self.below


def split(index: Index, held_out_share: float, *, clip_frames: int = 2) -> tuple[Index, Index]:
    """Split videos into training and held-out ones; neither is empty if the share is above 0.

    If the hashes would hold out nothing or everything, the one scene with the smallest hash is held out. A single scene
    is split in time, with a gap: its last clips are held out, or its last frames if it is one video; both parts have at
    least `clip_frames` frames.
    """
    scenes = sorted({scene_of(entry) for entry in index.entries})
    hashes = hash_scenes(scenes)
    rule = split_rule(hashes, held_out_share)
    if rule.in_time and index.entries:
        return split_in_time(index.entries, held_out_share, clip_frames)
    held_out = {scene for scene, held in zip(scenes, rule.holds_out(hashes), strict=True) if held}
    kept = tuple(entry for entry in index.entries if scene_of(entry) not in held_out)
    return Index(kept), Index(tuple(entry for entry in index.entries if scene_of(entry) in held_out))


def split_rule(hashes: SceneHashes, held_out_share: float) -> SplitRule:
    """Find out which scenes of a corpus are held out; a scene may be given more than once."""
    if not 0 <= held_out_share < 1:
        raise SettingsError(f"held_out_share is {held_out_share}", remedy="give a share from 0 to below 1")
    scenes = np.unique(hashes, axis=0)
    if held_out_share == 0 or len(scenes) < 2:
        return SplitRule(below=0.0, in_time=held_out_share > 0)
    names, counts = np.unique(scenes[:, 0], return_counts=True)
    repeated = frozenset(int(name) for name in names[counts > 1])
    fractions = _fractions(scenes, repeated)
    if 0 < np.count_nonzero(fractions < held_out_share) < len(scenes):
        return SplitRule(below=held_out_share, repeated=repeated)
    return SplitRule(below=float(np.nextafter(fractions.min(), 1)), repeated=repeated)


def hash_scenes(scenes: Sequence[str]) -> SceneHashes:
    """Return the hashes of scenes: 16 bytes each, whatever the length of their paths."""
    pairs = [(_hash(PurePosixPath(scene).name), _hash(scene)) for scene in scenes]
    return np.array(pairs, np.uint64).reshape(-1, 2)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogateescape")).digest()[:8], "big")


def _fractions(hashes: SceneHashes, repeated: Iterable[int]) -> np.ndarray:
    """Return numbers from 0 to below 1: of the name if it is unique in the corpus, otherwise of the path.

    So a corpus keeps its split when its folders are reorganised.
    """
    is_repeated = np.isin(hashes[:, 0], np.array(sorted(repeated), np.uint64))
    chosen = np.where(is_repeated, hashes[:, 1], hashes[:, 0])
    return (chosen >> np.uint64(16)).astype(np.float64) / 2**48


def scene_of(entry: Entry) -> str:
    """Return the path within the corpus, without suffixes, of the video or of the one a packed clip was cut from."""
    return _scene(entry.source or entry.path)


@lru_cache(maxsize=16)  # clips of one video follow each other
def _scene(name: str) -> str:
    path = PurePosixPath(name)
    if path.suffix.lower() in VIDEO_SUFFIXES:  # the name of a folder of images may contain dots
        path = path.with_suffix("")
    clip = _CLIP.fullmatch(path.name)
    return str(path.with_name(clip[1]) if clip else path)


def split_in_time(entries: Sequence[Entry], share: float, clip_frames: int) -> tuple[Index, Index]:
    """Hold out the end of a single scene: its last clips, or the last frames of its only video."""
    if len(entries) == 1:
        first, last = _split_frames(entries[0], share, clip_frames)
        return Index((first,)), Index((last,))
    kept, held_out = split_positions(len(entries), share)
    return Index(tuple(entries[position] for position in kept)), Index(tuple(entries[p] for p in held_out))


def split_positions(count: int, share: float) -> tuple[range, range]:
    """Return which of two or more clips of a single scene are trained on, and which are held out."""
    held_out = min(math.ceil(share * count), count - 1)
    gap = 1 if count - held_out >= 3 else 0  # adjacent clips may show nearly the same
    return range(count - held_out - gap), range(count - held_out, count)


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
