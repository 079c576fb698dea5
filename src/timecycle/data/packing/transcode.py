"""Cut a video into short clips of one size and frame rate, small to store and fast to read.

Clips end at shot boundaries: at a hard cut, the image and its colours change far more than between the frames before.
Fades are not detected: a clip may contain one. Clips that duplicate an earlier one are recognised by their hashes.
"""

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from timecycle.data.corpus.index import STATIC_BELOW
from timecycle.data.corpus.probe import probe_video
from timecycle.data.packing.shards import PackedClip
from timecycle.errors import SettingsError, VideoError
from timecycle.shortages import raise_if_shortage
from timecycle.video import Size, VideoWriter, open_video

Picture = UInt8[np.ndarray, "height width 3"]

_MAX_SECONDS = 86_400
# One thread and no lookahead trees, so that equal images give equal bytes. A keyframe every second, so that a few
# frames from the middle are cheap to read.
_CODING = {"crf": "20", "preset": "veryfast", "g": "12", "threads": "1", "x264-params": "mbtree=0"}

_SMALL = (32, 18)  # pixels: at this size, motion of small objects does not look like a cut
_BINS = 8  # of every colour channel
_MIN_CHANGE = 16.0  # grey levels
_MIN_COLOUR_CHANGE = 0.25  # share of the pixels that move to other histogram bins
_TIMES_USUAL = 3.0
_USUAL_FRAMES = 8

_HASH_SIZE = 8  # rows and columns of bits
_MAX_BITS = 4  # of 64 that may differ between a frame and a re-encoded copy of it
_HASHES = 4  # frames of a clip


@dataclass(frozen=True, kw_only=True)
class ClipFormat:
    """Size, frame rate and length of packed clips."""

    short_side_px: int = 256  # smaller videos keep their size
    fps: float = 12.0  # slower videos keep their rate
    longest_seconds: float = 10.0  # longer shots are divided
    fewest_frames: int = 8  # shorter shots are left out

    def __post_init__(self) -> None:
        if self.short_side_px < 16 or not 0 < self.fps <= 240:
            raise SettingsError(
                f"the short side is {self.short_side_px} px and the frame rate {self.fps}",
                remedy="give at least 16 px, and 1 to 240 frames a second",
            )
        if not (0 < self.longest_seconds <= _MAX_SECONDS):
            raise SettingsError(
                "longest_seconds is 0 or less, or more than a day", remedy="give longest_seconds from 1 to 86400"
            )
        if self.fewest_frames < 2 or self.longest_seconds * self.fps < self.fewest_frames:
            raise SettingsError(
                f"clips have at least {self.fewest_frames} frames and at most {self.longest_seconds:g} s",
                remedy="give at least 2 frames, and seconds that hold as many",
            )


@dataclass(frozen=True, kw_only=True)
class CutClip:
    """A clip in a file of its own."""

    clip: PackedClip
    size: int
    sha256: str
    hashes: tuple[int, ...]  # see DuplicateDetector


@dataclass(frozen=True, kw_only=True)
class CutVideo:
    """The clips of a video, and how many of its shots were left out."""

    clips: tuple[CutClip, ...] = ()
    seconds: float = 0.0  # of the video
    static: int = 0  # shots left out because nothing moves
    short: int = 0  # shots left out because they are too short
    problem: str = ""  # why the whole video cannot be used


def clip_file_name(number: int) -> str:
    return f"{number:04d}.mp4"


def cut_video(path: Path, source: str, folder: Path, clip_format: ClipFormat) -> CutVideo:
    """Write the video's clips into the folder; a video that cannot be read to its end is not used at all."""
    clips: list[CutClip] = []
    static = short = 0
    seconds = 0.0
    try:
        for shot in _shots(path, clip_format):
            seconds += len(shot.pictures) / shot.fps  # slower videos keep their own rate
            if len(shot.pictures) < clip_format.fewest_frames:
                short += 1
                continue
            clip_path = folder / clip_file_name(len(clips))
            clip = _write(clip_path, source, shot)
            if clip.clip.motion < STATIC_BELOW:
                static += 1
                clip_path.unlink()
            else:
                clips.append(clip)
    except VideoError as error:
        raise_if_shortage(error, f"while {path} was cut")
        return CutVideo(problem=error.problem)
    return CutVideo(clips=tuple(clips), seconds=round(seconds, 3), static=static, short=short)


@dataclass(frozen=True, eq=False)
class _Shot:
    pictures: list[Picture]
    start_seconds: float
    fps: float


