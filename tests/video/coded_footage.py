"""Footage with the index of every frame coded in bars that survive lossy compression."""

import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

BITS = 8
SECOND = Fraction(1, 24)


def coded_image(index: int, *, height: int = 48, width: int = 64) -> np.ndarray:
    """Return an image with its index in black and white bars above and a moving texture below."""
    columns = np.arange(width) * BITS // width
    bars = np.where((index >> columns) & 1, 230, 20)
    y, x = np.mgrid[:height, :width]
    texture = 128 + 60 * np.sin(x / 5 + index) + 30 * np.cos(y / 3 - index)
    grey = np.where(y < height // 2, bars, texture).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


def code_of(image: np.ndarray) -> int:
    """Return the index coded in an upright image."""
    height, width, _ = image.shape
    bars = image[: height // 2].mean(axis=(0, 2))
    columns = np.arange(width) * BITS // width
    return sum(int(bars[columns == bit].mean() > 125) << bit for bit in range(BITS))


def write_footage(
    path: Path,
    codec: str = "libx264",
    *,
    count: int = 30,
    pix_fmt: str = "yuv420p",
    options: dict[str, str] | None = None,
    movflags: str = "",
    pts: Sequence[int] | None = None,
    time_base: Fraction = SECOND,
    gop: int = 10,
    height: int = 48,
    width: int = 64,
    format: str | None = None,
) -> Path:
    """Write `count` coded frames to `path` and return it."""
    muxing = {"movflags": movflags} if movflags else {}
    with av.open(str(path), "w", format=format, container_options=muxing) as container:
        stream = container.add_stream(codec, rate=24, options=options or {})
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = width, height, pix_fmt, gop
        stream.time_base = stream.codec_context.time_base = time_base
        for index in range(count):
            image = coded_image(index, height=height, width=width)
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = pts[index] if pts else index, time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def set_display_matrix(path: Path, matrix: Sequence[int]) -> None:
    """Write a, b, c, d of the display matrix into an MP4's track header."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 4 + 40
    a, b, c, d = (value << 16 for value in matrix)
    struct.pack_into(">9i", data, at, a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(data)


def set_edit(path: Path, *, skip: int, last: int) -> None:
    """Write an edit list into an MP4 of 24 frames per second that shows the frames `skip` to before `last`."""
    data = bytearray(path.read_bytes())
    at = data.index(b"elst") + 4 + 8
    _, media_time = struct.unpack_from(">Ii", data, at)
    length = (last - skip) * 1000 // 24
    struct.pack_into(">Ii", data, at, length, media_time + skip * 512)
    struct.pack_into(">I", data, data.index(b"tkhd") + 4 + 20, length)  # as in the track's header
    path.write_bytes(data)
