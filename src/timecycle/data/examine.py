"""One look at a video before training on it: does it decode, where is the picture, does anything move?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from timecycle.errors import VideoError
from timecycle.video import Video, open_video

_PAIRS = 4
_PAIR_SECONDS = 1 / 8  # a fixed time rather than one frame: motion then compares between rates
_LEAST_PX = 16  # a smaller picture has nothing to be found again
_SHRINK = 4  # noise of single pixels is no motion

_BLACK = 24  # grey levels; video black is 0, or 16 where a converter forgot to stretch the range
_SPECKS = 0.05  # the share of brighter pixels a bar may have: coding noise, a corner of a logo
_LEAST_KEPT = 0.5  # of height and width: what would leave less is a dark scene, not a bar

Grey = Float32[np.ndarray, "height width"]


@dataclass(frozen=True)
class Box:
    """A part of a picture in whole pixels; right and bottom are the first outside."""

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
class Findings:
    """What examining a video tells."""

    frames: int
    fps: float
    width_px: int
    height_px: int
    box: Box
    motion: float


def examine(path: Path) -> Findings:
    """Read a few pairs of frames from the first to the last; VideoError if the video cannot be used."""
    with open_video(path) as video:
        return _findings(video)


def _findings(video: Video) -> Findings:
    count = len(video)
    if count < 2:
        raise VideoError(f"{video.name} has a single frame", remedy="nothing moves in it: leave it out")
    if min(video.size.height_px, video.size.width_px) < _LEAST_PX:
        raise VideoError(f"{video.name} is only {video.size}", remedy="leave it out: it has nothing to follow")
    fps = (count - 1) / float((video.pts[-1] - video.pts[0]) * video.time_base)
    pairs = _pairs(count, fps)
    indices = sorted({index for pair in pairs for index in pair})
    greys = {index: grey(video[index].image) for index in indices if index < len(video)}
    if len(video) != count:  # decoding proved wrong what the file says of its length: from now on it is right
        return _findings(video)
    return Findings(
        frames=count,
        fps=round(fps, 6),
        width_px=video.size.width_px,
        height_px=video.size.height_px,
        box=picture_box(list(greys.values())),
        motion=round(float(np.mean([motion(greys[first], greys[second]) for first, second in pairs])), 4),
    )


def picture_box(greys: Sequence[Grey]) -> Box:
    """The picture without the rows and columns at its borders that are black in all of the frames."""
    brightest = np.max(greys, axis=0)
    top, bottom = _span(_is_dark(brightest))
    left, right = _span(_is_dark(brightest[top:bottom].T))
    return Box(left, top, right, bottom)


def motion(first: Grey, second: Grey) -> float:
    """The mean absolute change of brightness, in grey levels."""
    return float(np.abs(_shrunk(first) - _shrunk(second)).mean())


def grey(image: UInt8[np.ndarray, "height width 3"]) -> Grey:
    """Brightness, 0 to 255."""
    return image @ np.array([0.299, 0.587, 0.114], np.float32)


def _pairs(count: int, fps: float) -> list[tuple[int, int]]:
    """Evenly spread from the first frame to the last."""
    gap = min(max(1, round(fps * _PAIR_SECONDS)), count - 1)
    starts = np.linspace(0, count - 1 - gap, _PAIRS).round().astype(int)
    return [(int(start), int(start) + gap) for start in starts]


def _is_dark(brightest: Grey) -> Bool[np.ndarray, " height"]:
    is_dark: np.ndarray = (brightest > _BLACK).mean(axis=1) <= _SPECKS
    return is_dark


def _span(is_dark: Bool[np.ndarray, " length"]) -> tuple[int, int]:
    """First and one past last of what is not dark."""
    bright = np.flatnonzero(~is_dark)
    if len(bright) == 0 or bright[-1] + 1 - bright[0] < _LEAST_KEPT * len(is_dark):
        return 0, len(is_dark)
    return int(bright[0]), int(bright[-1]) + 1


def _shrunk(image: Grey) -> Float32[np.ndarray, "rows columns"]:
    height, width = (side // _SHRINK * _SHRINK for side in image.shape)
    blocks: np.ndarray = image[:height, :width].reshape(height // _SHRINK, _SHRINK, width // _SHRINK, _SHRINK)
    small: np.ndarray = blocks.mean(axis=(1, 3))
    return small
