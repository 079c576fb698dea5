"""Clips for learning: which frames, which part of them, and how they are read.

Black bars are cut off first: they are landmarks that never move. One crop serves all frames of a clip, so that what
moves in the clip moved before the camera. Clips in which nothing moves teach that standing still is right, and are
drawn again.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from timecycle.data.examine import Box, grey, motion
from timecycle.data.footage import Footage
from timecycle.data.frames import read_frames
from timecycle.data.index import Entry
from timecycle.errors import SettingsError, VideoError
from timecycle.shortages import check_verdict

_log = logging.getLogger(__name__)

_LEAST_TURNS = 24  # videos that are tried for a clip with motion; where there are fewer, they get several turns


@dataclass(frozen=True, kw_only=True)
class ClipConfig:
    """How clips are taken from videos."""

    frames: int = 4
    gap_seconds: tuple[float, float] = (1 / 12, 2 / 3)  # between frames, log-uniform: slow and fast motion alike
    short_side_px: int = 160  # of the whole picture after resizing
    zoom: tuple[float, float] = (1.0, 1.0)  # times this, log-uniform: things are seen in several sizes
    crop_px: int = 128  # square; for views, larger than the view by a margin
    flip: bool = True  # half of the clips are mirrored
    min_motion: float = 0.5  # grey levels between frames; below, a clip counts as still and is drawn again
    tries: int = 3  # clips drawn from one video before the next video has its turn

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
                remedy="give a crop that fits into the picture's short side",
            )


@dataclass(frozen=True)
class ClipChoice:
    """Which frames of a video, and which part of the resized picture."""

    frames: tuple[int, ...]  # indices, evenly spaced and rising
    short_side_px: int
    left_px: int
    top_px: int
    is_flipped: bool


@dataclass(frozen=True, eq=False)
class Clip:
    """The pixels, and where they are from."""

    frames: UInt8[np.ndarray, "frames crop crop 3"]
    path: str
    choice: ClipChoice


def usable(entries: Sequence[Entry], config: ClipConfig) -> list[Entry]:
    """The videos that are long enough and not still from end to end."""
    return [entry for entry in entries if entry.frames >= config.frames and not entry.is_static]


def choose_clip(entry: Entry, config: ClipConfig, rng: np.random.Generator) -> ClipChoice:
    """Draw a clip; in a short video the gap between frames shrinks until the clip fits."""
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
    path: Path, entry: Entry, choice: ClipChoice, config: ClipConfig
) -> UInt8[np.ndarray, "frames crop crop 3"]:
    """The pixels of a clip of the video at a path: bars cut off, resized, cropped, mirrored."""
    images = read_frames(path, choice.frames)
    height, width, _ = images[0].shape
    if (height, width) != (entry.height_px, entry.width_px):
        raise VideoError(
            f"{path} is {width}x{height} but its index says {entry.width_px}x{entry.height_px}",
            remedy="make the index again",
        )
    return np.stack([_cropped(image, entry.box, choice, config) for image in images])


def clip_motion(frames: UInt8[np.ndarray, "frames height width 3"]) -> float:
    """The mean absolute change of brightness from frame to frame, in grey levels."""
    greys = [grey(frame) for frame in frames]
    return float(np.mean([motion(first, second) for first, second in pairwise(greys)]))


class ClipReader:
    """The clip at every position of every epoch.

    A pure function of seed, epoch and position as long as the files stay as they are: a video without motion, or
    one that cannot be read any more, gives way to the next in the epoch's order. `unreadable` says which failed;
    above a share `most_unreadable` of the videos the reader refuses to go on.
    """

    def __init__(
        self,
        footage: Footage,
        entries: Sequence[Entry],
        config: ClipConfig,
        *,
        seed: int,
        most_unreadable: float = 0.05,
    ) -> None:
        self.entries = usable(entries, config)
        if not self.entries:
            raise VideoError(
                f"none of the {len(entries)} videos below {footage.name} has {config.frames} frames and motion",
                remedy="give other videos, or ask for fewer frames",
            )
        self.unreadable: dict[str, str] = {}  # path to problem
        self._footage = footage
        self._config = config
        self._order = footage.order(self.entries, seed=seed)
        self._most_unreadable = most_unreadable

    def __len__(self) -> int:
        """How many samples an epoch has: one clip of every usable video."""
        return len(self.entries)

    def read(self, epoch: int, position: int, rng: np.random.Generator) -> Clip:
        """The clip at a position; `rng` is that position's own generator."""
        count = len(self)
        for ahead in range(max(count, _LEAST_TURNS)):
            turn = (position + ahead) % count
            entry = self.entries[self._order.sample(epoch, turn)]
            clip = self._moving_clip(entry, rng)
            if clip is not None:
                return clip
        if len(self.unreadable) == count:
            raise VideoError(
                f"{next(iter(self.unreadable.values()))}; there is no other video to take its place",
                remedy=f"check the disk or store that holds {self._footage.name}",
            )
        videos = f"any of {count} videos below {self._footage.name}" if count > 1 else self.entries[0].path
        raise VideoError(
            f"no clip of {self._config.frames} frames with motion above {self._config.min_motion} was found in "
            f"{videos}",
            remedy="lower clips.min_motion, or give videos in which something moves",
        )

    def near(self, position: int, rng: np.random.Generator) -> int:
        """The position of another clip of the epoch, one that is at hand."""
        return self._order.near(position, rng)

    def _moving_clip(self, entry: Entry, rng: np.random.Generator) -> Clip | None:
        try:
            path = self._footage.path(entry)
            for _ in range(self._config.tries):
                choice = choose_clip(entry, self._config, rng)
                frames = read_clip(path, entry, choice, self._config)
                if clip_motion(frames) >= self._config.min_motion:
                    return Clip(frames, entry.path, choice)
        except VideoError as error:
            check_verdict(error, f"while {entry.path} was read")
            self._count_unreadable(entry, error)
        return None

    def _count_unreadable(self, entry: Entry, error: VideoError) -> None:
        if entry.path not in self.unreadable:
            _log.warning("%s; another video takes its place", error.problem)
        self.unreadable[entry.path] = error.problem
        if len(self.unreadable) > max(1, self._most_unreadable * len(self)):
            raise VideoError(
                f"{len(self.unreadable)} of {len(self)} videos cannot be read any more; the last: {error.problem}",
                remedy=f"check the disk or store that holds {self._footage.name}, then make the index again",
            ) from error


