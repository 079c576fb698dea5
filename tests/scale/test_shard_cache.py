"""Shards on this machine: within the limit, fetched once, and lost ones counted."""

import pytest

from timecycle.data.footage import PackFootage, shard_of
from timecycle.data.pack import PackConfig, pack, pack_index, read_shards
from timecycle.data.shard_cache import ShardCache
from timecycle.data.transcode import ClipForm
from timecycle.errors import SettingsError, StoreError, VideoError
from timecycle.store import Folder, open_store


@pytest.fixture(scope="module")
def packed(films, tmp_path_factory):
    """Twenty shards of a clip each."""
    place = tmp_path_factory.mktemp("pack")
    config = PackConfig(form=ClipForm(short_side_px=48), shard_mb=0.001)
    done = pack(films, Folder(place), place / ".pack", config)
    assert len(done.shards) == 20
    return place, pack_index(read_shards(Folder(place), done)).entries, done


def cache_of(place, folder, *, shards: float, done) -> ShardCache:
    return ShardCache(Folder(place), folder, limit_bytes=shards * max(shard.size for shard in done.shards))


def test_the_cache_stays_within_its_limit_and_forgets_the_oldest_first(packed, tmp_path):
    place, entries, done = packed
    cache = cache_of(place, tmp_path / "cache", shards=5, done=done)
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


def test_two_processes_share_what_one_has_fetched(packed, tmp_path):
    place, entries, done = packed
    one, two = (cache_of(place, tmp_path / "cache", shards=50, done=done) for _ in range(2))
    for entry in entries:
        assert one.folder(shard_of(entry)) == two.folder(shard_of(entry))
    assert (one.fetched, two.fetched) == (20, 0)


def test_a_limit_below_what_is_needed_at_once_is_refused(packed, tmp_path):
    place, _, done = packed
    with pytest.raises(SettingsError, match=r"16 shards of .* are needed at once; allow .* with --cache-gb"):
        cache_of(place, tmp_path / "cache", shards=3, done=done).check_room(done.shards[0].size, 8)


def test_lost_shards_are_counted_and_too_many_refused(packed, tmp_path):
    place, entries, done = packed
    footage = PackFootage(cache_of(place, tmp_path / "cache", shards=50, done=done), entries, mixed=2, most_lost=0.1)
    gone = [place / f"{done.shards[number].name}.tar" for number in (4, 9, 12)]
    for path in gone:
        path.rename(path.with_suffix(".away"))
    try:
        for number in (4, 9):
            with pytest.raises(VideoError, match=rf"is lost: .* has no {gone[0].name[:-6]}"):
                footage.path(entries[number])
        assert len(footage.lost) == 2
        assert footage.path(entries[5]).is_file()
        with pytest.raises(StoreError, match=r"3 of 20 shards of .* are lost, 3 of 20 clips; the last: .* has no"):
            footage.path(entries[12])
    finally:
        for path in gone:
            path.with_suffix(".away").rename(path)


def test_an_epoch_takes_every_shard_once_and_expects_the_next(packed, tmp_path):
    place, entries, done = packed
    cache = cache_of(place, tmp_path / "cache", shards=8, done=done)
    order = PackFootage(cache, entries, mixed=2).order(entries, seed=1)
    for epoch in range(2):
        samples = [order.sample(epoch, position) for position in range(20)]
        assert sorted(samples) == list(range(20))
    cache._coming.join()  # what comes next is fetched before it is asked for
    fetched = cache.fetched
    assert 0 < fetched <= 40


@pytest.mark.slow  # clients take seconds to notice that a server is away
def test_a_store_out_of_reach_is_not_a_lost_shard(films, bucket, server, tmp_path):
    config = PackConfig(form=ClipForm(short_side_px=48), shard_mb=0.001)
    entries = pack_index(read_shards(bucket, pack(films, bucket, tmp_path / "work", config))).entries
    impatient = open_store(bucket.name, patience_seconds=1)
    footage = PackFootage(ShardCache(impatient, tmp_path / "cache", limit_bytes=1e9), entries, mixed=2)
    server.stop()
    try:
        with pytest.raises(StoreError, match="does not answer"):
            footage.path(entries[0])
    finally:
        server.start()
    assert footage.lost == {}
    assert footage.path(entries[0]).is_file()
