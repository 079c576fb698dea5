"""The shard cache: within its limit, each shard fetched once, lost shards counted."""

import pytest

from timecycle.data.packing.footage import PackFootage
from timecycle.data.packing.pack import PackConfig, pack, read_shards
from timecycle.data.packing.shard_list import list_shards, summarise
from timecycle.data.packing.shards import ShardCache
from timecycle.data.packing.transcode import ClipFormat
from timecycle.errors import SettingsError, StoreError, VideoError
from timecycle.store import FolderStore, open_store


@pytest.fixture(scope="module")
def packed(short_videos, tmp_path_factory):
    """Twenty shards of one clip each."""
    folder = tmp_path_factory.mktemp("pack")
    config = PackConfig(clips=ClipFormat(short_side_px=48), shard_mb=0.001)
    done = pack(short_videos, FolderStore(folder), folder / ".pack", config)
    assert len(done.shards) == 20
    return folder, entries_of(FolderStore(folder), done), done


def entries_of(store, done):
    return [entry for shard in read_shards(store, done) for entry in shard.entries()]


def shard_of(entry):
    return entry.path.partition("/")[0]


def footage_of(store, cache, done, **settings):
    """All clips of the pack: nothing is held out."""
    summaries = (summarise(shard, is_usable=lambda _: True) for shard in read_shards(store, done))
    shards = list_shards(summaries, 0.0, clip_frames=2)
    return PackFootage(cache, shards, "training", is_usable=lambda _: True, mixed_shards=2, **settings)


def cache_of(pack_folder, cache_folder, *, shards: float, done) -> ShardCache:
    return ShardCache(
        FolderStore(pack_folder), cache_folder, limit_bytes=shards * max(shard.size for shard in done.shards)
    )


def test_cache_stays_within_its_limit_and_evicts_the_least_recently_used(packed, tmp_path):
    folder, entries, done = packed
    cache = cache_of(folder, tmp_path / "cache", shards=5, done=done)
    for entry in entries:
        assert any(cache.folder(shard_of(entry)).iterdir())
        kept = [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
        assert sum(file.stat().st_size for path in kept for file in path.iterdir()) <= 5 * max(
            s.size for s in done.shards
        )
    assert {path.name for path in kept} >= {shard_of(entry) for entry in entries[-3:]}
    assert cache.fetched == 20
    cache.folder(shard_of(entries[-1]))
    assert cache.fetched == 20


def test_two_caches_of_one_folder_share_fetched_shards(packed, tmp_path):
    folder, entries, done = packed
    one, two = (cache_of(folder, tmp_path / "cache", shards=50, done=done) for _ in range(2))
    for entry in entries:
        assert one.folder(shard_of(entry)) == two.folder(shard_of(entry))
    assert (one.fetched, two.fetched) == (20, 0)


def test_limit_below_the_shards_in_use_is_refused(packed, tmp_path):
    folder, _, done = packed
    with pytest.raises(SettingsError, match=r"16 shards of .* are needed at once; allow .* with --cache-gb"):
        cache_of(folder, tmp_path / "cache", shards=3, done=done).check_room(done.shards[0].size, 8)


def test_lost_shards_are_counted_and_too_many_refused(packed, tmp_path):
    folder, entries, done = packed
    cache = cache_of(folder, tmp_path / "cache", shards=50, done=done)
    footage = footage_of(FolderStore(folder), cache, done, max_lost=0.1)
    missing = [folder / f"{done.shards[number].name}.tar" for number in (4, 9, 12)]
    for path in missing:
        path.rename(path.with_suffix(".away"))
    try:
        for number in (4, 9):
            with pytest.raises(VideoError, match=rf"is lost: .* has no {missing[0].name[:-6]}"):
                footage[number]
        assert len(footage.lost) == 2
        assert footage.path(entries[5]).is_file()
        with pytest.raises(StoreError, match=r"3 of 20 shards of .* are lost, 3 of 20 clips; the last: .* has no"):
            footage.path(entries[12])
    finally:
        for path in missing:
            path.with_suffix(".away").rename(path)


def test_epoch_reads_every_shard_once_and_prefetches_the_next(packed, tmp_path):
    folder, entries, done = packed
    cache = cache_of(folder, tmp_path / "cache", shards=8, done=done)
    footage = footage_of(FolderStore(folder), cache, done)
    order = footage.order(seed=1)
    for epoch in range(2):
        samples = [order.sample(epoch, position) for position in range(20)]
        assert sorted(samples) == list(range(20))
    assert [footage[sample] for sample in range(20)] == entries
    cache._prefetching.join()  # the next shards are fetched before they are read
    fetched = cache.fetched
    assert 0 < fetched <= 40


@pytest.mark.slow  # clients take seconds to notice that a server is away
def test_unreachable_store_does_not_count_as_lost_shards(short_videos, bucket, server, tmp_path):
    config = PackConfig(clips=ClipFormat(short_side_px=48), shard_mb=0.001)
    done = pack(short_videos, bucket, tmp_path / "work", config)
    entries = entries_of(bucket, done)
    impatient = open_store(bucket.name, patience_seconds=1)
    footage = footage_of(bucket, ShardCache(impatient, tmp_path / "cache", limit_bytes=1e9), done)
    server.stop()
    try:
        with pytest.raises(StoreError, match="does not answer"):
            footage.path(entries[0])
    finally:
        server.start()
    assert footage.lost == {}
    assert footage.path(entries[0]).is_file()
