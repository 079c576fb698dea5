"""Open a video of any kind; those in memory are defined here."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from timecycle.errors import VideoError
from timecycle.tiff_header import is_stack
from timecycle.video.container import ContainerVideo
from timecycle.video.frame import DEFAULT_MAX_PIXELS, Size
from timecycle.video.image_file import IMAGE_SUFFIXES
from timecycle.video.images import ImagesVideo, images_in_folder, images_matching, images_numbered, is_numbered
from timecycle.video.source import Video
from timecycle.video.tiff import TiffVideo

DEFAULT_FPS = 24.0


def open_video(
    source: str | Path | np.ndarray | Sequence[np.ndarray] | Sequence[Path],
    *,
    fps: float | None = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    allow_damaged: bool = False,
) -> Video:
    """Open a video.

    source: a video file, a TIFF stack, a folder of images, a pattern of image names, one image, a list of images, or
        RGB arrays (frames, height, width, 3) of uint8. A pattern is a glob (*.jpg), or has %04d or #### in place of the
        number.
    fps: the frame rate of images and arrays, which have no times of their own (24 if None; a TIFF stack may have one).
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
    if paths == [path] and is_stack(path):
        given = None if fps is None else _seconds_per_frame(fps)
        return TiffVideo(path, seconds_per_frame=given, default=_seconds_per_frame(None), max_pixels=max_pixels)
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


class ArrayVideo(Video):
    """Frames from one array (time, height, width[, 3]) or a sequence of arrays (height, width[, 3])."""

    def __init__(self, arrays: Sequence[np.ndarray] | np.ndarray, *, time_base: Fraction) -> None:
        super().__init__(name="array", size=_common_size(arrays), time_base=time_base)
        self._arrays = arrays

    @property
    def pts(self) -> Sequence[int]:
        return range(len(self._arrays))

    @property
    def assumed_fps(self) -> float:
        return float(1 / self.time_base)

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"{len(self)} {self.size}".encode())
        for _, image in self._images(0, len(self)):
            digest.update(image.tobytes())
        return digest.hexdigest()

    def _images(self, start: int, stop: int) -> Iterator[tuple[int, UInt8[np.ndarray, "height width 3"]]]:
        for index in range(start, stop):
            yield index, _rgb(self._arrays[index])


def _rgb(array: np.ndarray) -> UInt8[np.ndarray, "height width 3"]:
    """Return a copy in RGB, so that changing a frame does not change the caller's array."""
    if array.ndim == 2:
        return np.repeat(array[:, :, None], 3, axis=2)
    return np.array(array, order="C")


def _common_size(arrays: Sequence[np.ndarray] | np.ndarray) -> Size:
    if len(arrays) == 0:
        raise VideoError("the array holds no frames", remedy="pass at least one frame")
    for index, array in enumerate(arrays):
        _check_frame(index, array)
        if array.shape != arrays[0].shape:
            raise VideoError(
                f"frame {index} has the shape {array.shape} but frame 0 has {arrays[0].shape}",
                remedy="bring all frames to one shape",
            )
    height_px, width_px = arrays[0].shape[:2]
    return Size(height_px, width_px)


def _check_frame(index: int, array: object) -> None:
    if not isinstance(array, np.ndarray) or array.ndim not in {2, 3} or array.shape[2:] not in {(), (3,)}:
        raise VideoError(
            f"frame {index} is {_described(array)}, not an image",
            remedy="pass a video as (time, height, width, 3) or (time, height, width)",
        )
    if array.dtype != np.uint8:
        raise VideoError(
            f"frame {index} has the type {array.dtype}, not uint8",
            remedy="scale the values to 0..255 and convert them with .astype(numpy.uint8)",
        )
    if array.size == 0:
        raise VideoError(
            f"frame {index} is {_described(array)}: it has no pixels", remedy="pass frames with at least one pixel"
        )


def _described(value: object) -> str:
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
