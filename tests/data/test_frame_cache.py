"""The memory for decoded frames: bounded, in the order of use, and without effect on what is read."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from training_footage import world

from made_videos import write_video
from timecycle.data.augment import clips
from timecycle.data.augment.clips import ClipConfig, ClipReader, usable
from timecycle.data.corpus.footage import FolderFootage, read_frames
from timecycle.data.corpus.frame_cache import FrameCache
from timecycle.data.corpus.index import Entry, make_index
from timecycle.data.corpus.order import generator
from timecycle.data.packing.footage import PackFootage
from timecycle.errors import VideoError

CLIPS = ClipConfig(frames=3, short_side_px=56, crop_px=48)


def frame(value: int) -> np.ndarray:
    return np.full((4, 5, 3), value, np.uint8)  # 60 bytes


def test_the_frames_that_were_used_last_are_kept():
    cache = FrameCache(200)
    for index in range(3):
        cache.put("a", index, frame(index))
    assert np.array_equal(cache.get("a", 0), frame(0))
    cache.put("b", 0, frame(9))
    assert [cache.get("a", index) is None for index in range(3)] == [False, True, False]
    assert np.array_equal(cache.get("b", 0), frame(9))


def test_a_frame_kept_twice_counts_once():
    cache = FrameCache(120)
    cache.put("a", 0, frame(0))
    for _ in range(5):
        cache.put("a", 1, frame(1))
    assert cache.get("a", 0) is not None


def test_a_frame_larger_than_the_memory_is_not_kept():
    cache = FrameCache(59)
    cache.put("a", 0, frame(0))
    assert cache.get("a", 0) is None


def test_kept_frames_cannot_be_changed():
    cache = FrameCache(1000)
    cache.put("a", 0, frame(0))
    with pytest.raises(ValueError, match="read-only"):
        cache.get("a", 0)[0] = 1


@pytest.mark.parametrize("limit_bytes", [1e9, 30_000])  # of all frames, of two
def test_clips_are_the_same_with_and_without_it(tmp_path: Path, limit_bytes: float):
    for number in range(3):
        write_video(tmp_path / f"{number}.mp4", world(number).frames())
    footage = FolderFootage(tmp_path, usable(make_index(tmp_path, tmp_path / "index.jsonl").entries, CLIPS))
    plain = ClipReader(footage, CLIPS, seed=0)
    cached = ClipReader(footage, CLIPS, seed=0, cache=FrameCache(limit_bytes))
    keys = [(epoch, position) for epoch in range(4) for position in range(len(footage))]

    def read_all(reader: ClipReader) -> list[bytes]:
        return [reader.read(*key, generator(seed=0, epoch=key[0], position=key[1])).frames.tobytes() for key in keys]

    expected = read_all(plain)
    assert read_all(cached) == expected
    assert read_all(cached) == expected


def test_what_is_kept_is_not_read_again(tmp_path: Path):
    videos = tmp_path / "videos"
    write_video(videos / "a.mp4", world(0).frames())
    footage = FolderFootage(videos, usable(make_index(videos, tmp_path / "index.jsonl").entries, CLIPS))
    reader = ClipReader(footage, CLIPS, seed=0, cache=FrameCache(1e9))
    first = reader.read(0, 0, generator(seed=0, epoch=0, position=0)).frames
    shutil.rmtree(videos)
    again = reader.read(0, 0, generator(seed=0, epoch=0, position=0)).frames
    assert np.array_equal(first, again)


@pytest.mark.parametrize(("limit_bytes", "is_kept"), [(1e9, True), (30_000, False)])
def test_footage_that_fits_is_decoded_once(tmp_path: Path, limit_bytes: float, is_kept: bool):
    videos = tmp_path / "videos"
    write_video(videos / "a.mp4", world(0).frames())
    footage = FolderFootage(videos, usable(make_index(videos, tmp_path / "index.jsonl").entries, CLIPS))
    cache = FrameCache(limit_bytes)
    ClipReader(footage, CLIPS, seed=0, cache=cache).read(0, 0, generator(seed=0, epoch=0, position=0))
    [entry] = footage.entries
    assert all(cache.get("a.mp4", index) is not None for index in range(entry.frames)) == is_kept


def test_the_entries_of_a_pack_are_not_read_ahead(monkeypatch: pytest.MonkeyPatch):
    def entry(self: PackFootage, sample: int) -> Entry:
        raise AssertionError("an entry was read: its shard would be fetched")

    monkeypatch.setattr(PackFootage, "name", "a pack")
    monkeypatch.setattr(PackFootage, "__getitem__", entry)
    monkeypatch.setattr(PackFootage, "__len__", lambda self: 3)
    monkeypatch.setattr(PackFootage, "order", lambda self, seed: None)
    ClipReader(PackFootage.__new__(PackFootage), CLIPS, seed=0, cache=FrameCache(1e9))


def test_damage_elsewhere_in_a_video_does_not_change_its_clips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    videos = tmp_path / "videos"
    write_video(videos / "a.mp4", world(0).frames())
    footage = FolderFootage(videos, usable(make_index(videos, tmp_path / "index.jsonl").entries, CLIPS))
    expected = ClipReader(footage, CLIPS, seed=0).read(0, 0, generator(seed=0, epoch=0, position=0)).frames

    def damaged(path: Path, indices: Sequence[int]) -> list[np.ndarray]:
        if len(indices) == footage.entries[0].frames:
            raise VideoError("a frame that no clip needs is damaged", remedy="none")
        return read_frames(path, indices)

    monkeypatch.setattr(clips, "read_frames", damaged)
    reader = ClipReader(footage, CLIPS, seed=0, cache=FrameCache(1e9))
    assert np.array_equal(reader.read(0, 0, generator(seed=0, epoch=0, position=0)).frames, expected)
    assert not reader.unreadable
