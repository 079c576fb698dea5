"""The data of a run: its videos, some of which are held out, and the training example of every sample.

The videos are those of a folder, or the clips of a pack. What a run trains on is frozen when it begins, in
RUN/index.jsonl or for a pack RUN/shards.jsonl: the folder or the pack may grow later, which would change the order of
the clips. An example is a pure function of its epoch and position.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from torch import Tensor

from timecycle.data.augment.clips import Clips, is_usable, usable
from timecycle.data.augment.copy_paste import choose_object, map_points, objects_at, paste
from timecycle.data.augment.patches import choose_patch, cut_patch
from timecycle.data.augment.variety import vary
from timecycle.data.augment.views import apply_view, apply_warp, choose_view, choose_warp, photometric, to_grey
from timecycle.data.corpus.footage import FolderFootage, Footage
from timecycle.data.corpus.index import Index, find_videos, make_index, read_index, root_of
from timecycle.data.corpus.order import SampleKey, generator, sample_keys
from timecycle.data.corpus.split import split
from timecycle.data.packing.footage import PackFootage
from timecycle.data.packing.pack import PACK, read_pack
from timecycle.data.packing.shard_list import (
    PARTS,
    ShardList,
    list_shards,
    read_shard_list,
    summarise_pack,
    write_shard_list,
)
from timecycle.data.packing.shards import ShardCache
from timecycle.errors import VideoError
from timecycle.files import user_cache
from timecycle.model.resnet import grid_of
from timecycle.pose import cell_centres
from timecycle.store import is_address, open_store
from timecycle.training.settings import TrainConfig

_INDEX = "index.jsonl"
DEFAULT_CACHE_GB = 20.0


@dataclass(frozen=True, kw_only=True)
class VideoSource:
    """Videos to train on: a folder of videos, one video, a folder with a pack, or the URL of a pack, such as
    s3://bucket/prefix."""

    location: str
    cache: Path | None = None  # folder for cached shards; by default in the user's cache
    cache_gb: float = DEFAULT_CACHE_GB  # the largest size of the cache

    @property
    def is_pack(self) -> bool:
        return is_address(self.location) or (Path(self.location) / PACK).is_file()


@dataclass(frozen=True)
class Corpus:
    """Training videos and held-out videos."""

    training: Footage
    held_out: Footage

    @property
    def summary(self) -> str:
        """Describe training and held-out videos in a line."""
        named = ""
        if len(self.held_out) == 1:
            first, last = self.training[0], self.held_out[0]
            if first.path == last.path:
                return (
                    f"one video: frames {first.first} to {first.first + first.frames - 1} are trained on, {last.first} "
                    f"to {last.first + last.frames - 1} held out"
                )
            named = f" ({last.path})"
        return f"{count_videos(len(self.training))} to train on, {len(self.held_out):,} held out{named}"


def count_videos(count: int) -> str:
    """Format a number of videos."""
    return f"{count:,} video{'' if count == 1 else 's'}"


def check_videos(videos: VideoSource) -> None:
    """Refuse a location without videos before anything is written."""
    if videos.is_pack:
        read_pack(open_store(videos.location))
    else:
        find_videos(Path(videos.location))


def index_videos(
    videos: VideoSource,
    folder: Path,
    config: TrainConfig,
    *,
    processes: int = 0,
    progress: Callable[[int, int], None] | None = None,
    warn: Callable[[str], None],
) -> None:
    """Write RUN/index.jsonl or RUN/shards.jsonl for a new run, and warn of videos that cannot be used."""
    if videos.is_pack:
        summaries = summarise_pack(
            videos.location,
            read_pack(open_store(videos.location)).shards,
            is_usable=partial(is_usable, config=config.clips),
            processes=processes,
        )
        write_shard_list(folder, list_shards(summaries, config.held_out, clip_frames=config.clips.frames))
        return
    path = folder / _INDEX
    index = make_index(Path(videos.location), path, workers=processes, progress=progress)
    if index.bad:
        total = len(index.bad) + len(index.entries)
        warn(f"{len(index.bad)} of {total} videos cannot be used and are left out; {path} lists why")


def compare_videos(videos: VideoSource, folder: Path, warn: Callable[[str], None]) -> None:
    """Warn if the videos differ from the frozen index of a resumed run."""
    if videos.is_pack:
        return
    index = read_index(folder / _INDEX)
    known = {entry.path for entry in index.entries} | {bad.path for bad in index.bad}
    fingerprints = find_videos(Path(videos.location))
    new = len(fingerprints.keys() - known)
    if new:
        warn(f"{count_videos(new)} added after the run began; a resumed run leaves new videos out")
    changed = [entry.path for entry in index.entries if fingerprints.get(entry.path) != entry.fingerprint]
    if changed:
        warn(f"{count_videos(len(changed))} changed or removed since the run began, for example {changed[0]}")


def read_corpus(videos: VideoSource, folder: Path, config: TrainConfig) -> Corpus:
    """Read what a run trains on, and its held-out videos."""
    if videos.is_pack:
        return _packed_corpus(videos, read_shard_list(folder), config)
    index = read_index(folder / _INDEX)
    entries = usable(index.entries, config.clips)
    if not entries:
        short = sum(entry.frames < config.clips.frames for entry in index.entries)
        raise VideoError(
            f"none of {count_videos(len(index.entries))} in {videos.location} can be trained on: {short} shorter than "
            f"a clip of {config.clips.frames} frames, {len(index.entries) - short} static",
            remedy="give other videos, or ask for fewer frames with --set clips.frames=2",
        )
    training, held_out = split(Index(tuple(entries)), config.held_out, clip_frames=config.clips.frames)
    root = root_of(Path(videos.location))
    return Corpus(FolderFootage(root, training.entries), FolderFootage(root, held_out.entries))


