"""One open video file: the only module that talks to FFmpeg's decoders.

Everything PyAV may raise on a damaged file leaves this module as one VideoError. What FFmpeg only says of damage, and
passes over, is an error too.

Colours: swscale converts to RGB with the matrix the stream is tagged with (BT.601, BT.709, BT.2020) and its
range; untagged video is taken as BT.601 of limited range. Pixels are taken as square: a sample aspect ratio
is not applied, so that a frame has the pixels that were coded.
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
from timecycle.video.ffmpeg_log import Message, listening
from timecycle.video.frame import DEFAULT_MAX_PIXELS, Size
from timecycle.video.spoken_damage import damage_in
from timecycle.video.tally import Tally

if TYPE_CHECKING:
    VideoPacket = Packet[VideoStream]
else:
    VideoPacket = Packet  # generic in PyAV's stubs only

_REENCODE = "re-encode it with: ffmpeg -i IN -c:v libx264 OUT.mp4"
_MEND = (
    "copy it again from where it came, or use what can be decoded with --allow-damaged "
    f"(Python: allow_damaged=True), or {_REENCODE}"
)

# Containers only. FFmpeg would also open playlists and scripts, which name other files and servers to read.
_FORMATS = (
    "3g2,3gp,apng,asf,avi,dv,flv,gif,h264,hevc,ivf,m4a,m4v,matroska,mj2,mjpeg,mov,mp4,mpeg,mpegts,"
    "mpegvideo,mxf,nut,obu,ogg,rm,webm,yuv4mpegpipe"
)

_LARGE_PIXELS = 1280 * 720

# A forged header turns a few thousand bytes into a gigabyte of frames. No codec makes a frame, even a black one, this
# much smaller than its pixels and keeps it in so small a file.
_PIXELS_PER_BYTE = 4096
_ALWAYS_CREDIBLE = 4096 * 2304

_DEFAULT_RATE = Fraction(25)  # what FFmpeg too assumes for a raw stream without times


class Decoder:
    """A video file with a present position, from which packets or frames are read.

    Damage raises VideoError; with `allow_damaged` it is noted in `damage`, and what can be decoded is given.
    """

    def __init__(self, path: Path, *, max_pixels: int, allow_damaged: bool = False) -> None:
        self.path = path
        self.damage: list[str] = []
        self.tally = Tally()
        self._allow_damaged = allow_damaged
        options = _options(min(max_pixels, _credible_pixels(path, max_pixels)))
        self._sent = 0  # packets since the start or the last seek
        self._key: int | None = None  # when the first keyframe since then is shown
        self._is_showing = False  # whether a frame has come since then
        with decoding(path), listening() as messages:
            # "file:" keeps a colon in a name from being taken for a protocol.
            self._container: InputContainer = av.open(
                f"file:{path}",
                options=options,
                metadata_errors="replace",  # titles in old encodings are no reason to refuse a film
            )
        try:
            self._stream = _video_stream(path, self._container)
            _check_pixels(path, self._stream, max_pixels=max_pixels)
            self._stream.codec_context.options = options
            _set_threads(self._stream, one=allow_damaged)
            self._heed_container(messages)
        except BaseException:
            self.close()
            raise

    @property
    def time_base(self) -> Fraction:
        """Seconds per unit of pts."""
        return self._stream.time_base or 1 / self.rate

    @property
    def rate(self) -> Fraction:
        """The average frames per second the file declares."""
        return self._stream.average_rate or self._stream.guessed_rate or _DEFAULT_RATE

    @property
    def formats(self) -> frozenset[str]:
        """The names of the container's format."""
        return frozenset(self._container.format.name.split(","))

    @property
    def packets_are_frames(self) -> bool:
        """Whether the container stores exactly one frame per packet, with its time of presentation."""
        return not {"mp4", "matroska"}.isdisjoint(self.formats)

    @property
    def reorders(self) -> bool:
        """Whether frames of the codec may be stored in another order than they are shown."""
        return self._stream.codec_context.codec.reorder

    @property
    def hides_frames(self) -> bool:
        """Whether some packets of the codec only prepare later frames."""
        return self._stream.codec_context.codec.canonical_name == "vp8"

    @property
    def declared_frames(self) -> int:
        """How many frames the container says the stream has; 0 where it does not say."""
        return self._stream.frames

    @property
    def declared_seconds(self) -> float | None:
        """When the last frame ends by the container's word; None where it does not say, or speaks of sound too."""
        others = [s for s in self._container.streams if s.type == "audio"]
        if others or self._container.duration is None:
            return None
        return self._container.duration / av.time_base

    @property
    def track(self) -> tuple[int, int]:
        """The number that the container gives to the stream, and its place among the streams with pictures."""
        return self._stream.id, list(self._container.streams.video).index(self._stream)

    def packets(self) -> Iterator[VideoPacket]:
        """The packets from here to the end that hold a picture to be shown."""
        with decoding(self.path):
            for packet in self._whole_packets():
                if not packet.is_discard and not (self.hides_frames and _is_hidden_vp8(packet)):
                    yield packet

    def frames(self) -> Iterator[VideoFrame]:
        """The frames from here to the end, in the order of presentation."""
        with decoding(self.path):
            for packet in self._whole_packets():
                yield from self._decoded_packet(packet)
            yield from self._decoded_packet(None)

    def seek(self, stamp: int) -> None:
        """Go to a keyframe near `stamp`: as a rule, not always, at or before it."""
        self._sent, self._key, self._is_showing = 0, None, False
        self.tally.stop()
        with decoding(self.path):
            self._container.seek(stamp, stream=self._stream)

    def report(self, what: str) -> None:
        """Raise VideoError for this damage, or note it where damage is allowed."""
        if not self._allow_damaged:
            raise damaged(self.path, what)
        self.damage.append(what)

    def check_intact(self, frame: VideoFrame) -> None:
        """Report a frame of which the decoder had to make up a part."""
        if frame.is_corrupt:
            self.report(f"the frame {shown_at(frame)} is broken")

    def close(self) -> None:
        """Close the file."""
        # PyAV frees a decoder, and waits for its threads, holding Python's lock; a thread that has something to log
        # waits for the same lock. So the threads end their work here, where the lock is free.
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

    def _whole_packets(self) -> Iterator[VideoPacket]:
        packets = self._container.demux(self._stream)
        while True:
            with listening() as messages:
                try:
                    packet = next(packets, None)
                except av.FFmpegError as error:
                    if not self._allow_damaged:
                        raise
                    self.report(error.strerror or str(error))
                    packet = None
            self._heed_container(messages)
            if packet is None:
                self.tally.end_reached()
                return
            if packet.is_corrupt:
                self.report("a part of it is incomplete")
            self.tally.count(packet)
            if packet.size:  # an empty packet would tell the decoder that the video ends here
                yield packet

    def _decoded_packet(self, packet: VideoPacket | None) -> list[VideoFrame]:
        """The frames that are complete with this packet, or that are left at the end."""
        frames: list[VideoFrame] = []
        with listening() as messages:
            try:
                frames = list(self._stream.decode(packet))
            except av.FFmpegError as error:
                if not self._allow_damaged:
                    raise
                self.report(error.strerror or str(error))
        heard = self._lacks_nothing(packet, shows=bool(frames))
        codec = self._stream.codec_context.codec
        what = damage_in(messages, speakers=(codec.name, codec.canonical_name)) if heard else None
        if what is not None:
            place = f"near {shown_at(frames[0])[3:]}" if frames else "near its end"
            self.report(f"{place} the decoder says: {what}")
        return frames

    def _lacks_nothing(self, packet: VideoPacket | None, *, shows: bool) -> bool:
        """Whether what is said of a packet is said of a frame that has all it refers to.

        A recording may begin between keyframes, and seeking may land there. What is decoded before the first
        keyframe, or shown before it, lacks what came earlier; that is no damage.
        """
        self._sent += 1
        was_showing, self._is_showing = self._is_showing, self._is_showing or shows
        if packet is None or packet.pts is None:
            return was_showing or (self._sent == 1 and shows)
        if self._key is None and packet.is_keyframe:
            self._key = packet.pts
        return self._key is not None and packet.pts >= self._key

    def _heed_container(self, messages: Sequence[Message]) -> None:
        what = damage_in(messages, speakers=(self._container.format.name,))
        if what is not None:
            self.report(f"the container's reader says: {what}")


