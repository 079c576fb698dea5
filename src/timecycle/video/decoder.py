"""An open video file: the only module that calls FFmpeg's decoders.

Whatever PyAV raises on a damaged file leaves this module as VideoError. Damage that FFmpeg only logs is an error too.

Colours: swscale converts to RGB with the matrix and range of the stream's tags (BT.601, BT.709, BT.2020); untagged
video is taken as BT.601 of limited range. Pixels are taken as square: a sample aspect ratio is not applied, so that a
frame has the pixels that were coded.
"""

import contextlib
import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import av
import numpy as np
from av.codec.context import ThreadType
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream
from jaxtyping import UInt8

from timecycle.errors import VideoError
from timecycle.video.damage import Message, Tally, capture_messages, damage_in
from timecycle.video.frame import DEFAULT_MAX_PIXELS, Size

if TYPE_CHECKING:
    VideoPacket = Packet[VideoStream]
else:
    VideoPacket = Packet  # generic in PyAV's stubs only

_REENCODE = "re-encode it with: ffmpeg -i IN -c:v libx264 OUT.mp4"
_REPAIR = (
    "copy it again from its source, or use what can be decoded with --allow-damaged "
    f"(Python: allow_damaged=True), or {_REENCODE}"
)

# Containers only. FFmpeg would also open playlists and scripts, which refer to other files and servers.
_FORMATS = (
    "3g2,3gp,apng,asf,avi,dv,flv,gif,h264,hevc,ivf,m4a,m4v,matroska,mj2,mjpeg,mov,mp4,mpeg,mpegts,"
    "mpegvideo,mxf,nut,obu,ogg,rm,webm,yuv4mpegpipe"
)

_LARGE_PIXELS = 1280 * 720

# A forged header can make a few thousand bytes decode to a gigabyte of frames. No codec, even for black frames, reaches
# this many pixels per byte of the file.
_PIXELS_PER_BYTE = 4096
_ALWAYS_CREDIBLE = 4096 * 2304

_DEFAULT_RATE = Fraction(25)  # as FFmpeg assumes for a raw stream without times


