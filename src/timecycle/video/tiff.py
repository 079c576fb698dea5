"""TIFF stacks, as of ImageJ and microscopes, through tifffile: one file with all frames."""

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from timecycle.errors import VideoError
from timecycle.extras import import_extra
from timecycle.files import sha256
from timecycle.video.completeness import check_regular
from timecycle.video.frame import Size
from timecycle.video.images import Brightness
from timecycle.video.source import Video

TIFF_SUFFIXES = (".tif", ".tiff")

_MAX_FRAMES = 10_000_000
_BRIGHTNESS_FRAMES = 16  # spread over the stack, from which the scale of brightness is taken
_REMEDY = "save it again as a TIFF stack, or save every frame to a file of its own and pass the folder"
_IMAGE_AXES = "YXS"


def is_stack(path: Path) -> bool:
    """Return whether a TIFF holds more than one image; False for damaged files, which readers explain better."""
    try:
        with path.open("rb") as file:
            order = {b"II": "little", b"MM": "big"}.get(file.read(2))
            if order not in ("little", "big"):
                return False

            def number(length: int) -> int:
                return int.from_bytes(file.read(length), "little" if order == "little" else "big")

            big = number(2) == 43
            file.seek(8 if big else 4)
            file.seek(number(8 if big else 4))
            entries = number(8 if big else 2)
            entry_bytes = 20 if big else 12
            start = file.tell()
            file.seek(start + entries * entry_bytes)
            if number(8 if big else 4):
                return True
            # ImageJ may write one directory for all images of a stack, and their number in the description.
            file.seek(0)
            head = file.read(1 << 16)
            return b"ImageJ=" in head and b"images=" in head and b"images=1\n" not in head
    except (OSError, OverflowError):
        return False


@dataclass(frozen=True)
class Stack:
    """An open TIFF stack: frames of one size, in order of time."""

    frames: int
    size: Size
    dtype: np.dtype[Any]
    channels: int  # 1: grey
    seconds_per_frame: float | None
    info: str  # free text of ImageJ
    _pages: Any  # pages, or an array in the file
    _samples: bool  # colours are interleaved in a page
    _lock: threading.Lock

    def __getitem__(self, index: int) -> np.ndarray:
        """Return one frame: (height, width), or (height, width, channels)."""
        with self._lock:  # all threads share the position in the file
            if self._samples or self.channels == 1:
                return self._page(index)
            first = index * self.channels
            return np.stack([self._page(first + i) for i in range(self.channels)], axis=-1)

    def _page(self, number: int) -> np.ndarray:
        page = self._pages[number]
        image = np.asarray(page if isinstance(page, np.ndarray) else page.asarray())
        image = image.reshape(self.size.shape) if image.size == self.size.pixels else image
        if image.shape != (*self.size.shape, *((self.channels,) if self._samples else ())):
            raise ValueError(f"image {number} has the shape {image.shape}")
        return image


def open_stack(path: Path, *, max_pixels: int) -> Stack:
    """Open a TIFF stack; the file stays open while the stack is used."""
    check_regular(path)
    tifffile = import_extra("tifffile", extra="tiff")
    try:
        file = tifffile.TiffFile(path)
        series = file.series[0]
        axes, shape = series.axes, series.shape
        kept = {axis: length for axis, length in zip(axes, shape, strict=True) if length > 1 or axis in "YX"}
        height, width = kept["Y"], kept["X"]
        samples = kept.get("S", 1)
        if height * width > max_pixels:
            raise VideoError(f"{path} has more than {max_pixels} pixels", remedy="shrink the images")
        channels, frames = kept.get("C", 1), _frames(path, kept)
        _check_order(path, axes, kept)
        # One array for stacks that lie in the file in one piece, otherwise pages, each decoded when it is read.
        if series.dataoffset is not None:
            dtype = series.dtype.newbyteorder(file.byteorder)
            image = (height, width, samples) if samples > 1 else (height, width)
            pages: Any = np.memmap(path, dtype, "r", series.dataoffset, (frames * channels, *image))
        else:
            pages = series.pages
        if len(pages) != frames * channels:
            raise VideoError(f"{path} has {len(pages)} images where {frames * channels} were announced", remedy=_REMEDY)
        metadata = file.imagej_metadata or {}
        return Stack(
            frames,
            Size(height, width),
            np.dtype(series.dtype),
            samples if samples > 1 else channels,
            _interval(metadata),
            str(metadata.get("Info", "")),
            pages,
            samples > 1,
            threading.Lock(),
        )
    except VideoError:
        raise
    except Exception as error:  # damaged files raise nearly anything
        raise VideoError(f"{path} cannot be read as a TIFF stack: {str(error)[:200]}", remedy=_REMEDY) from error


