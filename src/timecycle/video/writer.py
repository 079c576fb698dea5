"""Writing H.264 files that keep the times of the video they were made from."""

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import av
import numpy as np
from av.container import OutputContainer
from av.video.frame import PictureType, VideoFrame
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc
from av.video.stream import VideoStream
from jaxtyping import UInt8

from timecycle.errors import OutputError
from timecycle.files import sync_folder
from timecycle.video.frame import Size

# The first that this build of FFmpeg has. Builds without GPL parts lack libx264; all have mpeg4.
_ENCODERS: tuple[tuple[str, dict[str, str]], ...] = (
    ("libx264", {"crf": "18", "preset": "medium", "forced-idr": "1"}),
    ("libopenh264", {"b": "8M"}),
    ("mpeg4", {"qscale": "3"}),
)
_NOMINAL_RATE = 24  # tells the encoder how to spend bits; the times in the file are the ones given


class VideoWriter:
    """An MP4 file (H.264, yuv420p, BT.709) that appears under its name only when it is whole.

    Use it in a `with` block; when the block raises, nothing is left behind. Sizes that are odd are padded
    to even ones by repeating the last row or column, since yuv420p halves the resolution of colour. `coding`
    replaces the options of libx264, where that is the encoder.
    """

    def __init__(
        self, path: str | Path, size: Size, time_base: Fraction, *, coding: Mapping[str, str] | None = None
    ) -> None:
        self._path = Path(path)
        self._size = size
        self._time_base = time_base
        self._coding = coding
        self._pts: list[int] = []
        self._muxed = 0
        # FFmpeg must find the file by name again, to move the index to its front: no open file will do.
        self._temporary = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}.part")

    def __enter__(self) -> "VideoWriter":
        with self._writing():
            self._container: OutputContainer = av.open(
                str(self._temporary), "w", format="mp4", container_options={"movflags": "+faststart"}
            )
            self._stream = _add_stream(self._container, self._size, self._time_base, self._coding)
        return self

    def write(self, image: UInt8[np.ndarray, "height width 3"], pts: int, *, key: bool = False) -> None:
        """Append an RGB image, shown from `pts` (in units of the time base) on.

        Only differences of pts count: the file starts at 0. No frame from a `key` frame on depends on one before it.
        """
        self._check(image, pts)
        self._pts.append(pts)
        with self._writing():
            frame = _yuv(image, index=len(self._pts) - 1)
            if key:
                frame.pict_type = PictureType.I
            self._encode(frame)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._discard()
            return
        with self._writing():
            if not self._pts:
                raise OutputError(f"{self._path} got no frames", remedy="write at least one frame")
            self._encode(None)
            self._container.close()
            with self._temporary.open("rb+") as file:
                os.fsync(file.fileno())
            self._temporary.replace(self._path)
            sync_folder(self._path.parent)

    def _check(self, image: np.ndarray, pts: int) -> None:
        expected = (self._size.height_px, self._size.width_px, 3)
        if image.shape != expected or image.dtype != np.uint8:
            raise OutputError(
                f"{self._path} takes uint8 images of shape {expected}, not {image.dtype} of {image.shape}",
                remedy="write frames of the size the writer was made for",
            )
        if self._pts and pts <= self._pts[-1]:
            raise OutputError(
                f"{self._path} got pts {pts} after pts {self._pts[-1]}",
                remedy="write frames in the order of presentation, each once",
            )

    def _encode(self, frame: VideoFrame | None) -> None:
        """Hand a frame to the encoder (None: there are no more), and what is ready to the file.

        The encoder is told only frame numbers, so it cannot round times to a clock of its own; its packets,
        which without B-frames come in the order of the frames, then get the true times.
        """
        for packet in self._stream.encode(frame):
            index = self._muxed
            packet.pts = packet.dts = self._pts[index] - self._pts[0]
            packet.time_base = self._time_base
            packet.duration = self._gap_before(index)  # of use for the last frame: as long as the one before
            self._container.mux(packet)
            self._muxed += 1

    def _gap_before(self, index: int) -> int:
        if index == 0:
            return max(1, round(1 / (_NOMINAL_RATE * self._time_base)))
        return self._pts[index] - self._pts[index - 1]

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn failures into one line with a remedy, and leave nothing half-written behind."""
        try:
            yield
        except OutputError:
            self._discard()
            raise
        except Exception as error:
            self._discard()
            raise OutputError(
                f"cannot write {self._path}: {getattr(error, 'strerror', None) or error}",
                remedy="choose a folder you may write to, with free space, with -o",
            ) from error
        except BaseException:
            self._discard()
            raise

    def _discard(self) -> None:
        with contextlib.suppress(Exception):  # closing writes too, and may fail for the same reason
            self._container.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)


def _add_stream(
    container: OutputContainer, size: Size, time_base: Fraction, coding: Mapping[str, str] | None
) -> VideoStream:
    name, options = next((name, options) for name, options in _ENCODERS if name in av.codecs_available)
    if coding is not None and name == "libx264":
        options = dict(coding)
    stream = container.add_stream(name, rate=_NOMINAL_RATE, options=options)
    if not isinstance(stream, VideoStream):
        raise OutputError(f"{name} is no video encoder", remedy="install PyAV from its official wheels")
    stream.width, stream.height = _even(size.width_px), _even(size.height_px)
    stream.pix_fmt = "yuv420p"
    stream.max_b_frames = 0
    stream.time_base = time_base
    # Untagged, a player guesses the colours from the height of the picture.
    stream.colorspace = Colorspace.ITU709
    stream.color_primaries = ColorPrimaries.BT709
    stream.color_trc = ColorTrc.BT709
    stream.color_range = ColorRange.MPEG
    return stream


def _yuv(image: UInt8[np.ndarray, "height width 3"], *, index: int) -> VideoFrame:
    height, width, _ = image.shape
    even = np.pad(image, ((0, _even(height) - height), (0, _even(width) - width), (0, 0)), mode="edge")
    frame = VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24").reformat(
        format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG
    )
    frame.colorspace, frame.color_range = Colorspace.ITU709, ColorRange.MPEG
    frame.pts, frame.time_base = index, Fraction(1, _NOMINAL_RATE)
    return frame


def _even(pixels: int) -> int:
    return pixels + pixels % 2
