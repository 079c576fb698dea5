"""TIFF stacks, as of ImageJ and microscopes, through tifffile: one file with all frames."""

import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
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
from timecycle.video.images import Brightness, brightness_frames
from timecycle.video.source import Video

_MAX_FRAMES = 10_000_000
_REMEDY = "save it again as a TIFF stack, or save every frame to a file of its own and pass the folder"
_IMAGE_AXES = "YXS"
_SECONDS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
}


@dataclass(frozen=True)
class Layout:
    """How the images of a file make up frames and channels: the image of a frame and channel, from 0, is at
    frame * frame_step + channel * channel_step.
    """

    size: Size
    frames: int
    channels: int  # images of a frame
    samples: int  # values of a pixel: 3 of an RGB image, 4 with alpha
    frame_step: int
    channel_step: int


@dataclass(frozen=True)
class Stack:
    """A TIFF stack: frames of one size, in order of time."""

    layout: Layout
    dtype: np.dtype[Any]
    seconds_per_frame: float | None
    info: str  # free text of ImageJ
    _file: Any  # tifffile's handle of the file
    _read: Callable[[int], np.ndarray]  # one image of the open file
    _lock: threading.Lock

    @property
    def frames(self) -> int:
        return self.layout.frames

    @property
    def size(self) -> Size:
        return self.layout.size

    @property
    def channels(self) -> int:
        """The number of channels or colours, 1 for grey."""
        return max(self.layout.channels, self.layout.samples)

    def __getitem__(self, index: int) -> np.ndarray:
        """Return one frame: (height, width), or (height, width, channels)."""
        layout = self.layout
        with self._lock:  # all threads share the position in the file
            if self._file.closed:
                self._file.open()
            first = index * layout.frame_step
            if layout.channels == 1:
                return self._page(first)
            return np.stack([self._page(first + i * layout.channel_step) for i in range(layout.channels)], axis=-1)

    def close(self) -> None:
        """Close the file; the next read opens it again."""
        with self._lock:
            self._file.close()

    def _page(self, number: int) -> np.ndarray:
        image = self._read(number)
        image = image.reshape(self.size.shape) if image.size == self.size.pixels else image
        if image.shape != (*self.size.shape, *((self.layout.samples,) if self.layout.samples > 1 else ())):
            raise ValueError(f"image {number} has the shape {image.shape}")
        return image


def open_stack(path: Path, *, max_pixels: int) -> Stack:
    """Open a TIFF stack; the file stays open until the stack is closed."""
    check_regular(path)
    tifffile = import_extra("tifffile", extra="tiff")
    with ExitStack() as on_failure:
        try:
            file = on_failure.enter_context(tifffile.TiffFile(path))
            series = file.series[0]
            layout = _layout(path, series.axes, series.shape)
            if layout.size.pixels > max_pixels:
                raise VideoError(f"{path} has more than {max_pixels} pixels", remedy="shrink the images")
            if series.dtype is None or series.dtype.kind not in "buif":
                raise VideoError(f"{path} has values of {series.dtype}", remedy="save whole or floating-point numbers")
            read = _reader(path, file, layout)
            metadata = file.imagej_metadata or {}
            seconds = seconds_per_frame(metadata, file.ome_metadata if file.is_ome else None)
            info = str(metadata.get("Info", ""))
            stack = Stack(layout, np.dtype(series.dtype), seconds, info, file.filehandle, read, threading.Lock())
        except VideoError:
            raise
        except Exception as error:  # damaged files raise nearly anything
            raise VideoError(f"{path} cannot be read as a TIFF stack: {str(error)[:200]}", remedy=_REMEDY) from error
        on_failure.pop_all()
        return stack


def _reader(path: Path, file: Any, layout: Layout) -> Callable[[int], np.ndarray]:
    """Return what reads one image: a part of stacks that lie in the file in one piece, otherwise a page to decode."""
    series, images = file.series[0], layout.frames * layout.channels
    if series.dataoffset is None:
        pages = series.pages
        if len(pages) != images:
            raise VideoError(f"{path} has {len(pages)} images where {images} were announced", remedy=_REMEDY)
        return lambda number: np.asarray(pages[number].asarray())
    dtype = series.dtype.newbyteorder(file.byteorder)
    shape = (*layout.size.shape, layout.samples) if layout.samples > 1 else layout.size.shape
    count = math.prod(shape)
    if series.dataoffset + images * count * dtype.itemsize > file.filehandle.size:
        raise VideoError(f"{path} is shorter than its {images} images", remedy=_REMEDY)

    def read(number: int) -> np.ndarray:
        offset = series.dataoffset + number * count * dtype.itemsize
        values: np.ndarray = file.filehandle.read_array(dtype, count, offset)
        return values.reshape(shape)

    return read


