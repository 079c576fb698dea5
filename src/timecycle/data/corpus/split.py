"""Split a corpus into training videos and held-out videos.

A scene is a video's path within the corpus without the suffix of a clip. Clips of one scene stay together, and videos
of the same name in different folders are different scenes.
"""

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from timecycle.data.corpus.index import VIDEO_SUFFIXES, Entry, Index
from timecycle.errors import SettingsError, VideoError

_CLIP = re.compile(r"(v_.+_g\d+)_c\d+")  # clips of one scene in UCF-101: v_Archery_g01_c02
_MIN_HELD_OUT = 0.2  # of a single video: its last fifth is held out, however small the share
_GAP_SECONDS = 1.0  # between the training part and the held-out part
_MAX_GAP = 0.1  # of the video


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
