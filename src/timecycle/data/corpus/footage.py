"""Locate the files of indexed videos, order the samples of an epoch, and read a few frames of a video cheaply.

The videos of a folder are shuffled as a whole; those of a pack are in data/packing/footage.py.

Training reads four frames of a file and closes it. Most short clips have a single keyframe, so nearly all of the time
goes into decoding frames that were not requested. `read_frames` opens the file once, without indexing all of it,
selects the needed packets by their timestamps, and lets the decoder skip frames that no other frame refers to: about
half of the rest. The pixels are those of `open_video`.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from av.codec.context import CodecContext
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from jaxtyping import UInt8

from timecycle.data.corpus.index import Entry
from timecycle.data.corpus.order import sample_at
from timecycle.errors import VideoError
from timecycle.tiff_header import TIFF_SUFFIXES
from timecycle.video import DEFAULT_MAX_PIXELS, open_video
from timecycle.video.completeness import check_not_truncated
from timecycle.video.decoder import Decoder, VideoPacket, decoding, upright_rgb
from timecycle.video.images import Brightness, ImagesVideo, brightness_of, images_in_folder

_MAX_PACKETS = 2000  # held in memory; later frames are read through open_video's table of frames
_MAX_REORDER = 16  # packets: the largest reordering delay of any codec


@runtime_checkable
class Order(Protocol):
    """The order of the samples of an epoch, as pure functions of epoch and position."""

    def sample(self, epoch: int, position: int) -> int:
        """Return the sample at a position."""

    def nearby(self, position: int, rng: np.random.Generator) -> int:
        """Draw another position of the epoch whose sample is cheap to read."""


@runtime_checkable
class Footage(Protocol):
    """Indexed videos to draw samples from, one of each in an epoch."""

    @property
    def name(self) -> str:
        """The name used in messages."""

    def __len__(self) -> int:
        """Return the number of videos."""

    def __getitem__(self, sample: int) -> Entry:
        """Return a video; raise VideoError if it is lost."""

    def path(self, entry: Entry) -> Path:
        """Return the video as a local file or folder; raise VideoError if it cannot be read."""

    def order(self, *, seed: int) -> Order:
        """Return the order in which epochs read the videos."""


@dataclass(frozen=True)
class FolderFootage:
    """Videos below a folder."""

    folder: Path
    entries: Sequence[Entry]

    @property
    def name(self) -> str:
        return str(self.folder)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, sample: int) -> Entry:
        return self.entries[sample]

    def path(self, entry: Entry) -> Path:
        return self.folder / entry.path

    def order(self, *, seed: int) -> Order:
        return _ShuffledOrder(seed, len(self.entries))


@dataclass(frozen=True)
class _ShuffledOrder:
    seed: int
    count: int

    def sample(self, epoch: int, position: int) -> int:
        return sample_at(seed=self.seed, epoch=epoch, position=position, count=self.count)

    def nearby(self, position: int, rng: np.random.Generator) -> int:
        return int(rng.integers(self.count))


def read_frames(path: Path, indices: Sequence[int]) -> list[UInt8[np.ndarray, "height width 3"]]:
    """Read the frames at rising `indices` of a video file or folder of images, with the pixels of `open_video`."""
    if path.is_dir():
        return _read_images(path, indices)
    has_packets = path.suffix.lower() not in TIFF_SUFFIXES and indices[-1] + _MAX_REORDER < _MAX_PACKETS
    frames = _read_packets(path, indices) if has_packets else None
    if frames is not None:
        return frames
    with open_video(path) as video:
        return [video[index].image for index in indices]


def _read_images(folder: Path, indices: Sequence[int]) -> list[UInt8[np.ndarray, "height width 3"]]:
    """Read the requested images, and the first one, which sets the size, with the brightness of the whole folder."""
    paths = images_in_folder(folder)
    if indices[-1] >= len(paths):
        raise VideoError(
            f"{folder} has no frame {indices[-1]}: it has {len(paths)} images", remedy="make the index again"
        )
    video = ImagesVideo(
        str(folder),
        [paths[0], *(paths[index] for index in indices)],
        time_base=Fraction(1),
        max_pixels=DEFAULT_MAX_PIXELS,
        brightness=_folder_brightness(folder, len(paths), folder.stat().st_mtime_ns),
    )
    return [frame.image for frame in video.frames(1)]


@lru_cache(maxsize=1024)
def _folder_brightness(folder: Path, count: int, changed_ns: int) -> Brightness | None:
    """Find the scale of 16-bit greys once for a folder, which training reads many times."""
    del count, changed_ns  # part of the cache's key
    return brightness_of(images_in_folder(folder), max_pixels=DEFAULT_MAX_PIXELS)


def _read_packets(path: Path, indices: Sequence[int]) -> list[UInt8[np.ndarray, "height width 3"]] | None:
    """Decode only the needed packets; return None if the packets do not identify frames, or do not decode."""
    check_not_truncated(path)
    reformatter = VideoReformatter()
    with suppress(VideoError), closing(_PacketDecoder(path, max_pixels=DEFAULT_MAX_PIXELS)) as decoder:
        frames = [upright_rgb(path, frame, reformatter) for frame in decoder.frames_at(indices)]
        if len(frames) == len(indices) and len({frame.shape for frame in frames}) == 1:
            return frames
    return None


class _PacketDecoder(Decoder):
    """A decoder that selects packets before decoding."""

    def frames_at(self, indices: Sequence[int]) -> Iterator[VideoFrame]:
        """Yield the intact frames at rising `indices`; yield fewer if the packets are not reliable."""
        with decoding(self.path):
            packets = list(islice(self._checked_packets(), indices[-1] + 1 + _MAX_REORDER))
            stamps = self._stamps(packets)
            if indices[-1] >= len(stamps):
                return
            wanted = {stamps[index] for index in indices}
            for frame in self._decoded(_needed(packets, wanted), wanted):
                if frame.pts in wanted:
                    self.check_intact(frame)
                    yield frame

    def _stamps(self, packets: Sequence[VideoPacket]) -> Sequence[int]:
        """Return the timestamp of every frame in order, or nothing if packets may not correspond one-to-one to frames.

        A recording that begins between keyframes, packets that are not shown and repeated timestamps all shift
        the frame indices.
        """
        stamps = sorted(packet.pts for packet in packets if packet.pts is not None)
        certain = (
            self.packets_are_frames
            and not self.hides_frames
            and not any(packet.is_discard for packet in packets)
            and len(set(stamps)) == len(packets) > 0
            and packets[0].is_keyframe
            and packets[0].pts == stamps[0]
        )
        return stamps if certain else ()

    def _decoded(self, packets: Sequence[VideoPacket], wanted: set[int]) -> Iterator[VideoFrame]:
        for packet in packets:
            # A frame that no other refers to can be skipped without changing any other.
            self._codec.skip_frame = "DEFAULT" if packet.pts in wanted else "NONREF"
            yield from self._decode_packet(packet)
        yield from self._decode_packet(None)

    @property
    def _codec(self) -> CodecContext:
        return self._stream.codec_context


def _needed(packets: Sequence[VideoPacket], wanted: set[int]) -> Sequence[VideoPacket]:
    """Return the packets from the last keyframe before all wanted frames to the last wanted one, in decoding order."""
    positions = [position for position, packet in enumerate(packets) if packet.pts in wanted]
    first = min(wanted)
    keyframes = [
        position
        for position, packet in enumerate(packets[: positions[0] + 1])
        if packet.is_keyframe and packet.pts is not None and packet.pts <= first
    ]
    return packets[keyframes[-1] : positions[-1] + 1]