def _layout(path: Path, axes: str, shape: Sequence[int]) -> Layout:
    """Find time and channels among the axes; refuse stacks of which one axis more would have to be chosen from."""
    kept = [(axis, length) for axis, length in zip(axes, shape, strict=True) if length > 1 or axis in "YX"]
    order = "".join(axis for axis, _ in kept)
    times = [(axis, length) for axis, length in kept if axis not in f"{_IMAGE_AXES}C"]
    if len({axis for axis, _ in times}) < len(times):
        described = " x ".join(str(length) for _, length in kept)
        raise VideoError(
            f"{path} does not say which of its axes are times and channels: {described}",
            remedy="save it from ImageJ, or with tifffile.imwrite(..., imagej=True, metadata={'axes': 'TCYX'})",
        )
    if len(times) > 1:
        described = ", ".join(f"{length} along {axis}" for axis, length in times)
        raise VideoError(
            f"{path} has images along several axes: {described}",
            remedy="save one plane, or a projection along Z, for every time (ImageJ: Image > Stacks > Z Project...)",
        )
    lengths = dict(kept)
    frames, channels, samples = (times[0][1] if times else 1), lengths.get("C", 1), lengths.get("S", 1)
    _check_channels(path, channels, samples)
    if order.lstrip("C" + "".join(axis for axis, _ in times)) not in ("YX", "YXS"):
        raise VideoError(f"{path} has its axes in the order {axes}", remedy="save it in the order TCYX or TYXS")
    if frames > _MAX_FRAMES:
        raise VideoError(f"{path} announces {frames} frames", remedy=_REMEDY)
    channels_first = channels > 1 and order.startswith("C")
    steps = (1, frames) if channels_first else (channels, 1)
    return Layout(Size(lengths["Y"], lengths["X"]), frames, channels, samples, *steps)


def _check_channels(path: Path, channels: int, samples: int) -> None:
    """Refuse more channels than there are colours."""
    if channels > 1 and samples > 1:
        raise VideoError(
            f"{path} has {channels} channels of {samples} colours each", remedy="save one channel, or grey channels"
        )
    if channels > 3 or samples > 4:
        raise VideoError(
            f"{path} has {max(channels, samples)} channels",
            remedy="save at most three channels (ImageJ: Image > Duplicate..., Channels 1-3); "
            "if they are times, Image > Hyperstacks > Re-order Hyperstack...",
        )


def seconds_per_frame(imagej: Mapping[str, Any], ome_xml: str | None) -> float | None:
    """Return the seconds between frames that ImageJ or OME noted; None without them, or in an unknown unit."""
    interval, fps = imagej.get("finterval"), imagej.get("fps")
    unit = _SECONDS.get(str(imagej.get("tunit", "sec")).lower())
    noted: list[Any] = [interval * unit if isinstance(interval, int | float) and unit else None]
    noted += [1 / fps if isinstance(fps, int | float) and fps and interval is None else None]
    if ome_xml and (increment := re.search(r'\bTimeIncrement="([0-9.eE+-]{1,40})"', ome_xml)):
        named = re.search(r'\bTimeIncrementUnit="([^"]{1,20})"', ome_xml)
        unit = _SECONDS.get(named[1] if named else "s")
        with suppress(ValueError):
            noted += [float(increment[1]) * unit if unit else None]
    return next((float(value) for value in noted if value and math.isfinite(value) and value > 0), None)


class TiffVideo(Video):
    """Frames of a TIFF stack; values of more than 8 bits are scaled by percentiles of the whole stack."""

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

    def close(self) -> None:
        self._stack.close()

    def _images(self, start: int, stop: int) -> Iterator[tuple[int, UInt8[np.ndarray, "height width 3"]]]:
        for index in range(start, stop):
            yield index, self._rgb(self._read(index))

    def values(self, index: int) -> np.ndarray | None:
        if self._stack.dtype == np.uint8 and self._stack.channels != 2:
            return None  # the image has them all
        return self._read(index)[..., :3] if self._stack.channels > 1 else self._read(index)

    def _read(self, index: int) -> np.ndarray:
        try:
            return self._stack[index]
        except Exception as error:  # damaged files raise nearly anything; some compressions need imagecodecs
            raise VideoError(
                f"frame {index} of {self._path} cannot be decoded: {str(error)[:200]}",
                remedy="pip install imagecodecs for more compressions, or save the stack again",
            ) from error

    @cached_property
    def _brightness(self) -> Sequence[Brightness]:
        """One scale for the whole stack, so that frames do not depend on which others were read.

        Channels have scales of their own: they are different dyes, and one may be much brighter. Colours share one.
        """
        read = np.stack([self._read(index)[::2, ::2] for index in brightness_frames(len(self))])
        if self._stack.layout.channels == 1:
            return [Brightness.of(read[..., :3] if read.ndim == 4 else read)]
        return [Brightness.of(read[..., channel]) for channel in range(read.shape[-1])]

    def _rgb(self, image: np.ndarray) -> UInt8[np.ndarray, "height width 3"]:
        image = image[..., :3] if image.ndim == 3 else image[..., None]
        if image.dtype == bool:
            image = image.astype(np.uint8) * 255
        if image.dtype != np.uint8:
            scales = self._brightness
            channels = [image] if len(scales) == 1 else np.split(image, len(scales), axis=2)
            parts = [scale.to_eight_bits(part) for scale, part in zip(scales, channels, strict=True)]
            image = np.concatenate(parts, axis=2)
        if image.shape[2] == 1:
            return np.repeat(image, 3, axis=2)
        missing = 3 - image.shape[2]
        return np.ascontiguousarray(np.pad(image, ((0, 0), (0, 0), (0, missing))))
