"""Probe a video before training on it: does it decode, where is the image, does anything move?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from timecycle.errors import VideoError
from timecycle.video import Video, open_video

_PAIRS = 4
_PAIR_SECONDS = 1 / 8  # a fixed time rather than one frame, so that motion compares between frame rates
_MIN_PX = 16  # a smaller image has too little to match
_SHRINK = 4  # so that noise of single pixels does not count as motion

_BLACK = 24  # grey levels; video black is 0, or 16 where a converter did not expand the range
_SPECKS = 0.05  # share of brighter pixels that a bar may have: coding noise, a corner of a logo
_MIN_KEPT = 0.5  # of height and width: less than this is a dark scene, not an image between bars

Grey = Float32[np.ndarray, "height width"]


@dataclass(frozen=True)
class Box:
    """A rectangle in whole pixels; right and bottom are exclusive."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def width_px(self) -> int:
        return self.right - self.left

    @property
    def height_px(self) -> int:
        return self.bottom - self.top


@dataclass(frozen=True, kw_only=True)
class VideoProbe:
    """The result of probing a video."""

    frames: int
    fps: float
    width_px: int
    height_px: int
    box: Box
    motion: float


def probe_video(path: Path) -> VideoProbe:
    """Read a few pairs of frames from first to last; raise VideoError if the video cannot be used."""
    with open_video(path) as video:
        return _probe(video)


def _probe(video: Video) -> VideoProbe:
    count = len(video)
    if count < 2:
        raise VideoError(f"{video.name} has a single frame", remedy="nothing moves in it: leave it out")
    if min(video.size.height_px, video.size.width_px) < _MIN_PX:
        raise VideoError(f"{video.name} is only {video.size}", remedy="leave it out: it is too small to track anything")
    fps = (count - 1) / float((video.pts[-1] - video.pts[0]) * video.time_base)
    pairs = _pairs(count, fps)
    indices = sorted({index for pair in pairs for index in pair})
    greys = {index: grey(video[index].image) for index in indices if index < len(video)}
    if len(video) != count:  # the header was wrong, and decoding has corrected the length
        return _probe(video)
    return VideoProbe(
        frames=count,
        fps=round(fps, 6),
        width_px=video.size.width_px,
        height_px=video.size.height_px,
        box=image_box(list(greys.values())),
        motion=round(float(np.mean([motion(greys[first], greys[second]) for first, second in pairs])), 4),
    )


def image_box(greys: Sequence[Grey]) -> Box:
    """Return the box of the image without the border rows and columns that are black in all frames."""
    brightest = np.max(greys, axis=0)
    top, bottom = _span(_is_dark(brightest))
    left, right = _span(_is_dark(brightest[top:bottom].T))
    return Box(left, top, right, bottom)


def motion(first: Grey, second: Grey) -> float:
    """Return the mean absolute change of brightness, in grey levels."""
    return float(np.abs(_shrunk(first) - _shrunk(second)).mean())


def grey(image: UInt8[np.ndarray, "height width 3"]) -> Grey:
    """Return the brightness of every pixel, 0 to 255."""
    return image @ np.array([0.299, 0.587, 0.114], np.float32)


def _pairs(count: int, fps: float) -> list[tuple[int, int]]:
    """Return pairs of frame indices, evenly spread from the first frame to the last."""
    gap = min(max(1, round(fps * _PAIR_SECONDS)), count - 1)
    starts = np.linspace(0, count - 1 - gap, _PAIRS).round().astype(int)
    return [(int(start), int(start) + gap) for start in starts]


def _is_dark(brightest: Grey) -> Bool[np.ndarray, " height"]:
    is_dark: np.ndarray = (brightest > _BLACK).mean(axis=1) <= _SPECKS
    return is_dark


def _span(is_dark: Bool[np.ndarray, " length"]) -> tuple[int, int]:
    """Return the first and one past the last position that is not dark."""
    bright = np.flatnonzero(~is_dark)
    if len(bright) == 0 or bright[-1] + 1 - bright[0] < _MIN_KEPT * len(is_dark):
        return 0, len(is_dark)
    return int(bright[0]), int(bright[-1]) + 1


def _shrunk(image: Grey) -> Float32[np.ndarray, "rows columns"]:
    height, width = (side // _SHRINK * _SHRINK for side in image.shape)
    blocks: np.ndarray = image[:height, :width].reshape(height // _SHRINK, _SHRINK, width // _SHRINK, _SHRINK)
    small: np.ndarray = blocks.mean(axis=(1, 3))
    return small
