"""The order of samples is a pure function of seed, epoch and position; some videos are held out.

Never all and never none are held out, and no training clip shows what is held out.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.data.augment.clips import ClipConfig, choose_clip
from timecycle.data.corpus.index import Entry, Index
from timecycle.data.corpus.order import ShardOrder, generator, positions, sample_at, sample_keys
from timecycle.data.corpus.probe import Box
from timecycle.data.corpus.split import scene_of, split
from timecycle.errors import SettingsError, VideoError


def epoch_order(count: int, *, seed: int = 0, epoch: int = 0) -> list[int]:
    return [sample_at(seed=seed, epoch=epoch, position=position, count=count) for position in range(count)]


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_every_epoch_visits_every_sample_once(count: int):
    for epoch in range(3):
        assert sorted(epoch_order(count, epoch=epoch)) == list(range(count))


def test_epochs_and_seeds_have_different_orders():
    orders = [epoch_order(50, seed=seed, epoch=epoch) for seed in range(3) for epoch in range(3)]
    assert len({tuple(order) for order in orders}) == 9
    assert orders[0] == epoch_order(50)


def test_generators_of_samples_are_independent_and_repeatable():
    draws = {
        (seed, epoch, position): tuple(generator(seed=seed, epoch=epoch, position=position).random(4))
        for seed in range(4)
        for epoch in range(4)
        for position in range(4)
    }
    assert len(set(draws.values())) == len(draws)
    assert tuple(generator(seed=1, epoch=2, position=3).random(4)) == draws[1, 2, 3]
    first = np.array([draw[0] for draw in draws.values()])
    assert 0.3 < first.mean() < 0.7


def test_epoch_order_and_first_sample_use_different_random_numbers():
    assert epoch_order(100) != list(generator(seed=0, epoch=0, position=0).permutation(100))


def test_any_number_of_processes_shares_the_same_batch():
    for world_size in (1, 2, 3, 6):
        taken = [
            key
            for rank in range(world_size)
            for key in sample_keys(5, batch=6, rank=rank, world_size=world_size, count=7)
        ]
        assert taken == [(4, 2), (4, 3), (4, 4), (4, 5), (4, 6), (5, 0)]


def test_steps_leave_no_gap_between_positions():
    assert [p for step in range(4) for p in positions(step, batch=3, rank=0, world_size=1)] == list(range(12))


def test_invalid_batches_ranks_positions_and_seeds_are_refused():
    with pytest.raises(SettingsError, match="shared equally by 4 processes; start 1 or 2 or 3 or 6"):
        positions(0, batch=6, rank=0, world_size=4)
    with pytest.raises(SettingsError, match="no process 2 of 2; number them from 0 to 1"):
        positions(0, batch=6, rank=2, world_size=2)
    with pytest.raises(SettingsError, match="no position 5; ask for 0 to 4"):
        sample_at(seed=0, epoch=0, position=5, count=5)
    with pytest.raises(SettingsError, match="the seed is -1; give 0 to"):
        generator(seed=-1, epoch=0, position=0)


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=12).map(tuple),
    mixed_shards=st.integers(1, 5),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 3),
)
def test_epoch_over_shards_visits_every_sample_once_and_few_shards_at_a_time(counts, mixed_shards, seed, epoch):
    firsts = [sum(counts[:shard]) for shard in range(len(counts) + 1)]
    order = ShardOrder(counts, seed=seed, mixed_shards=mixed_shards)
    assert len(order) == sum(counts)
    seen, opened = [], []
    for position in range(sum(counts)):
        sample, stop = order.sample(epoch, position)
        seen.append(sample)
        shard = max(number for number in range(len(counts)) if firsts[number] <= sample)
        assert order.shard_of(sample) == (shard, sample - firsts[shard])
        assert shard in order.shards(epoch, position)
        assert position < stop <= sum(counts)
        if shard not in opened:
            opened.append(shard)
        # A shard is finished before those of the group after the next are opened.
        assert all(
            sum(firsts[s] <= one < firsts[s + 1] for one in seen) == counts[s] for s in opened[: -2 * mixed_shards + 1]
        )
    assert sorted(seen) == list(range(sum(counts)))


def test_epochs_visit_shards_in_different_orders():
    orders = {
        tuple(ShardOrder((1,) * 8, seed=0, mixed_shards=1).shards(epoch, position)[0] for position in range(8))
        for epoch in range(5)
    }
    assert len(orders) == 5


def test_position_beyond_the_shards_is_refused():
    with pytest.raises(SettingsError, match="an epoch of 6 samples has no position 6"):
        ShardOrder((4, 2), seed=0, mixed_shards=1).sample(0, 6)


def entry(path: str, *, frames: int = 60, source: str = "") -> Entry:
    box = Box(0, 0, 8, 8)
    return Entry(
        path=path, fingerprint="", frames=frames, fps=12.0, width_px=8, height_px=8, box=box, motion=1.0, source=source
    )


def index_of(*paths: str) -> Index:
    return Index(tuple(entry(path) for path in sorted(paths)))


def test_clips_of_one_scene_stay_together():
    names = [f"v_Run_g{scene:03d}_c{clip:02d}.mp4" for scene in range(198) for clip in (1, 2)]
    names += [f"other/{number}.mp4" for number in range(200)]
    index = Index(tuple(entry(name) for name in names))
    train, held_out = split(index, 0.2)
    scenes = [{scene_of(one) for one in part.entries} for part in (train, held_out)]
    assert not scenes[0] & scenes[1]
    assert len(train.entries) + len(held_out.entries) == len(names)
    assert 0.12 < len(held_out.entries) / len(names) < 0.28
    assert scene_of(index.entries[0]) == scene_of(index.entries[1]) == "v_Run_g000"
    # Videos that come or go leave the others on their side.
    fewer = split(Index(index.entries[::2]), 0.2)[1]
    assert set(fewer.entries) == set(held_out.entries) & set(index.entries[::2])
    assert split(index, 0) == (index, Index(()))
    with pytest.raises(SettingsError, match="give a share"):
        split(index, 1.5)


def test_videos_of_the_same_name_in_different_folders_are_different_scenes():
    index = index_of(*(f"v{number}/video.mp4" for number in range(200)))
    train, held_out = split(index, 0.05)
    assert len({scene_of(one) for one in index.entries}) == 200
    assert 2 <= len(held_out.entries) <= 25
    assert len(train.entries) + len(held_out.entries) == 200


def test_scene_is_the_path_without_the_clip_suffix():
    paths = ("a/v_Run_g01_c01.avi", "a/v_Run_g01_c02.avi", "b/v_Run_g01_c01.avi", "c/frames.v2", "c/frames.v3")
    assert [scene_of(entry(path)) for path in paths] == [
        "a/v_Run_g01",
        "a/v_Run_g01",
        "b/v_Run_g01",
        "c/frames.v2",
        "c/frames.v3",
    ]
    assert scene_of(entry("shard-000000/000003.mp4", source="a/day.one/cam.mp4")) == "a/day.one/cam"


def test_corpus_keeps_its_split_when_its_folders_are_reorganised():
    flat = index_of(*(f"video{number}.mp4" for number in range(300)))
    nested = index_of(*(f"{number % 7}/video{number}.mp4" for number in range(300)))
    held_out = [{scene_of(one).split("/")[-1] for one in split(one, 0.05)[1].entries} for one in (flat, nested)]
    assert held_out[0] == held_out[1]
    assert 3 < len(held_out[0]) < 40


@settings(deadline=None, max_examples=200)
@given(st.sets(st.text("abcdef/", min_size=1, max_size=6), min_size=1, max_size=12), st.floats(0.01, 0.99))
def test_neither_part_of_a_split_is_empty(names: set[str], share: float):
    index = index_of(*(f"{name.strip('/') or 'x'}.mp4" for name in names))
    train, held_out = split(index, share, clip_frames=4)
    assert train.entries
    assert held_out.entries
    if len(index.entries) > 1:
        assert {scene_of(one) for one in train.entries}.isdisjoint(scene_of(one) for one in held_out.entries) or (
            len({scene_of(one) for one in index.entries}) == 1
        )


@pytest.mark.parametrize("count", [2, 3, 5, 10, 20])
def test_small_folder_holds_out_at_least_one_scene(count: int):
    for first in range(20):
        index = index_of(*(f"clip{number}.mp4" for number in range(first, first + count)))
        train, held_out = split(index, 0.05)
        assert 1 <= len(held_out.entries) < count
        assert len(train.entries) == count - len(held_out.entries)


@pytest.mark.parametrize("frames", [8, 9, 16, 40, 300, 5000])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.5, 0.95])
def test_single_video_is_split_in_time_and_training_clips_stay_before_the_gap(frames: int, share: float):
    whole = entry("one.mp4", frames=frames)
    (train,), (held_out,) = (part.entries for part in split(Index((whole,)), share, clip_frames=4))
    assert train.first == 0
    assert held_out.first + held_out.frames == frames
    assert train.frames >= 4
    assert held_out.frames >= 4
    if frames >= 40 and share < 0.5:
        assert held_out.first > train.frames, "there is a gap"
        assert held_out.frames >= 0.2 * frames
        assert train.frames >= 0.65 * frames
    config = ClipConfig(crop_px=8, short_side_px=8)
    rng = np.random.default_rng(0)
    for _ in range(50):
        assert max(choose_clip(train, config, rng).frames) < train.frames <= held_out.first
        drawn = choose_clip(held_out, config, rng).frames
        assert held_out.first <= min(drawn)
        assert max(drawn) < frames


def test_single_video_too_short_to_split_is_refused_by_name():
    with pytest.raises(VideoError, match=r"one\.mp4 is the only video.* its 7 frames are too few.*a clip takes 4"):
        split(Index((entry("one.mp4", frames=7),)), 0.05, clip_frames=4)


def test_clips_of_a_single_scene_are_split_in_time():
    clips = Index(tuple(entry(f"shard-000000/{number:06d}.mp4", source="video.mp4") for number in range(10)))
    train, held_out = split(clips, 0.15)
    assert train.entries == clips.entries[:7]
    assert held_out.entries == clips.entries[8:]
    two = Index(clips.entries[:2])
    assert split(two, 0.05) == (Index(two.entries[:1]), Index(two.entries[1:]))


def test_training_part_differs_from_its_video_only_in_length():
    whole = entry("one.mp4")
    train = split(Index((whole,)), 0.05, clip_frames=4)[0].entries[0]
    assert dataclasses.replace(train, frames=whole.frames) == whole