def _shots(path: Path, clip_format: ClipFormat) -> Iterator[_Shot]:
    """Yield the shots of a video, long ones in pieces; one piece is in memory at a time."""
    with open_video(path) as video:
        duration = float((video.pts[-1] - video.pts[0]) * video.time_base) if len(video) > 1 else 0.0
        rate = (len(video) - 1) / duration if duration else clip_format.fps
        fps = min(clip_format.fps, rate)
        longest = max(clip_format.fewest_frames, round(clip_format.longest_seconds * fps))
        size = _resized_size(video.size, clip_format.short_side_px)
        detector, taken = ShotDetector(), 0
        pictures: list[Picture] = []
        for frame in video:
            seconds = float((frame.pts - video.pts[0]) * video.time_base)
            # Take the first frame at or after each tick of the lower rate; half a frame of tolerance for uneven times.
            if seconds + 0.5 / rate < taken / fps:
                continue
            taken += 1
            picture = _resized(frame.image, size)
            if detector.starts_shot(picture) or len(pictures) == longest:
                yield _Shot(pictures, (taken - 1 - len(pictures)) / fps, fps)
                pictures = []
            pictures.append(picture)
        if pictures:
            yield _Shot(pictures, (taken - len(pictures)) / fps, fps)


def _write(path: Path, source: str, shot: _Shot) -> CutClip:
    height, width, _ = shot.pictures[0].shape
    tick = 1 / Fraction(shot.fps).limit_denominator(1001)
    with VideoWriter(path, Size(height_px=height, width_px=width), tick, codec_options=_CODING) as writer:
        for number, picture in enumerate(shot.pictures):
            writer.write(picture, number)
    clip = PackedClip(source=source, start_seconds=round(shot.start_seconds, 3), **vars(probe_video(path)))
    hashes = tuple(frame_hash(shot.pictures[index]) for index in hashed_frames(len(shot.pictures)))
    content = path.read_bytes()
    return CutClip(clip=clip, size=len(content), sha256=hashlib.sha256(content).hexdigest(), hashes=hashes)


def _resized_size(size: Size, short_side_px: int) -> tuple[int, int]:
    """Return even width and height after shrinking to a short side; smaller images keep their size."""
    scale = min(1.0, short_side_px / min(size.height_px, size.width_px))
    width, height = (max(2, round(side * scale / 2) * 2) for side in (size.width_px, size.height_px))
    return width, height


def _resized(image: Picture, size: tuple[int, int]) -> UInt8[np.ndarray, "rows columns 3"]:
    if (image.shape[1], image.shape[0]) == size:
        return image
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR, reducing_gap=3.0))


class ShotDetector:
    """Detects, frame by frame, where a new shot begins."""

    def __init__(self) -> None:
        self._last: Float32[np.ndarray, "rows columns 3"] | None = None
        self._changes: deque[float] = deque(maxlen=_USUAL_FRAMES)

    def starts_shot(self, image: UInt8[np.ndarray, "height width 3"]) -> bool:
        """Whether this image, the next of the video, is the first of a new shot."""
        small = np.asarray(Image.fromarray(image).resize(_SMALL, Image.Resampling.BOX), np.float32)
        last, self._last = self._last, small
        if last is None:
            return False
        change = float(np.abs(small - last).mean())
        usual = float(np.median(self._changes)) if self._changes else 0.0
        is_boundary = (
            change > max(_MIN_CHANGE, _TIMES_USUAL * usual) and _colour_change(last, small) > _MIN_COLOUR_CHANGE
        )
        if is_boundary:
            self._changes.clear()
        else:
            self._changes.append(change)
        return is_boundary


def frame_hash(image: UInt8[np.ndarray, "height width 3"]) -> int:
    """Compute a difference hash (dHash): 64 bits that hardly change when an image is re-encoded or resized."""
    grey = Image.fromarray(image).convert("L").resize((_HASH_SIZE + 1, _HASH_SIZE), Image.Resampling.BOX)
    levels = np.asarray(grey, np.int16)
    bits = (levels[:, 1:] > levels[:, :-1]).ravel()
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def hashed_frames(count: int) -> list[int]:
    """Return the indices of the frames whose hashes identify a clip."""
    return [int(index) for index in np.linspace(0, count - 1, _HASHES).round()]


class DuplicateDetector:
    """Remembers the hashes of clips, and recognises a clip that is a re-encoded copy of an earlier one."""

    def __init__(self) -> None:
        self._by_hash: dict[tuple[int, int], list[tuple[int, ...]]] = {}

    def is_new(self, hashes: tuple[int, ...]) -> bool:
        """Whether no earlier clip had nearly these hashes; a new clip is remembered.

        Candidates share at least one hash exactly, so that the lookup does not slow down with the number of clips.
        """
        keys = list(enumerate(hashes))
        candidates = (known for key in keys for known in self._by_hash.get(key, ()))
        if any(_nearly_equal(hashes, known) for known in candidates):
            return False
        for key in keys:
            self._by_hash.setdefault(key, []).append(hashes)
        return True


def _nearly_equal(hashes: tuple[int, ...], known: tuple[int, ...]) -> bool:
    return all((one ^ other).bit_count() <= _MAX_BITS for one, other in zip(hashes, known, strict=True))


def _colour_change(last: Float32[np.ndarray, "rows columns 3"], small: Float32[np.ndarray, "rows columns 3"]) -> float:
    """Return the share of pixels that must change bins to turn one colour histogram into the other."""
    shares = [
        np.histogramdd(picture.reshape(-1, 3), bins=_BINS, range=[(0, 256)] * 3)[0].ravel() / (picture.size / 3)
        for picture in (last, small)
    ]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)
