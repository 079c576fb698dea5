"""A few frames of a video for little: the pixels of `open_video`, without opening it in full.

Training reads four frames of a file and leaves it. Most short clips have a single keyframe, so that nearly all the
time goes into decoding frames nobody asked for. Here the file is opened once, its packets tell which of them are
wanted, and of the others the decoder is told to skip those that no frame refers to: about half of them.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

import numpy as np
from av.codec.context import CodecContext
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from jaxtyping import UInt8

from timecycle.errors import VideoError
from timecycle.video import DEFAULT_MAX_PIXELS, open_video
from timecycle.video.decoder import Decoder, VideoPacket, decoding, upright_rgb
from timecycle.video.images import images_in_folder
from timecycle.video.whole_file import check_whole

_MOST_PACKETS = 2000  # held in memory; frames farther in are reached by open_video's table of frames
_REORDERED = 16  # the most packets, in any codec, that may come between a frame and its turn


def read_frames(path: Path, indices: Sequence[int]) -> list[UInt8[np.ndarray, "height width 3"]]:
    """The pictures at rising `indices` of a video file or folder of images, exactly as `open_video` gives them."""
    if path.is_dir():
        return _read_images(path, indices)
    frames = _read_packets(path, indices) if indices[-1] + _REORDERED < _MOST_PACKETS else None
    if frames is not None:
        return frames
    with open_video(path) as video:
        return [video[index].image for index in indices]


def _read_images(folder: Path, indices: Sequence[int]) -> list[UInt8[np.ndarray, "height width 3"]]:
    """Only the files asked for, and the first: it sets the size, and the brightness of deep greys."""
    paths = images_in_folder(folder)
    if indices[-1] >= len(paths):
        raise VideoError(
            f"{folder} has no frame {indices[-1]}: it has {len(paths)} images", remedy="make the index again"
        )
    video = open_video([paths[0], *(paths[index] for index in indices)])
    return [frame.image for frame in video.frames(1)]


def _read_packets(path: Path, indices: Sequence[int]) -> list[UInt8[np.ndarray, "height width 3"]] | None:
    """None if the packets do not tell which frame is which, or do not decode: then care is better than speed."""
    check_whole(path)
    reformatter = VideoReformatter()
    with suppress(VideoError), closing(_PacketDecoder(path, max_pixels=DEFAULT_MAX_PIXELS)) as decoder:
        frames = [upright_rgb(path, frame, reformatter) for frame in decoder.frames_at(indices)]
        if len(frames) == len(indices) and len({frame.shape for frame in frames}) == 1:
            return frames
    return None


class _PacketDecoder(Decoder):
    """A decoder that knows before decoding which packets matter."""

    def frames_at(self, indices: Sequence[int]) -> Iterator[VideoFrame]:
        """The frames at rising `indices`, intact; fewer if the packets cannot be relied on."""
        with decoding(self.path):
            packets = list(islice(self._whole_packets(), indices[-1] + 1 + _REORDERED))
            stamps = self._stamps(packets)
            if indices[-1] >= len(stamps):
                return
            wanted = {stamps[index] for index in indices}
            for frame in self._decoded(_needed(packets, wanted), wanted):
                if frame.pts in wanted:
                    self.check_intact(frame)
                    yield frame

    def _stamps(self, packets: Sequence[VideoPacket]) -> Sequence[int]:
        """The time of every frame in order, as far as packets tell; none if they may not stand for frames one by one.

        A recording that begins between keyframes, packets that are not shown and times that repeat all shift
        the count of frames.
        """
        stamps = sorted(packet.pts for packet in packets if packet.pts is not None)
        certain = (
            self.packets_are_frames
            and self._codec.codec.canonical_name != "vp8"  # some of its packets are not shown
            and not any(packet.is_discard for packet in packets)
            and len(set(stamps)) == len(packets) > 0
            and packets[0].is_keyframe
            and packets[0].pts == stamps[0]
        )
        return stamps if certain else ()

    def _decoded(self, packets: Sequence[VideoPacket], wanted: set[int]) -> Iterator[VideoFrame]:
        for packet in packets:
            # A frame that none refers to changes no other: it may be left out, and the others stay exact.
            self._codec.skip_frame = "DEFAULT" if packet.pts in wanted else "NONREF"
            yield from self._decoded_packet(packet)
        yield from self._decoded_packet(None)

    @property
    def _codec(self) -> CodecContext:
        return self._stream.codec_context


def _needed(packets: Sequence[VideoPacket], wanted: set[int]) -> Sequence[VideoPacket]:
    """From the last keyframe that serves all the wanted frames to the last of these, in the order of decoding."""
    places = [place for place, packet in enumerate(packets) if packet.pts in wanted]
    first = min(wanted)
    keys = [
        place
        for place, packet in enumerate(packets[: places[0] + 1])
        if packet.is_keyframe and packet.pts is not None and packet.pts <= first
    ]
    return packets[keys[-1] : places[-1] + 1]
