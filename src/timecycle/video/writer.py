"""Write H.264 files with exact frame times, and replace frames without encoding the others again.

In files of `VideoWriter` no frame depends on a later one. So a sequence of coded frames can end anywhere, and another
can start at any keyframe.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import av
import numpy as np
from av.container import InputContainer, OutputContainer
from av.video.frame import PictureType, VideoFrame
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc
from av.video.stream import VideoStream
from jaxtyping import UInt8

from timecycle.errors import OutputError
from timecycle.files import sync_folder
from timecycle.video.decoder import VideoPacket
from timecycle.video.frame import Size

# The first one that this build of FFmpeg has is used. Builds without GPL parts lack libx264; all have mpeg4.
_ENCODERS: tuple[tuple[str, dict[str, str]], ...] = (
    ("libx264", {"crf": "18", "preset": "medium", "forced-idr": "1"}),
    ("libopenh264", {"b": "8M"}),
    ("mpeg4", {"qscale": "3"}),
)
_NOMINAL_RATE = 24  # for the encoder's rate control only; the file has the times passed to `write`

_Codec = tuple[str, int, int, bytes | None]


class VideoWriter:
    """Writes an MP4 file (H.264, yuv420p, BT.709) that appears under its name only when it is complete.

    Use it in a `with` block; if the block raises, no file is left. Odd sizes are padded to even ones by repeating the
    last row or column, since yuv420p halves the resolution of colour. `codec_options` replaces the options of libx264,
    if that is the encoder.
    """

    def __init__(
        self, path: str | Path, size: Size, time_base: Fraction, *, codec_options: Mapping[str, str] | None = None
    ) -> None:
        self._path = Path(path)
        self._size = size
        self._time_base = time_base
        self._codec_options = codec_options
        self._pts: list[int] = []
        self._muxed = 0
        # A name rather than an open file: FFmpeg opens it a second time to move the index to its front.
        self._temporary = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}.part")

    def __enter__(self) -> "VideoWriter":
        with self._writing():
            self._container: OutputContainer = av.open(
                str(self._temporary), "w", format="mp4", container_options={"movflags": "+faststart"}
            )
            self._stream = _add_stream(self._container, self._size, self._time_base, self._codec_options)
        return self

    def write(self, image: UInt8[np.ndarray, "height width 3"], pts: int, *, key: bool = False) -> None:
        """Append an RGB image with its presentation time `pts`, in units of the time base.

        Only differences of pts matter: the file starts at 0. With `key` the image becomes a keyframe, so that no frame
        from it on depends on an earlier one.
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
        expected = (*self._size.shape, 3)
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
        """Encode a frame (None flushes the encoder) and write the finished packets.

        The encoder only sees frame numbers, so that it cannot round times; its packets, which come in the order of the
        frames because there are no B-frames, then get the exact times.
        """
        for packet in self._stream.encode(frame):
            index = self._muxed
            packet.pts = packet.dts = self._pts[index] - self._pts[0]
            packet.time_base = self._time_base
            packet.duration = self._gap_before(index)  # matters for the last frame: as long as the one before
            self._container.mux(packet)
            self._muxed += 1

    def _gap_before(self, index: int) -> int:
        if index == 0:
            return max(1, round(1 / (_NOMINAL_RATE * self._time_base)))
        return self._pts[index] - self._pts[index - 1]

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise failures as OutputError, and remove the unfinished file."""
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
        with contextlib.suppress(Exception):  # closing also writes, and may fail for the same reason
            self._container.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)


def _add_stream(
    container: OutputContainer, size: Size, time_base: Fraction, codec_options: Mapping[str, str] | None
) -> VideoStream:
    name, options = next((name, options) for name, options in _ENCODERS if name in av.codecs_available)
    if codec_options is not None and name == "libx264":
        options = dict(codec_options)
    stream = container.add_stream(name, rate=_NOMINAL_RATE, options=options)
    if not isinstance(stream, VideoStream):
        raise OutputError(f"{name} is no video encoder", remedy="install PyAV from its official wheels")
    stream.width, stream.height = _even(size.width_px), _even(size.height_px)
    stream.pix_fmt = "yuv420p"
    stream.max_b_frames = 0
    stream.time_base = time_base
    # Without tags, players guess the colour matrix from the height of the video.
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


def keyframe_flags(path: Path) -> list[bool]:
    """Return for every frame of a video file whether it is a keyframe; empty if the file cannot be read."""
    try:
        with av.open(str(path)) as file:
            return [packet.is_keyframe for packet in _packets(file)]
    except (av.FFmpegError, OSError, ValueError, IndexError):
        return []


def splice(whole: Path, segments: Mapping[int, Path], path: Path) -> bool:
    """Write the video `whole` to `path` with some frames replaced; `segments` maps first frames to replacement videos.

    Times stay those of `whole`. Return False, and leave no file, if a segment is encoded differently or a file cannot
    be read.
    """
    try:
        with ExitStack() as stack:
            source = stack.enter_context(av.open(str(whole)))
            replacements = {first: stack.enter_context(av.open(str(file))) for first, file in segments.items()}
            fits = all(_codec(file) == _codec(source) for file in replacements.values())
            if fits:
                _write_spliced(source, replacements, path)
    except (av.FFmpegError, OSError, ValueError, IndexError):
        fits = False
    if not fits:
        path.unlink(missing_ok=True)
    return fits


def _write_spliced(source: InputContainer, replacements: Mapping[int, InputContainer], path: Path) -> None:
    options = {"movflags": "+faststart"}
    with av.open(str(path), "w", format="mp4", container_options=options) as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        replacement: Iterator[VideoPacket] = iter(())
        for index, old in enumerate(_packets(source)):
            if index in replacements:
                replacement = _packets(replacements[index])
            packet = next(replacement, None)
            if packet is None:
                packet = old
            else:
                packet.time_base = old.time_base
                packet.pts, packet.dts, packet.duration = old.pts, old.dts, old.duration
            packet.stream = stream
            target.mux(packet)
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _packets(file: InputContainer) -> Iterator[VideoPacket]:
    """Return the coded frames of a file in order, without the empty packet at the end."""
    return (packet for packet in file.demux(file.streams.video[0]) if packet.size)


def _codec(file: InputContainer) -> _Codec:
    """Return the parameters that must be equal for coded frames of two files to be decoded as one video."""
    stream: VideoStream = file.streams.video[0]
    return stream.codec_context.name, stream.width, stream.height, stream.codec_context.extradata
