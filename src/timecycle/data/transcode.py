"""A video cut into short clips of one size and rate, for training: small to keep, quick to read."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from timecycle.data.cuts import CutFinder, frame_mark, marked_frames
from timecycle.data.examine import examine
from timecycle.data.index import STATIC_BELOW
from timecycle.data.shards import PackedClip
from timecycle.errors import SettingsError, VideoError
from timecycle.shortages import check_verdict
from timecycle.video import Size, VideoWriter, open_video

Picture = UInt8[np.ndarray, "height width 3"]

# One thread and no lookahead trees: the same pictures give the same bytes. A keyframe every second: a few frames from
# the middle cost little.
_LONGEST_SECONDS = 86_400
_CODING = {"crf": "20", "preset": "veryfast", "g": "12", "threads": "1", "x264-params": "mbtree=0"}


@dataclass(frozen=True, kw_only=True)
class ClipForm:
    """What packed clips are like."""

    short_side_px: int = 256  # smaller videos stay as they are
    fps: float = 12.0  # slower videos too
    longest_seconds: float = 10.0
    fewest_frames: int = 8  # of a shot; shorter ones are left out

    def __post_init__(self) -> None:
        if self.short_side_px < 16 or not 0 < self.fps <= 240:
            raise SettingsError(
                f"the short side is {self.short_side_px} px and the rate {self.fps}",
                remedy="give at least 16 px, and 1 to 240 frames a second",
            )
        if not (0 < self.longest_seconds <= _LONGEST_SECONDS):
            raise SettingsError(
                "clips of no length or of more than a day were asked for", remedy="give longest_seconds from 1 to 86400"
            )
        if self.fewest_frames < 2 or self.longest_seconds * self.fps < self.fewest_frames:
            raise SettingsError(
                f"clips have {self.fewest_frames} frames at least and {self.longest_seconds:g} s at most",
                remedy="give at least 2 frames, and seconds that hold as many",
            )


@dataclass(frozen=True, kw_only=True)
class CutClip:
    """A clip in a file of its own."""

    clip: PackedClip
    size: int
    sha256: str
    marks: tuple[int, ...]  # see cuts.SeenClips


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """What became of a video: its clips, and how many shots were left out, and why."""

    clips: tuple[CutClip, ...] = ()
    seconds: float = 0.0  # of the video
    still: int = 0
    short: int = 0
    problem: str = ""  # why the whole video cannot be used


def film_name(number: int) -> str:
    return f"{number:04d}.mp4"


def cut_video(path: Path, source: str, folder: Path, form: ClipForm) -> Cutting:
    """Write the video's clips into the folder; of a video that cannot be read to its end, nothing is used."""
    clips: list[CutClip] = []
    still = short = 0
    seconds = 0.0
    try:
        for shot in _shots(path, form):
            seconds += len(shot.pictures) / shot.fps  # slower videos keep their own rate
            if len(shot.pictures) < form.fewest_frames:
                short += 1
                continue
            film = folder / film_name(len(clips))
            clip = _write(film, source, shot)
            if clip.clip.motion < STATIC_BELOW:
                still += 1
                film.unlink()
            else:
                clips.append(clip)
    except VideoError as error:
        check_verdict(error, f"while {path} was cut")
        return Cutting(problem=error.problem)
    return Cutting(clips=tuple(clips), seconds=round(seconds, 3), still=still, short=short)


@dataclass(frozen=True, eq=False)
class _Shot:
    pictures: list[Picture]
    start_seconds: float
    fps: float


def _shots(path: Path, form: ClipForm) -> Iterator[_Shot]:
    """Every shot, in parts if it is long; one part is in memory at a time."""
    with open_video(path) as video:
        duration = float((video.pts[-1] - video.pts[0]) * video.time_base) if len(video) > 1 else 0.0
        rate = (len(video) - 1) / duration if duration else form.fps
        fps = min(form.fps, rate)
        most = max(form.fewest_frames, round(form.longest_seconds * fps))
        size = _small(video.size, form.short_side_px)
        cuts, taken = CutFinder(), 0
        pictures: list[Picture] = []
        for frame in video:
            seconds = float((frame.pts - video.pts[0]) * video.time_base)
            # The first frame at or after each tick of the slower clock; half a frame of tolerance for uneven times.
            if seconds + 0.5 / rate < taken / fps:
                continue
            taken += 1
            picture = _resized(frame.image, size)
            if cuts.begins(picture) or len(pictures) == most:
                yield _Shot(pictures, (taken - 1 - len(pictures)) / fps, fps)
                pictures = []
            pictures.append(picture)
        if pictures:
            yield _Shot(pictures, (taken - len(pictures)) / fps, fps)


def _write(film: Path, source: str, shot: _Shot) -> CutClip:
    height, width, _ = shot.pictures[0].shape
    tick = 1 / Fraction(shot.fps).limit_denominator(1001)
    with VideoWriter(film, Size(height_px=height, width_px=width), tick, coding=_CODING) as writer:
        for number, picture in enumerate(shot.pictures):
            writer.write(picture, number)
    found = examine(film)
    clip = PackedClip(source=source, start_seconds=round(shot.start_seconds, 3), **vars(found))
    marks = tuple(frame_mark(shot.pictures[index]) for index in marked_frames(len(shot.pictures)))
    content = film.read_bytes()
    return CutClip(clip=clip, size=len(content), sha256=hashlib.sha256(content).hexdigest(), marks=marks)


def _small(size: Size, short_side_px: int) -> tuple[int, int]:
    """Width and height, even, with the short side as asked for or as it was."""
    scale = min(1.0, short_side_px / min(size.height_px, size.width_px))
    width, height = (max(2, round(side * scale / 2) * 2) for side in (size.width_px, size.height_px))
    return width, height


def _resized(image: Picture, size: tuple[int, int]) -> UInt8[np.ndarray, "rows columns 3"]:
    if (image.shape[1], image.shape[0]) == size:
        return image
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR, reducing_gap=3.0))
