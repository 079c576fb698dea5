"""Locate the files of indexed videos, order the samples of an epoch, and read a few frames of a video cheaply.

The videos of a folder are shuffled as a whole. The clips of a pack are shuffled within a few shards at a time: shards
are then read one after the other, each once per epoch, and only a few have to be cached on this machine.

Training reads four frames of a file and closes it. Most short clips have a single keyframe, so nearly all of the time
goes into decoding frames that were not requested. `read_frames` opens the file once, without indexing all of it,
selects the needed packets by their timestamps, and lets the decoder skip frames that no other frame refers to: about
half of the rest. The pixels are those of `open_video`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from av.codec.context import CodecContext
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from jaxtyping import UInt8

from timecycle.data.corpus.index import Entry
from timecycle.data.corpus.order import sample_at, shard_sample_at, shards_at
from timecycle.data.packing.shards import ShardCache
from timecycle.errors import DamagedError, MissingError, StoreError, VideoError
from timecycle.video import DEFAULT_MAX_PIXELS, open_video
from timecycle.video.completeness import check_not_truncated
from timecycle.video.decoder import Decoder, VideoPacket, decoding, upright_rgb
from timecycle.video.images import images_in_folder

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
    """A source of indexed videos."""

    @property
    def name(self) -> str:
        """The name used in messages."""

    def path(self, entry: Entry) -> Path:
        """Return the video as a local file or folder; raise VideoError if it cannot be read."""

    def order(self, entries: Sequence[Entry], *, seed: int) -> Order:
        """Return the order in which epochs read these videos."""


@dataclass(frozen=True)
class FolderFootage:
    """The videos below a folder."""

    folder: Path

    @property
    def name(self) -> str:
        return str(self.folder)

    def path(self, entry: Entry) -> Path:
        return self.folder / entry.path

    def order(self, entries: Sequence[Entry], *, seed: int) -> Order:
        return _ShuffledOrder(seed, len(entries))


@dataclass(frozen=True)
class _ShuffledOrder:
    seed: int
    count: int

    def sample(self, epoch: int, position: int) -> int:
        return sample_at(seed=self.seed, epoch=epoch, position=position, count=self.count)

    def nearby(self, position: int, rng: np.random.Generator) -> int:
        return int(rng.integers(self.count))


class PackFootage:
    """The clips of a pack, read through a local cache; `mixed_shards` at a time are shuffled together.

    A shard that is missing or damaged is left out. A StoreError is raised when this loses more than the share
    `max_lost` of the clips, and at once when the store cannot be reached.
    """

    def __init__(
        self, cache: ShardCache, entries: Sequence[Entry], *, mixed_shards: int, max_lost: float = 0.05
    ) -> None:
        self.lost: dict[str, str] = {}  # shard to problem
        self._cache = cache
        self._mixed = mixed_shards
        self._max_lost = max_lost
        self._clips = Counter(map(shard_of, entries))

    @property
    def name(self) -> str:
        return self._cache.name

    def path(self, entry: Entry) -> Path:
        shard = shard_of(entry)
        if shard not in self.lost:
            try:
                return self._cache.folder(shard) / Path(entry.path).name
            except (MissingError, DamagedError) as error:  # but not a store that does not answer
                self._lose(shard, error)
        raise VideoError(f"{entry.path} is lost: {self.lost[shard]}", remedy="pack the videos again")

    def order(self, entries: Sequence[Entry], *, seed: int) -> Order:
        counts = Counter(map(shard_of, entries))
        return _ShardOrder(seed, tuple(counts), tuple(counts.values()), self._mixed, self._cache.prefetch)

    def _lose(self, shard: str, error: StoreError) -> None:
        self.lost[shard] = error.problem
        lost = sum(self._clips[name] for name in self.lost)
        total = self._clips.total()
        if lost > self._max_lost * total:
            raise StoreError(
                f"{len(self.lost)} of {len(self._clips)} shards of {self.name} are lost, {lost} of {total} clips; "
                f"the last: {error.problem}",
                remedy="check the store, or pack the videos again",
            ) from error


class _ShardOrder:
    """An order over groups of a few shards; `prefetch` is called with the shards of the next group."""

    def __init__(
        self,
        seed: int,
        shards: tuple[str, ...],
        counts: tuple[int, ...],
        mixed_shards: int,
        prefetch: Callable[[Sequence[str]], None],
    ) -> None:
        self._seed, self._shards, self._counts = seed, shards, counts
        self._mixed, self._prefetch = mixed_shards, prefetch
        self._prefetched: tuple[int, int] | None = None  # epoch and position up to which prefetch was called
        self._total = sum(counts)

    def sample(self, epoch: int, position: int) -> int:
        sample, stop = shard_sample_at(
            seed=self._seed, epoch=epoch, position=position, counts=self._counts, mixed_shards=self._mixed
        )
        if self._prefetched != (epoch, stop):
            self._prefetched = (epoch, stop)
            self._prefetch(self._next_shards(epoch, stop))
        return sample

    def nearby(self, position: int, rng: np.random.Generator) -> int:
        # Which positions share a group depends on the epoch's order of shards; close positions nearly always do.
        distance = max(1, self._total * self._mixed // (4 * len(self._counts)))
        return int(position + rng.integers(-distance, distance + 1)) % self._total

    def _next_shards(self, epoch: int, stop: int) -> list[str]:
        """Return the shards of the group after this position, which may be in the next epoch."""
        epoch, position = (epoch, stop) if stop < self._total else (epoch + 1, 0)
        numbers = shards_at(
            seed=self._seed, epoch=epoch, position=position, counts=self._counts, mixed_shards=self._mixed
        )
        return [self._shards[number] for number in numbers]


def shard_of(entry: Entry) -> str:
    return entry.path.partition("/")[0]


def read_frames(path: Path, indices: Sequence[int]) -> list[UInt8[np.ndarray, "height width 3"]]:
    """Read the frames at rising `indices` of a video file or folder of images, with the pixels of `open_video`."""
    if path.is_dir():
        return _read_images(path, indices)
    frames = _read_packets(path, indices) if indices[-1] + _MAX_REORDER < _MAX_PACKETS else None
    if frames is not None:
        return frames
    with open_video(path) as video:
        return [video[index].image for index in indices]


def _read_images(folder: Path, indices: Sequence[int]) -> list[UInt8[np.ndarray, "height width 3"]]:
    """Read the requested images, and the first one: it sets the size, and the range of 16-bit greys."""
    paths = images_in_folder(folder)
    if indices[-1] >= len(paths):
        raise VideoError(
            f"{folder} has no frame {indices[-1]}: it has {len(paths)} images", remedy="make the index again"
        )
    video = open_video([paths[0], *(paths[index] for index in indices)])
    return [frame.image for frame in video.frames(1)]


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
            and self._codec.codec.canonical_name != "vp8"  # some of its packets are not shown
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