def _frames(path: Path, kept: dict[str, int]) -> int:
    """Return the number of frames: along time or, without it, along the only other axis."""
    others = {axis: length for axis, length in kept.items() if axis not in f"{_IMAGE_AXES}C"}
    if len(others) > 1:
        described = ", ".join(f"{length} along {axis}" for axis, length in others.items())
        raise VideoError(
            f"{path} has images along several axes: {described}",
            remedy="save one plane, or a projection along Z, for every time",
        )
    frames = next(iter(others.values()), 1)
    if frames > _MAX_FRAMES:
        raise VideoError(f"{path} announces {frames} frames", remedy=_REMEDY)
    return frames


def _check_order(path: Path, axes: str, kept: dict[str, int]) -> None:
    """Refuse channels beyond three, and layouts in which a frame is not a run of whole images."""
    channels = max(kept.get("C", 1), kept.get("S", 1))
    if channels > (4 if "S" in kept else 3):
        raise VideoError(f"{path} has {channels} channels", remedy="save at most three channels, or one of them")
    order = [axis for axis in axes if axis in kept]
    expected = [axis for axis in order if axis not in f"{_IMAGE_AXES}C"] + [axis for axis in "CYXS" if axis in kept]
    if order != expected:
        raise VideoError(f"{path} has its axes in the order {axes}", remedy="save it in the order TCYX or TYXS")


def _interval(metadata: dict[str, Any]) -> float | None:
    """Return the seconds between frames that ImageJ noted."""
    interval, fps = metadata.get("finterval"), metadata.get("fps")
    for value in (interval, 1 / fps if isinstance(fps, int | float) and fps else None):
        if isinstance(value, int | float) and math.isfinite(value) and value > 0:
            return float(value)
    return None


class TiffVideo(Video):
    """Frames of a TIFF stack; grey values of more than 8 bits are scaled by percentiles of the whole stack."""

    def __init__(self, path: Path, *, seconds_per_frame: Fraction | None, default: Fraction, max_pixels: int) -> None:
        self._stack = open_stack(path, max_pixels=max_pixels)
        own = self._stack.seconds_per_frame
        own_base = Fraction(own).limit_denominator(1_000_000) if own else None
        super().__init__(name=str(path), size=self._stack.size, time_base=seconds_per_frame or own_base or default)
        self._has_times = seconds_per_frame is None and bool(own_base)
        self._path = path

    @property
    def pts(self) -> Sequence[int]:
        return range(self._stack.frames)

    @property
    def assumed_fps(self) -> float | None:
        return None if self._has_times else float(1 / self.time_base)

    def fingerprint(self) -> str:
        return sha256([self._path])

    def _images(self, start: int, stop: int) -> Iterator[tuple[int, UInt8[np.ndarray, "height width 3"]]]:
        for index in range(start, stop):
            yield index, self._rgb(self._read(index))

    def _read(self, index: int) -> np.ndarray:
        try:
            return self._stack[index]
        except Exception as error:  # damaged files raise nearly anything; some compressions need imagecodecs
            raise VideoError(
                f"frame {index} of {self._path} cannot be decoded: {str(error)[:200]}",
                remedy="pip install imagecodecs for more compressions, or save the stack again",
            ) from error

    @cached_property
    def _brightness(self) -> Brightness:
        """One scale for the whole stack, so that frames do not depend on which others were read."""
        wanted = sorted({round(i) for i in np.linspace(0, len(self) - 1, min(len(self), _BRIGHTNESS_FRAMES))})
        return Brightness.of(np.stack([self._read(index)[::2, ::2] for index in wanted]))

    def _rgb(self, image: np.ndarray) -> UInt8[np.ndarray, "height width 3"]:
        image = image[..., :3] if image.ndim == 3 else image[..., None]
        if image.dtype == bool:
            image = image.astype(np.uint8) * 255
        scaled = image if image.dtype == np.uint8 else self._brightness.to_eight_bits(image)
        if scaled.shape[2] == 1:
            return np.repeat(scaled, 3, axis=2)
        missing = 3 - scaled.shape[2]
        return np.ascontiguousarray(np.pad(scaled, ((0, 0), (0, 0), (0, missing))))