def _resized(box: Box, short_side_px: int) -> tuple[int, int]:
    """Width and height of the picture once its short side is as asked for."""
    scale = short_side_px / min(box.width_px, box.height_px)
    return round(box.width_px * scale), round(box.height_px * scale)


def _cropped(
    image: UInt8[np.ndarray, "height width 3"], box: Box, choice: ClipChoice, config: ClipConfig
) -> UInt8[np.ndarray, "crop crop 3"]:
    """Resize and crop in one: only the pixels of the crop are computed.

    Pillow averages over all pixels that shrink into one, and takes the crop's exact place in the unshrunk picture.
    FFmpeg could resize while it converts colours, which saves a millisecond of thirty, but not for folders of images.
    """
    picture = Image.fromarray(np.ascontiguousarray(image[box.top : box.bottom, box.left : box.right]))
    width, height = _resized(box, choice.short_side_px)
    across, down = picture.width / width, picture.height / height
    right, bottom = choice.left_px + config.crop_px, choice.top_px + config.crop_px
    part = (
        choice.left_px * across,
        choice.top_px * down,
        min(right * across, picture.width),
        min(bottom * down, picture.height),
    )
    crop = np.asarray(picture.resize((config.crop_px, config.crop_px), Image.Resampling.BILINEAR, box=part))
    return crop[:, ::-1] if choice.is_flipped else crop
