"""Choose and read training clips: which frames, and which crop of them.

Black bars are removed first, because they are landmarks that never move. All frames of a clip share one crop, so that
motion in the clip is motion in the video. Static clips would reward a static solution, and are drawn again.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from timecycle.data.corpus.footage import FolderFootage, Footage, read_frames
from timecycle.data.corpus.frame_cache import FrameCache
from timecycle.data.corpus.index import Entry
from timecycle.data.corpus.probe import Box, grey, motion
from timecycle.errors import SettingsError, VideoError
from timecycle.shortages import raise_if_shortage

_log = logging.getLogger(__name__)

_MIN_ATTEMPTS = 24  # draws of a video until a clip has motion; fewer videos are drawn from repeatedly


@dataclass(frozen=True, kw_only=True)
class ClipConfig:
    """How clips are taken from videos."""

    frames: int = 4  # of a clip
    gap_seconds: tuple[float, float] = (1 / 12, 2 / 3)  # between frames, log-uniform: slow and fast motion alike
    short_side_px: int = 160  # of the whole image after resizing
    zoom: tuple[float, float] = (1.0, 1.0)  # factor of the short side, log-uniform: objects appear in several sizes
    crop_px: int = 128  # square; for views, larger than the view by a margin
    flip: bool = True  # mirror half of the clips
    min_motion: float = 0.5  # grey levels between frames; below, a clip is static and drawn again
    tries: int = 3  # clips drawn from one video before the next video is tried

    def __post_init__(self) -> None:
        low, high = self.gap_seconds
        if self.frames < 2 or self.tries < 1:
            raise SettingsError(
                f"frames is {self.frames} and tries {self.tries}", remedy="give at least 2 frames and 1 try"
            )
        if not 0 < low <= high:
            raise SettingsError(f"gap_seconds is {self.gap_seconds}", remedy="give the shortest, then the longest gap")
        least, most = self.zoom
        if not 0 < least <= most:
            raise SettingsError(f"zoom is {self.zoom}", remedy="give the smallest, then the largest zoom")
        if not 0 < self.crop_px <= round(self.short_side_px * least):
            raise SettingsError(
                f"crop_px is {self.crop_px} and the short side may be {round(self.short_side_px * least)}",
                remedy="give a crop that fits into the image's short side",
            )


@dataclass(frozen=True)
class ClipChoice:
    """The frames of a video and the crop of the resized image that make a clip."""

    frames: tuple[int, ...]  # indices, evenly spaced and rising
    short_side_px: int
    left_px: int
    top_px: int
    is_flipped: bool


@dataclass(frozen=True, eq=False)
class Clip:
    """The pixels of a clip, and their origin."""

    frames: UInt8[np.ndarray, "frames crop crop 3"]
    path: str
    choice: ClipChoice


def is_usable(entry: Entry, config: ClipConfig) -> bool:
    """Whether a video is long enough and not static."""
    return entry.frames >= config.frames and not entry.is_static


def usable(entries: Sequence[Entry], config: ClipConfig) -> list[Entry]:
    """Return the videos that are long enough and not static."""
    return [entry for entry in entries if is_usable(entry, config)]


def choose_clip(entry: Entry, config: ClipConfig, rng: np.random.Generator) -> ClipChoice:
    """Draw a clip at random; in a short video the gap between frames shrinks until the clip fits."""
    steps = config.frames - 1
    if entry.frames < config.frames:
        raise VideoError(
            f"{entry.path} has {entry.frames} frames, a clip {config.frames}", remedy="leave the video out (usable())"
        )
    gap_seconds = np.exp(rng.uniform(*np.log(config.gap_seconds)))
    gap = int(np.clip(round(gap_seconds * entry.fps), 1, (entry.frames - 1) // steps))
    start = entry.first + int(rng.integers(entry.frames - steps * gap))
    low, high = config.zoom
    zoom = np.exp(rng.uniform(*np.log(config.zoom))) if low < high else low
    short_side = round(config.short_side_px * zoom)
    width, height = _resized(entry.box, short_side)
    left = int(rng.integers(width - config.crop_px + 1))
    top = int(rng.integers(height - config.crop_px + 1))
    is_flipped = bool(rng.random() < 0.5) and config.flip
    return ClipChoice(tuple(range(start, start + steps * gap + 1, gap)), short_side, left, top, is_flipped)


def read_clip(
    path: Path,
    entry: Entry,
    choice: ClipChoice,
    config: ClipConfig,
    cache: FrameCache | None = None,
    *,
    read_all: bool = False,
) -> UInt8[np.ndarray, "frames crop crop 3"]:
    """Read the pixels of a clip: without bars, resized, cropped, and mirrored if chosen.

    With `read_all`, the first clip of a video puts all its frames into the cache.
    """
    if cache:
        images = _cached_frames(path, entry, choice.frames, cache, read_all=read_all)
    else:
        images = read_frames(path, choice.frames)
    height, width, _ = images[0].shape
    if (height, width) != (entry.height_px, entry.width_px):
        raise VideoError(
            f"{path} is {width}x{height} but its index says {entry.width_px}x{entry.height_px}",
            remedy="make the index again",
        )
    return np.stack([_cropped(image, entry.box, choice, config) for image in images])


def _cached_frames(
    path: Path, entry: Entry, indices: Sequence[int], cache: FrameCache, *, read_all: bool
) -> list[UInt8[np.ndarray, "height width 3"]]:
    kept = {index: frame for index in indices if (frame := cache.get(entry.path, index)) is not None}
    missing = [index for index in indices if index not in kept]
    if missing and read_all:
        # Damage elsewhere in the video must not change which clips can be read.
        with suppress(VideoError):
            kept |= _read_into(cache, path, entry, range(entry.first, entry.first + entry.frames))
            missing = []
    if missing:
        kept |= _read_into(cache, path, entry, missing)
    return [kept[index] for index in indices]


def _read_into(
    cache: FrameCache, path: Path, entry: Entry, indices: Sequence[int]
) -> dict[int, UInt8[np.ndarray, "height width 3"]]:
    frames = dict(zip(indices, read_frames(path, indices), strict=True))
    for index, frame in frames.items():
        cache.put(entry.path, index, frame)
    return frames


def _fits(footage: Footage, cache: FrameCache) -> bool:
    """Whether all frames of a folder's videos fit into the cache.

    A pack's entries lie in its shards, so that asking would fetch all of it; its clips have many keyframes anyway.
    """
    if not isinstance(footage, FolderFootage):
        return False
    left = cache.limit_bytes
    for entry in footage.entries:
        left -= 3 * entry.frames * entry.width_px * entry.height_px
        if left < 0:
            return False
    return True


def clip_motion(frames: UInt8[np.ndarray, "frames height width 3"]) -> float:
    """Return the mean absolute change of brightness from frame to frame, in grey levels."""
    greys = [grey(frame) for frame in frames]
    return float(np.mean([motion(first, second) for first, second in pairwise(greys)]))


@runtime_checkable
class Clips(Protocol):
    """The clips of a corpus, one at every position of every epoch."""

    def __len__(self) -> int: ...

    def read(self, epoch: int, position: int, rng: np.random.Generator) -> Clip: ...

    def nearby(self, position: int, rng: np.random.Generator) -> int: ...


class ClipReader:
    """Reads the clip at every position of every epoch.

    The clip is a pure function of seed, epoch and position as long as the files do not change. A static video, or one
    that cannot be read any more, is replaced by the next in the epoch's order. `unreadable` lists the failures; a
    VideoError is raised when they are more than the share `max_unreadable` of the videos. All videos must be usable.
    """

    def __init__(
        self,
        footage: Footage,
        config: ClipConfig,
        *,
        seed: int,
        max_unreadable: float = 0.05,
        cache: FrameCache | None = None,
    ) -> None:
        if len(footage) == 0:
            raise VideoError(
                f"none of the videos below {footage.name} has {config.frames} frames and motion",
                remedy="give other videos, or ask for fewer frames",
            )
        self.unreadable: dict[int, str] = {}  # sample to problem
        self._footage = footage
        self._config = config
        self._order = footage.order(seed=seed)
        self._max_unreadable = max_unreadable
        self._cache = cache
        # Decoding two frames of a short clip costs half as much as decoding all of it.
        self._read_all = cache is not None and _fits(footage, cache)

    def __len__(self) -> int:
        """Return the number of samples in an epoch: one clip of every video."""
        return len(self._footage)

    def read(self, epoch: int, position: int, rng: np.random.Generator) -> Clip:
        """Read the clip at a position; `rng` is that position's own generator."""
        count = len(self)
        for attempt in range(max(count, _MIN_ATTEMPTS)):
            clip = self._moving_clip(self._order.sample(epoch, (position + attempt) % count), rng)
            if clip is not None:
                return clip
        if len(self.unreadable) == count:
            raise VideoError(
                f"{next(iter(self.unreadable.values()))}; there is no other video to replace it",
                remedy=f"check the disk or store that holds {self._footage.name}",
            )
        videos = f"any of {count} videos below {self._footage.name}" if count > 1 else self._footage[0].path
        raise VideoError(
            f"no clip of {self._config.frames} frames with motion above {self._config.min_motion} was found in "
            f"{videos}",
            remedy="lower clips.min_motion, or give videos in which something moves",
        )

    def nearby(self, position: int, rng: np.random.Generator) -> int:
        """Draw the position of another clip of the epoch that is cheap to read."""
        return self._order.nearby(position, rng)

    def _moving_clip(self, sample: int, rng: np.random.Generator) -> Clip | None:
        try:
            entry = self._footage[sample]
            path = self._footage.path(entry)
            for _ in range(self._config.tries):
                choice = choose_clip(entry, self._config, rng)
                frames = read_clip(path, entry, choice, self._config, self._cache, read_all=self._read_all)
                if clip_motion(frames) >= self._config.min_motion:
                    return Clip(frames, entry.path, choice)
        except VideoError as error:
            raise_if_shortage(error, f"while a clip of {self._footage.name} was read")
            self._count_unreadable(sample, error)
        return None

    def _count_unreadable(self, sample: int, error: VideoError) -> None:
        if sample not in self.unreadable:
            _log.warning("%s; another video replaces it", error.problem)
        self.unreadable[sample] = error.problem
        if len(self.unreadable) > max(1, self._max_unreadable * len(self)):
            raise VideoError(
                f"{len(self.unreadable)} of {len(self)} videos cannot be read any more; the last: {error.problem}",
                remedy=f"check the disk or store that holds {self._footage.name}, then make the index again",
            ) from error