class Decoder:
    """A video file with a read position, from which packets or frames are read.

    Damage raises VideoError; with `allow_damaged` it is added to `damage`, and decoding continues.
    """

    def __init__(self, path: Path, *, max_pixels: int, allow_damaged: bool = False) -> None:
        self.path = path
        self.damage: list[str] = []
        self.tally = Tally()
        self._allow_damaged = allow_damaged
        options = _options(min(max_pixels, _credible_pixels(path, max_pixels)))
        self._sent = 0  # packets since the start or the last seek
        self._first_keyframe: int | None = None  # the pts of the first keyframe since then
        self._has_output = False  # whether a frame has been decoded since then
        with decoding(path), capture_messages() as messages:
            # Without "file:", a colon in a name would be taken for a protocol.
            self._container: InputContainer = av.open(
                f"file:{path}",
                options=options,
                metadata_errors="replace",  # titles in old encodings do no harm
            )
        try:
            self._stream = _video_stream(path, self._container)
            _check_pixels(path, self._stream, max_pixels=max_pixels)
            self._stream.codec_context.options = options
            _set_threads(self._stream, one=allow_damaged)
            self._check_container(messages)
        except BaseException:
            self.close()
            raise

    @property
    def time_base(self) -> Fraction:
        """Seconds per unit of pts."""
        return self._stream.time_base or 1 / self.rate

    @property
    def rate(self) -> Fraction:
        """The average frame rate that the file declares."""
        return self._stream.average_rate or self._stream.guessed_rate or _DEFAULT_RATE

    @property
    def formats(self) -> frozenset[str]:
        """The names of the container's format."""
        return frozenset(self._container.format.name.split(","))

    @property
    def packets_are_frames(self) -> bool:
        """Whether the container stores one frame per packet, with its presentation time."""
        return not {"mp4", "matroska"}.isdisjoint(self.formats)

    @property
    def reorders(self) -> bool:
        """Whether the codec may store frames in another order than they are shown."""
        return self._stream.codec_context.codec.reorder

    @property
    def hides_frames(self) -> bool:
        """Whether some packets of the codec only prepare later frames."""
        return self._stream.codec_context.codec.canonical_name == "vp8"

    @property
    def declared_frames(self) -> int:
        """The number of frames that the container declares; 0 if it declares none."""
        return self._stream.frames

    @property
    def declared_seconds(self) -> float | None:
        """The declared end of the last frame; None if the container does not declare it, or also has sound."""
        has_sound = any(stream.type == "audio" for stream in self._container.streams)
        if has_sound or self._container.duration is None:
            return None
        return self._container.duration / av.time_base

    @property
    def track(self) -> tuple[int, int]:
        """The container's number of the stream, and the stream's position among the video streams."""
        return self._stream.id, list(self._container.streams.video).index(self._stream)

    def packets(self) -> Iterator[VideoPacket]:
        """Yield the packets from here to the end that contain a visible frame."""
        with decoding(self.path):
            for packet in self._checked_packets():
                if not packet.is_discard and not (self.hides_frames and _is_hidden_vp8(packet)):
                    yield packet

    def frames(self) -> Iterator[VideoFrame]:
        """Yield the frames from here to the end, in the order of presentation."""
        with decoding(self.path):
            for packet in self._checked_packets():
                yield from self._decode_packet(packet)
            yield from self._decode_packet(None)

    def seek(self, stamp: int) -> None:
        """Seek to a keyframe near `stamp`: usually, but not always, at or before it."""
        self._sent, self._first_keyframe, self._has_output = 0, None, False
        self.tally.stop()
        with decoding(self.path):
            self._container.seek(stamp, stream=self._stream)

    def report(self, problem: str) -> None:
        """Raise VideoError for damage, or record it if damage is allowed."""
        if not self._allow_damaged:
            raise damaged(self.path, problem)
        self.damage.append(problem)

    def check_intact(self, frame: VideoFrame) -> None:
        """Report a frame that the decoder could only partly reconstruct."""
        if frame.is_corrupt:
            self.report(f"the frame {shown_at(frame)} is broken")

    def close(self) -> None:
        """Close the file."""
        # PyAV frees a decoder, and waits for its threads, while it holds Python's lock; a thread that logs a message
        # waits for the same lock. So the threads finish here, where the lock is free.
        stream = getattr(self, "_stream", None)
        if stream is not None:
            with contextlib.suppress(av.FFmpegError):
                stream.codec_context.flush_buffers()
        self._container.close()

    def __enter__(self) -> "Decoder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_container"):
            self.close()

    def _checked_packets(self) -> Iterator[VideoPacket]:
        packets = self._container.demux(self._stream)
        while True:
            with capture_messages() as messages:
                try:
                    packet = next(packets, None)
                except av.FFmpegError as error:
                    if not self._allow_damaged:
                        raise
                    self.report(error.strerror or str(error))
                    packet = None
            self._check_container(messages)
            if packet is None:
                self.tally.end_reached()
                return
            if packet.is_corrupt:
                self.report("a packet is incomplete")
            self.tally.count(packet)
            if packet.size:  # an empty packet would make the decoder end
                yield packet

    def _decode_packet(self, packet: VideoPacket | None) -> list[VideoFrame]:
        """Decode a packet, or the remaining frames at the end (None)."""
        frames: list[VideoFrame] = []
        with capture_messages() as messages:
            try:
                frames = list(self._stream.decode(packet))
            except av.FFmpegError as error:
                if not self._allow_damaged:
                    raise
                self.report(error.strerror or str(error))
        has_references = self._has_references(packet, decoded=bool(frames))
        codec = self._stream.codec_context.codec
        problem = damage_in(messages, senders=(codec.name, codec.canonical_name)) if has_references else None
        if problem is not None:
            where = f"near {shown_at(frames[0])[3:]}" if frames else "near its end"
            self.report(f"{where} the decoder says: {problem}")
        return frames

    def _has_references(self, packet: VideoPacket | None, *, decoded: bool) -> bool:
        """Return whether all frames that the packet refers to have been decoded, so that a message means damage.

        A recording may begin between keyframes, and a seek may land there. Frames stored or shown before the first
        keyframe lack earlier frames, which is no damage.
        """
        self._sent += 1
        had_output, self._has_output = self._has_output, self._has_output or decoded
        if packet is None or packet.pts is None:
            return had_output or (self._sent == 1 and decoded)
        if self._first_keyframe is None and packet.is_keyframe:
            self._first_keyframe = packet.pts
        return self._first_keyframe is not None and packet.pts >= self._first_keyframe

    def _check_container(self, messages: Sequence[Message]) -> None:
        problem = damage_in(messages, senders=(self._container.format.name,))
        if problem is not None:
            self.report(f"the container's reader says: {problem}")


def upright_rgb(path: Path, frame: VideoFrame, reformatter: VideoReformatter) -> UInt8[np.ndarray, "height width 3"]:
    """Convert a frame to RGB with its rotation applied; alpha is dropped, more than 8 bits are rounded.

    One reformatter is shared by all frames of a video: a new one per frame would set up the conversion every time, and
    its memory would be freed only by Python's garbage collector.
    """
    with decoding(path):
        return np.ascontiguousarray(_upright(reformatter.reformat(frame, format="rgb24").to_ndarray(), frame))


