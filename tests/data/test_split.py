"""Some videos are held out, never all and never none, and no training clip shows what is held out."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.data.augment.clips import ClipConfig, choose_clip
from timecycle.data.corpus.index import Entry, Index
from timecycle.data.corpus.probe import Box
from timecycle.data.corpus.split import scene_of, split
from timecycle.errors import SettingsError, VideoError


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
