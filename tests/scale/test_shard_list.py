"""The list of shards: the same split as that of all clips at once, without holding them."""

import dataclasses
import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.data.augment.clips import ClipConfig
from timecycle.data.augment.clips import is_usable as is_usable_clip
from timecycle.data.corpus.index import Entry, Index
from timecycle.data.corpus.probe import Box
from timecycle.data.corpus.split import split
from timecycle.data.packing.pack import PackedShard
from timecycle.data.packing.shard_list import (
    PARTS,
    SHARD_LIST,
    list_shards,
    read_shard_list,
    summarise,
    summarise_pack,
    write_shard_list,
)
from timecycle.data.packing.shards import Member, PackedClip, Shard, read_shard, shard_name, shard_text
from timecycle.errors import DamagedError, OutputError

CLIP_FRAMES = 4


def is_usable(entry: Entry) -> bool:
    return entry.frames >= CLIP_FRAMES and not entry.is_static


def make_shard(number: int, sources: list[str], *, frames: int = 60, static: bool = False) -> Shard:
    clips = [
        PackedClip(
            frames=frames,
            fps=12.0,
            width_px=8,
            height_px=8,
            box=Box(0, 0, 8, 8),
            motion=0.0 if static else 1.0,
            source=source,
            start_seconds=0.0,
        )
        for source in sources
    ]
    members = tuple(
        Member(clip=clip, offset=512 * (2 * at + 1), size=9, sha256="00" * 32) for at, clip in enumerate(clips)
    )
    return Shard(shard_name(number), 10**6, f"{number:064x}", members)


def list_of(shards, share):
    return list_shards((summarise(shard, is_usable=is_usable) for shard in shards), share, clip_frames=CLIP_FRAMES)


def clips_of(listed, shards, part):
    return [
        clip
        for position, shard in enumerate(shards)
        for clip in listed.clips(position, shard, part, is_usable=is_usable)
    ]


sources = st.sampled_from(["a/x.mp4", "b/x.mp4", "c/y.mp4", "d/z.mp4", "v_Run_g01_c01.avi", "v_Run_g01_c02.avi"])
shard = st.tuples(st.lists(sources, min_size=1, max_size=4), st.sampled_from([3, 60]), st.booleans())


@given(pack=st.lists(shard, min_size=1, max_size=6), share=st.sampled_from([0.0, 0.05, 0.3, 0.6]))
@settings(deadline=None)
def test_the_split_is_that_of_all_clips_at_once(pack, share, tmp_path_factory):
    shards = [
        make_shard(number, names, frames=frames, static=static) for number, (names, frames, static) in enumerate(pack)
    ]
    listed = list_of(shards, share)
    entries = tuple(entry for shard in shards for entry in shard.entries() if is_usable(entry))
    expected = split(Index(entries), share, clip_frames=CLIP_FRAMES)
    folder = tmp_path_factory.mktemp("run")
    write_shard_list(folder, listed)
    again = read_shard_list(folder)
    for part, whole in zip(PARTS, expected, strict=True):
        assert clips_of(listed, shards, part) == list(whole.entries)
        assert listed.count(part).sum() == len(whole.entries)
        assert clips_of(again, shards, part) == list(whole.entries)
        assert np.array_equal(again.count(part), listed.count(part))


def test_processes_that_share_the_work_give_the_same_list(tmp_path):
    shards = [make_shard(number, [f"{number // 3}.mp4", f"{number}.mp4"]) for number in range(128)]
    for shard in shards:
        (tmp_path / f"{shard.name}.json").write_text(shard_text(shard))
    listed = [PackedShard(shard.name, shard.size, shard.sha256, len(shard.members)) for shard in shards]
    usable_clip = partial(is_usable_clip, config=ClipConfig(frames=CLIP_FRAMES))
    alone, shared = (
        list_shards(
            summarise_pack(str(tmp_path), listed, is_usable=usable_clip, processes=processes),
            0.3,
            clip_frames=CLIP_FRAMES,
        )
        for processes in (0, 2)
    )
    assert alone.rule == shared.rule
    for name in ("numbers", "checksums", "usable", "training", "held_out"):
        assert np.array_equal(getattr(alone, name), getattr(shared, name))
    assert 0 < alone.held_out.sum() < alone.usable.sum() == 256


def test_a_shard_that_was_replaced_is_refused():
    listed = list_of([make_shard(0, ["a.mp4"]), make_shard(1, ["b.mp4"])], 0.5)
    for other in (make_shard(7, ["b.mp4"]), make_shard(1, ["b.mp4", "c.mp4"])):
        with pytest.raises(DamagedError, match="is not the one that the run began with; begin a new run"):
            listed.clips(1, other, "training", is_usable=is_usable)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda head, line: [line], "not the first line"),
        (lambda head, line: [head, line | {"sha256": "00"}], "cannot be"),
        (lambda head, line: [head, line | {"training": -1}], "cannot be"),
        (lambda head, line: [head, line | {"training": 0.5}], "Cannot cast"),
        (lambda head, line: [head, {"shard": 1}], "sha256"),
        (lambda head, line: [head | {"repeated_names": None}, line], "NoneType"),
    ],
)
def test_a_damaged_list_is_refused(damage, problem, tmp_path):
    write_shard_list(tmp_path, list_of([make_shard(0, ["a.mp4", "b.mp4"])], 0.5))
    head, line = map(json.loads, (tmp_path / SHARD_LIST).read_text().splitlines())
    (tmp_path / SHARD_LIST).write_text("".join(json.dumps(one) + "\n" for one in damage(head, line)))
    with pytest.raises(OutputError, match=f"{SHARD_LIST} is not a list of shards: .*{problem}.*; begin a new run"):
        read_shard_list(tmp_path)


@pytest.mark.parametrize("checksum", ["", "no checksum", "AB" * 32])
def test_the_index_of_a_shard_without_a_checksum_is_refused(checksum):
    shard = dataclasses.replace(make_shard(0, ["a.mp4"]), sha256=checksum)
    with pytest.raises(DamagedError, match="is not the index of a shard: its checksum is"):
        read_shard(shard_text(shard), where="shard-000000.json")


def test_a_missing_list_is_named(tmp_path):
    with pytest.raises(OutputError, match=r"has no shards\.jsonl; begin a new run"):
        read_shard_list(tmp_path)