def _resized(box: Box, short_side_px: int) -> tuple[int, int]:
    """Return width and height of the image resized to a short side."""
    scale = short_side_px / min(box.width_px, box.height_px)
    return round(box.width_px * scale), round(box.height_px * scale)


def _cropped(
    image: UInt8[np.ndarray, "height width 3"], box: Box, choice: ClipChoice, config: ClipConfig
) -> UInt8[np.ndarray, "crop crop 3"]:
    """Resize and crop in one call, so that only the pixels of the crop are computed.

    Pillow averages over all pixels that shrink into one, and takes the crop with subpixel precision. FFmpeg could
    resize while it converts colours, which saves a millisecond of thirty, but not for folders of images.
    """
    picture = Image.fromarray(np.ascontiguousarray(image[box.top : box.bottom, box.left : box.right]))
    width, height = _resized(box, choice.short_side_px)
    across, down = picture.width / width, picture.height / height
    right, bottom = choice.left_px + config.crop_px, choice.top_px + config.crop_px
    region = (
        choice.left_px * across,
        choice.top_px * down,
        min(right * across, picture.width),
        min(bottom * down, picture.height),
    )
    crop = np.asarray(picture.resize((config.crop_px, config.crop_px), Image.Resampling.BILINEAR, box=region))
    return crop[:, ::-1] if choice.is_flipped else crop
