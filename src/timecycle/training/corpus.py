"""What a run learns from: videos of a folder, examined once, or the clips of a pack; some are held out.

The index of a run, RUN/index.jsonl, stays as it was when the run began: the folder or the pack may grow, and the order
of the clips would change.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from timecycle.data.clips import usable
from timecycle.data.footage import FolderFootage, Footage, PackFootage
from timecycle.data.index import Index, find_videos, make_index, read_index, root_of, write_index
from timecycle.data.pack import PACK, pack_index, read_pack, read_shards
from timecycle.data.shard_cache import ShardCache
from timecycle.data.split import split
from timecycle.errors import VideoError
from timecycle.files import user_cache
from timecycle.store import is_address, open_store
from timecycle.training.settings import TrainConfig

_INDEX = "index.jsonl"
DEFAULT_CACHE_GB = 20.0


@dataclass(frozen=True, kw_only=True)
class Videos:
    """What to learn from: a folder of videos, one video, a folder with a pack, or a pack's address as
    s3://bucket/prefix."""

    place: str
    cache: Path | None = None  # where shards are kept on this machine; by default with the user's other caches
    cache_gb: float = DEFAULT_CACHE_GB  # at most so much of them

    @property
    def is_pack(self) -> bool:
        return is_address(self.place) or (Path(self.place) / PACK).is_file()


@dataclass(frozen=True)
class Corpus:
    """What is learned from, and what only judges."""

    footage: Footage
    training: Index
    held_out: Index

    @property
    def summary(self) -> str:
        """What is trained on and what is held out, in a line."""
        first, last = self.training.entries[0], self.held_out.entries[-1]
        if first.path == last.path:
            return (
                f"one video: frames {first.first} to {first.first + first.frames - 1} are trained on, {last.first} to "
                f"{last.first + last.frames - 1} held out"
            )
        held_out = f" ({last.path})" if len(self.held_out.entries) == 1 else ""
        return (
            f"{count_videos(len(self.training.entries))} to train on, {len(self.held_out.entries)} held out{held_out}"
        )


def count_videos(count: int) -> str:
    """The number with its noun."""
    return f"{count:,} video{'' if count == 1 else 's'}"


def check_videos(videos: Videos) -> None:
    """Refuse a place without videos before anything is written."""
    if videos.is_pack:
        read_pack(open_store(videos.place))
    else:
        find_videos(Path(videos.place))


def examine_videos(
    videos: Videos,
    folder: Path,
    *,
    processes: int = 0,
    show: Callable[[int, int], None] | None = None,
    warn: Callable[[str], None],
) -> None:
    """Write RUN/index.jsonl for a new run and name what cannot be used."""
    path = folder / _INDEX
    if videos.is_pack:
        store = open_store(videos.place)
        write_index(path, pack_index(read_shards(store, read_pack(store))))
        return
    index = make_index(Path(videos.place), path, workers=processes, progress=show)
    if index.bad:
        total = len(index.bad) + len(index.entries)
        warn(f"{len(index.bad)} of {total} videos cannot be used and are left out; {path} lists why")


def compare_videos(videos: Videos, folder: Path, warn: Callable[[str], None]) -> None:
    """Say how the videos differ from the index that a resumed run keeps to."""
    if videos.is_pack:
        return
    index = read_index(folder / _INDEX)
    known = {entry.path for entry in index.entries} | {bad.path for bad in index.bad}
    found = find_videos(Path(videos.place))
    new = len(found.keys() - known)
    if new:
        warn(f"{count_videos(new)} came after the run began; a resumed run leaves new videos out")
    changed = [entry.path for entry in index.entries if found.get(entry.path) != entry.fingerprint]
    if changed:
        warn(f"{count_videos(len(changed))} changed or vanished since the run began, for example {changed[0]}")


def read_corpus(videos: Videos, folder: Path, config: TrainConfig) -> Corpus:
    """The examined videos that can be learned from, split into those to train on and those held out."""
    index = read_index(folder / _INDEX)
    entries = usable(index.entries, config.clips)
    if not entries:
        short = sum(entry.frames < config.clips.frames for entry in index.entries)
        raise VideoError(
            f"none of {count_videos(len(index.entries))} in {videos.place} can be trained on: {short} are shorter than "
            f"a clip of {config.clips.frames} frames, and in {len(index.entries) - short} nothing moves",
            remedy="give other videos, or ask for fewer frames with --set clips.frames=2",
        )
    training, held_out = split(Index(tuple(entries)), config.held_out, clip_frames=config.clips.frames)
    return Corpus(_footage(videos, index, config), training, held_out)


def _footage(videos: Videos, index: Index, config: TrainConfig) -> Footage:
    if not videos.is_pack:
        return FolderFootage(root_of(Path(videos.place)))
    store = open_store(videos.place)
    cache = ShardCache(store, videos.cache or _cache_folder(videos.place), limit_bytes=videos.cache_gb * 1e9)
    cache.check_room(max(shard.size for shard in read_pack(store).shards), config.mixed_shards)
    return PackFootage(cache, index.entries, mixed=config.mixed_shards)


def _cache_folder(place: str) -> Path:
    return user_cache("shards", place.rstrip("/") if is_address(place) else str(Path(place).resolve()))
