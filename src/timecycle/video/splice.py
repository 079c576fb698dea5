"""Replacing frames of a video file without encoding the others again.

Files of `VideoWriter` have no frame that depends on a later one. So their coded frames can be cut off anywhere, and
taken up again at any key frame.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from timecycle.video.decoder import VideoPacket

_Coding = tuple[str, int, int, bytes | None]


def key_frames(path: Path) -> list[bool]:
    """Of every frame of a video file, whether it is a key frame; empty where the file cannot be read."""
    try:
        with av.open(str(path)) as file:
            return [packet.is_keyframe for packet in _packets(file)]
    except (av.FFmpegError, OSError, ValueError, IndexError):
        return []


def splice(whole: Path, segments: Mapping[int, Path], path: Path) -> bool:
    """Write the film `whole` to `path`, with the frames of each segment in the place of its own from a frame on.

    Times stay those of `whole`. Returns False, and leaves no file, where a segment is coded otherwise or something
    cannot be read.
    """
    try:
        with ExitStack() as stack:
            source = stack.enter_context(av.open(str(whole)))
            parts = {first: stack.enter_context(av.open(str(part))) for first, part in segments.items()}
            fits = all(_coding(part) == _coding(source) for part in parts.values())
            if fits:
                _write(source, parts, path)
    except (av.FFmpegError, OSError, ValueError, IndexError):
        fits = False
    if not fits:
        path.unlink(missing_ok=True)
    return fits


def _write(source: InputContainer, parts: Mapping[int, InputContainer], path: Path) -> None:
    options = {"movflags": "+faststart"}
    with av.open(str(path), "w", format="mp4", container_options=options) as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        replacing: Iterator[VideoPacket] = iter(())
        for index, old in enumerate(_packets(source)):
            if index in parts:
                replacing = _packets(parts[index])
            packet = next(replacing, None)
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
    """The coded frames of a file in order, without the empty packet that ends them."""
    return (packet for packet in file.demux(file.streams.video[0]) if packet.size)


def _coding(file: InputContainer) -> _Coding:
    """What must be the same for coded frames of two files to be decoded as one."""
    stream: VideoStream = file.streams.video[0]
    return stream.codec_context.name, stream.width, stream.height, stream.codec_context.extradata
