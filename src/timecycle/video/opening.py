"""Open a video of any kind."""

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from timecycle.errors import VideoError
from timecycle.video.arrays import ArrayVideo
from timecycle.video.container import ContainerVideo
from timecycle.video.frame import DEFAULT_MAX_PIXELS
from timecycle.video.image_file import IMAGE_SUFFIXES
from timecycle.video.images import ImagesVideo, images_in_folder, images_matching, images_numbered, is_numbered
from timecycle.video.source import Video

DEFAULT_FPS = 24.0


def open_video(
    source: str | Path | np.ndarray | Sequence[np.ndarray] | Sequence[Path],
    *,
    fps: float | None = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    allow_damaged: bool = False,
) -> Video:
    """Open a video.

    source: a video file, a folder of images, a pattern of image names, one image, a list of images, or RGB arrays
        (frames, height, width, 3) of uint8. A pattern is a glob (*.jpg), or has %04d or #### in place of the number.
    fps: the frame rate of images and arrays, which have no times of their own (24 if None).
    max_pixels: frames with more pixels are refused before memory is allocated for them.
    allow_damaged: a damaged video file is refused; with this it has the frames that can be decoded, and `Video.damage`
        describes the damage.
    """
    if not isinstance(source, str | Path):
        listed = [item for item in source if isinstance(item, Path)]
        if listed and len(listed) == len(source):
            name = f"{listed[0]} and the images after it"
            return ImagesVideo(name, listed, time_base=_seconds_per_frame(fps), max_pixels=max_pixels)
        return ArrayVideo(source, time_base=_seconds_per_frame(fps))  # type: ignore[arg-type]
    if str(source) == "":
        raise VideoError("no video was named: its path is empty", remedy="pass the path of a file or folder")
    path = Path(source)
    try:
        paths = _image_paths(path)
    except OSError as error:  # a name that is too long, a folder without permission
        name = f"{str(path)[:80]}..." if len(str(path)) > 200 else str(path)
        raise VideoError(f"{name} cannot be read: {error.strerror}", remedy="check the path") from error
    if paths is not None:
        return ImagesVideo(str(path), paths, time_base=_seconds_per_frame(fps), max_pixels=max_pixels)
    if fps is not None:
        raise VideoError(f"fps={fps:g} was given for {path}, which has its own times", remedy="leave fps out")
    return ContainerVideo(path, max_pixels=max_pixels, allow_damaged=allow_damaged)


def _image_paths(path: Path) -> Sequence[Path] | None:
    """Return the images that `path` stands for, in order; None if it is a video file."""
    if path.is_dir():
        return images_in_folder(path)
    if path.exists():
        return [path] if path.suffix.lower() in IMAGE_SUFFIXES else None
    if is_numbered(path):
        return images_numbered(path)
    if any(sign in path.name for sign in "*?["):
        return images_matching(path)
    raise VideoError(f"there is no file or folder {path}", remedy="check the path for typing errors")


def _seconds_per_frame(fps: float | None) -> Fraction:
    fps = DEFAULT_FPS if fps is None else fps
    if not (math.isfinite(fps) and fps > 0):
        raise VideoError(f"fps={fps} is not a frame rate", remedy="give frames per second, such as fps=24")
    # A denominator of 1001 keeps the television rates (24000/1001, 30000/1001) exact and time bases small.
    rate = Fraction(fps).limit_denominator(1001)
    if rate == 0:
        raise VideoError(f"fps={fps} is too low", remedy="give at least one frame in 1000 s")
    return 1 / rate