def upright_rgb(path: Path, frame: VideoFrame, reformatter: VideoReformatter) -> UInt8[np.ndarray, "height width 3"]:
    """The picture as a viewer shows it; alpha is dropped, more than 8 bits are rounded.

    One reformatter serves all frames of a video: a frame's own would set up the conversion anew, and what it
    takes is given back only when Python looks for unreachable objects.
    """
    with decoding(path):
        return np.ascontiguousarray(_upright(reformatter.reformat(frame, format="rgb24").to_ndarray(), frame))


def upright_size(frame: VideoFrame) -> Size:
    """The size of the picture as a viewer shows it."""
    coded = np.empty((frame.height, frame.width, 0), np.uint8)
    height_px, width_px, _ = _upright(coded, frame).shape
    return Size(height_px, width_px)


def shown_at(frame: VideoFrame) -> str:
    """When the frame is shown, for messages."""
    if frame.pts is None or frame.time_base is None:
        return "at an unknown time"
    return f"at {float(frame.pts * frame.time_base):.3f} s"


def damaged(path: Path, what: str) -> VideoError:
    """The error for a file whose content does not decode."""
    return VideoError(f"{path} is damaged: {what}", remedy=_MEND)


@contextlib.contextmanager
def decoding(path: Path) -> Iterator[None]:
    """Turn whatever FFmpeg and PyAV raise into one VideoError."""
    try:
        yield
    except VideoError:
        raise
    except Exception as error:  # UnicodeDecodeError and AttributeError have been seen on damaged files
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise VideoError(
            f"{path} cannot be decoded: {reason}",
            remedy=f"if it is a video that other programs play, {_REENCODE}",
        ) from error