def upright_size(frame: VideoFrame) -> Size:
    """Return the size of a frame with its rotation applied."""
    coded = np.empty((frame.height, frame.width, 0), np.uint8)
    height_px, width_px, _ = _upright(coded, frame).shape
    return Size(height_px, width_px)


def shown_at(frame: VideoFrame) -> str:
    """Return the time of a frame, for messages."""
    if frame.pts is None or frame.time_base is None:
        return "at an unknown time"
    return f"at {float(frame.pts * frame.time_base):.3f} s"


def damaged(path: Path, problem: str) -> VideoError:
    """Return the error for a damaged file."""
    return VideoError(f"{path} is damaged: {problem}", remedy=_REPAIR)


@contextlib.contextmanager
def decoding(path: Path) -> Iterator[None]:
    """Raise all errors of FFmpeg and PyAV as VideoError."""
    try:
        yield
    except VideoError:
        raise
    except Exception as error:  # damaged files have raised UnicodeDecodeError and AttributeError
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise VideoError(
            f"{path} cannot be decoded: {reason}",
            remedy=f"if it is a video that other programs play, {_REENCODE}",
        ) from error


def _credible_pixels(path: Path, max_pixels: int) -> int:
    """Return the largest credible frame size for the size of the file; 4K and an explicit `max_pixels` are accepted."""
    if max_pixels != DEFAULT_MAX_PIXELS:
        return max_pixels
    try:
        return max(_ALWAYS_CREDIBLE, _PIXELS_PER_BYTE * path.stat().st_size)
    except OSError:
        return _ALWAYS_CREDIBLE


def _options(max_pixels: int) -> dict[str, str]:
    # FFmpeg also checks max_pixels, before it allocates: a header inside the stream may be forged.
    return {"protocol_whitelist": "file", "format_whitelist": _FORMATS, "max_pixels": str(max_pixels)}


def _video_stream(path: Path, container: InputContainer) -> VideoStream:
    """Return the first video stream that is not cover art."""
    with decoding(path):
        streams = [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]
    if not streams:
        raise VideoError(
            f"{path} has no video stream ({container.format.long_name})",
            remedy="pass a file that contains video, not only sound",
        )
    if cast(object, streams[0].codec_context) is None:
        raise VideoError(f"{path} uses a codec that cannot be decoded here", remedy=_REENCODE)
    return streams[0]


def _check_pixels(path: Path, stream: VideoStream, *, max_pixels: int) -> None:
    width_px, height_px = stream.codec_context.width, stream.codec_context.height
    if width_px * height_px > max_pixels:
        raise VideoError(
            f"{path} is {width_px}x{height_px}, more than {max_pixels} pixels",
            remedy="shrink the video, or raise max_pixels if you trust the file",
        )
    if width_px * height_px > _credible_pixels(path, max_pixels):
        raise VideoError(
            f"{path} declares frames of {width_px}x{height_px}, which {path.stat().st_size} bytes cannot hold",
            remedy="its header is damaged or forged; pass max_pixels if you trust the file",
        )


def _set_threads(stream: VideoStream, *, one: bool) -> None:
    """Decode large frames in parallel and small ones in one thread, which is fastest for them.

    Never use PyAV's default, slices in parallel: FFmpeg's messages about damaged slices would be lost.
    """
    codec = stream.codec_context
    codec.thread_type = ThreadType.FRAME
    codec.thread_count = 0 if codec.width * codec.height >= _LARGE_PIXELS and not one else 1  # 0: FFmpeg chooses


def _is_hidden_vp8(packet: VideoPacket) -> bool:
    """Return whether a VP8 packet only prepares later frames (RFC 6386, 9.1: the show_frame bit)."""
    return not memoryview(packet)[0] & 0b1_0000


def _upright(image: np.ndarray, frame: VideoFrame) -> np.ndarray:
    """Rotate by quarter turns and mirror `image` according to the frame's display matrix."""
    side_data = cast("dict[str, Any]", frame.side_data).get("DISPLAYMATRIX")
    if side_data is None:
        return image
    # Column x, row y are shown at (a x + c y, b x + d y).
    a, b, _, c, d, *_ = struct.unpack("=9i", bytes(side_data))
    if abs(b) + abs(c) > abs(a) + abs(d):
        image, a, d = image.swapaxes(0, 1), c, b
    if a < 0:
        image = image[:, ::-1]
    if d < 0:
        image = image[::-1]
    return image
