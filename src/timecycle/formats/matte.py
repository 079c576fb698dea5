"""ProRes 4444 with alpha, for editing programs: the frames of the video, opaque where an object is."""

import contextlib
import secrets
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.container import OutputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from jaxtyping import UInt8

from timecycle.errors import LabelError, OutputError
from timecycle.files import sync_folder
from timecycle.formats.format import Format
from timecycle.formats.video_labels import VideoLabels, ids_of
from timecycle.video import Size, Video

_CODEC, _PIXELS = "prores_ks", "yuva444p10le"
_ALPHA_BITS = "16"


def write(labels: VideoLabels, path: Path) -> None:
    """Write every frame of the video; frames without labels are transparent throughout."""
    video = labels.video.source
    if video is None:
        raise LabelError("a matte shows the video, which is not known", remedy="say which video it is: --video VIDEO")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with av.open(str(temporary), "w", format="mov") as container:
            stream = _add_stream(container, labels.video.fps or 24, video.size)
            packets = (packet for frame in _frames(video, labels) for packet in stream.encode(frame))
            # Every frame is a picture of its own, so packets come in order and get the exact times of the video.
            for index, packet in enumerate(packets):
                packet.pts = packet.dts = video.pts[index] - video.pts[0]
                packet.time_base = video.time_base
                packet.duration = video.pts[index] - video.pts[index - 1] if index else 1
                container.mux(packet)
        temporary.replace(path)
        sync_folder(path.parent)
    except (av.FFmpegError, OSError, ValueError) as error:
        raise OutputError(f"cannot write {path}: {error}", remedy="write to another place, with free space") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _add_stream(container: OutputContainer, fps: float, size: Size) -> VideoStream:
    stream = container.add_stream(_CODEC, rate=Fraction(fps).limit_denominator(1001))
    if not isinstance(stream, VideoStream):
        raise OutputError("this FFmpeg cannot write ProRes", remedy="install av from the package index")
    stream.width, stream.height, stream.pix_fmt = size.width_px, size.height_px, _PIXELS
    stream.options = {"profile": "4444", "alpha_bits": _ALPHA_BITS}
    return stream


def _frames(video: Video, labels: VideoLabels) -> Iterator[VideoFrame | None]:
    """Yield the pictures for the encoder, numbered, and None at the end, which makes it give out what it holds."""
    for index, rgba in enumerate(_pictures(video, labels)):
        frame = VideoFrame.from_ndarray(rgba, format="rgba").reformat(format=_PIXELS)
        frame.pts = index
        yield frame
    yield None


def _pictures(video: Video, labels: VideoLabels) -> Iterator[UInt8[np.ndarray, "height width 4"]]:
    for frame in video.frames():
        alpha = np.zeros(video.size.shape, np.uint8)
        if frame.index in labels.labels:
            alpha[ids_of(labels.labels[frame.index]) > 0] = 255
        yield np.dstack([frame.image, alpha])


FORMAT = Format(
    name="matte",
    title="ProRes 4444 with alpha (the video, transparent beside the objects)",
    suffixes=(".mov",),
    kinds=("masks", "parts"),
    loses="which object is which; confidence and states. It cannot be read back",
    read=None,
    write=write,
)