def _credible_pixels(path: Path, max_pixels: int) -> int:
    """The most pixels that a frame of so small a file may have; 4K, and what a caller allows by hand, always."""
    if max_pixels != DEFAULT_MAX_PIXELS:
        return max_pixels
    try:
        return max(_ALWAYS_CREDIBLE, _PIXELS_PER_BYTE * path.stat().st_size)
    except OSError:
        return _ALWAYS_CREDIBLE


def _options(max_pixels: int) -> dict[str, str]:
    # FFmpeg enforces max_pixels too, before it allocates: a header inside the stream may lie.
    return {"protocol_whitelist": "file", "format_whitelist": _FORMATS, "max_pixels": str(max_pixels)}


def _video_stream(path: Path, container: InputContainer) -> VideoStream:
    """The first video stream that is not cover art."""
    with decoding(path):
        streams = [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]
    if not streams:
        raise VideoError(
            f"{path} has no video stream ({container.format.long_name})",
            remedy="pass a file with pictures, not only sound",
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
    """Whole frames in parallel where frames are large; else one thread, which small frames decode fastest with.

    Never PyAV's default, slices in parallel: it loses FFmpeg's word that a slice was damaged.
    """
    codec = stream.codec_context
    codec.thread_type = ThreadType.FRAME
    codec.thread_count = 0 if codec.width * codec.height >= _LARGE_PIXELS and not one else 1  # 0: as many as sensible


def _is_hidden_vp8(packet: VideoPacket) -> bool:
    """Whether this VP8 packet only prepares later frames (RFC 6386, 9.1: the show_frame bit)."""
    return not memoryview(packet)[0] & 0b1_0000


def _upright(image: np.ndarray, frame: VideoFrame) -> np.ndarray:
    """`image` turned and mirrored as the frame's display matrix says, by quarter turns."""
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