def _packed_corpus(videos: VideoSource, shards: ShardList, config: TrainConfig) -> Corpus:
    if not shards.usable.any():
        raise VideoError(
            f"no clip of {videos.location} can be trained on: all are static or shorter than {config.clips.frames} "
            "frames",
            remedy="give another pack, or ask for fewer frames with --set clips.frames=2",
        )
    store = open_store(videos.location)
    cache = ShardCache(store, videos.cache or _cache_folder(videos.location), limit_bytes=videos.cache_gb * 1e9)
    cache.check_room(max(shard.size for shard in read_pack(store).shards), config.mixed_shards)
    usable_clip = partial(is_usable, config=config.clips)
    training, held_out = (
        PackFootage(cache, shards, part, is_usable=usable_clip, mixed_shards=config.mixed_shards) for part in PARTS
    )
    return Corpus(training, held_out)


def _cache_folder(location: str) -> Path:
    return user_cache("shards", location.rstrip("/") if is_address(location) else str(Path(location).resolve()))


@dataclass(frozen=True, eq=False)
class CycleExample:
    """A clip, oldest frame first, and a patch of its last frame."""

    frames: UInt8[np.ndarray, "n side side 3"]
    patch: UInt8[np.ndarray, "p p 3"]
    theta: Float32[Tensor, "3"]
    seed: int  # of the objective's random numbers


@dataclass(frozen=True, eq=False)
class WalkExample:
    """A clip in two views, and the positions of the first view's first cells in the second view.

    No walk visits the last frame in the second view: it crosses over on its way there. Targets and visibility are of
    the cells of the first frame. Objects number what each cell of the two views' first frames shows: 0 is the
    background.
    """

    forward: UInt8[np.ndarray, "n side side 3"]
    backward: UInt8[np.ndarray, "n-1 side side 3"]
    targets: Float32[Tensor, "cells 2"]
    visible: Bool[Tensor, "cells"]
    start_objects: UInt8[Tensor, "cells"]
    end_objects: UInt8[Tensor, "cells"]
    seed: int  # of the objective's random numbers


@dataclass(frozen=True)
class Examples:
    """Makes the example of every sample."""

    reader: Clips
    config: TrainConfig

    def __call__(self, epoch: int, position: int) -> CycleExample | WalkExample:
        rng = generator(seed=self.config.seed, epoch=epoch, position=position)
        clip = self._read(epoch, position, rng)
        if self.config.objective == "cycles":
            return self._cycle(clip, rng)
        return self._walk(clip, epoch, position, rng)

    def _read(self, epoch: int, position: int, rng: np.random.Generator) -> UInt8[np.ndarray, "n side side 3"]:
        return vary(self.reader.read(epoch, position, rng).frames, self.config.variety, rng)

    def micro_batches(self, steps: range, rank: int = 0, world_size: int = 1) -> Iterator[Sequence[SampleKey]]:
        """Yield the samples of every micro-batch of these steps; the processes together take each batch once."""
        accumulate = self.config.accumulate
        share = self.config.batch // accumulate
        for micro_batch in range(steps.start * accumulate, steps.stop * accumulate):
            yield sample_keys(micro_batch, batch=share, rank=rank, world_size=world_size, count=len(self.reader))

    def _cycle(self, clip: UInt8[np.ndarray, "n side side 3"], rng: np.random.Generator) -> CycleExample:
        theta = choose_patch(clip, self.config.patches, rng)
        patch = cut_patch(clip[-1], theta, self.config.patches.patch_px)
        # The patch may have other colours than its frame, so that colours alone do not match it.
        return CycleExample(clip, photometric(patch[None], self.config.views, rng)[0], theta, _seed(rng))

    def _walk(
        self, clip: UInt8[np.ndarray, "n side side 3"], epoch: int, position: int, rng: np.random.Generator
    ) -> WalkExample:
        size, config = self.config.view_px, self.config.views
        cover = min(size / clip.shape[1], 1.0)
        maps = (choose_view(config, rng, cover=cover), choose_view(config, rng, cover=cover))
        views = [apply_view(frames, affine, size) for frames, affine in zip((clip, clip[:-1]), maps, strict=True)]
        objects = []
        for _ in range(int(rng.integers(self.config.copy_paste.most + 1))):
            other = self.reader.nearby(position, rng)
            alike = rng.random() < self.config.copy_paste.alike
            source = clip[:, :, ::-1].copy() if alike else self._read(epoch, other, rng)
            drawn = choose_object(self.config.copy_paste, rng, frames=len(clip), cover=cover)
            pasted = replace(drawn, transforms=(drawn.transforms[0], drawn.transforms[1][:-1]))
            views = [
                paste(view, source[: len(view)], pasted, moves)
                for view, moves in zip(views, pasted.transforms, strict=True)
            ]
            objects.append(pasted)
        cells = cell_centres(grid_of(size))
        if config.elastic:
            warps = choose_warp(config.elastic, rng), choose_warp(config.elastic, rng)
            # The walk ends in the first frame of the second view: it stays unwarped, so that the targets are exact.
            views = [apply_warp(views[0], warps[0]), apply_warp(views[1], warps[1], first=1)]
            cells = warps[0].displace(cells, 0)
        if config.grey_clips and rng.random() < config.grey_clips:
            views = [to_grey(view) for view in views]
        forward, backward = (photometric(view, config, rng) for view in views)
        targets, visible = map_points(cells, maps, objects)
        starts, ends = objects_at(cells, objects, 0), objects_at(cell_centres(grid_of(size)), objects, 1)
        return WalkExample(forward, backward, targets, visible, starts, ends, _seed(rng))


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63))
