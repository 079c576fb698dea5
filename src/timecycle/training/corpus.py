"""What a run learns from: videos of a folder, examined once, or the clips of a pack; some are kept aside."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from timecycle.data.footage import FolderFootage, Footage, PackFootage
from timecycle.data.index import Index, make_index, read_index, split, write_index
from timecycle.data.pack import PACK, pack_index, read_pack, read_shards
from timecycle.data.shard_cache import ShardCache
from timecycle.files import user_cache
from timecycle.store import is_address, open_store
from timecycle.training.settings import TrainConfig

_INDEX = "index.jsonl"
DEFAULT_CACHE_GB = 20.0


@dataclass(frozen=True, kw_only=True)
class Videos:
    """What to learn from: a folder of videos, a folder with a pack, or a pack's address as s3://bucket/prefix."""

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


def examine_videos(
    videos: Videos,
    folder: Path,
    *,
    processes: int = 0,
    show: Callable[[int, int], None] | None = None,
    warn: Callable[[str], None],
) -> None:
    """Bring RUN/index.jsonl up to date and name what cannot be used.

    Of a pack the list stays as it was when the run began, for a pack may grow and the order of its clips would change.
    """
    path = folder / _INDEX
    if videos.is_pack:
        if not path.exists():
            store = open_store(videos.place)
            write_index(path, pack_index(read_shards(store, read_pack(store))))
        return
    index = make_index(Path(videos.place), path, workers=processes, progress=show)
    if index.bad:
        total = len(index.bad) + len(index.entries)
        warn(f"{len(index.bad)} of {total} videos cannot be used and are left out; {path} lists why")


def read_corpus(videos: Videos, folder: Path, config: TrainConfig) -> Corpus:
    """The examined videos, divided."""
    index = read_index(folder / _INDEX)
    return Corpus(_footage(videos, index, config), *split(index, config.held_out))


def _footage(videos: Videos, index: Index, config: TrainConfig) -> Footage:
    if not videos.is_pack:
        return FolderFootage(Path(videos.place))
    store = open_store(videos.place)
    cache = ShardCache(store, videos.cache or _cache_folder(videos.place), limit_bytes=videos.cache_gb * 1e9)
    cache.check_room(max(shard.size for shard in read_pack(store).shards), config.mixed_shards)
    return PackFootage(cache, index.entries, mixed=config.mixed_shards)


def _cache_folder(place: str) -> Path:
    return user_cache("shards", place.rstrip("/") if is_address(place) else str(Path(place).resolve()))
