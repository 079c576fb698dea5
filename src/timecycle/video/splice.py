"""Replace frames of a video file without encoding the others again.

In files of `VideoWriter` no frame depends on a later one. So a sequence of coded frames can end anywhere, and another
can start at any keyframe.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from timecycle.video.decoder import VideoPacket

_Codec = tuple[str, int, int, bytes | None]


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
                _write(source, replacements, path)
    except (av.FFmpegError, OSError, ValueError, IndexError):
        fits = False
    if not fits:
        path.unlink(missing_ok=True)
    return fits


def _write(source: InputContainer, replacements: Mapping[int, InputContainer], path: Path) -> None:
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
