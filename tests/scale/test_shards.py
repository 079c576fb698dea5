"""Data from a store may be anything: only intact clips are used."""

import io
import json
import tarfile

import pytest

from timecycle.data.corpus.probe import Box
from timecycle.data.packing.shards import PackedClip, read_clips, read_shard, shard_text, write_shard
from timecycle.errors import StoreError

CLIP = PackedClip(
    source="a.mp4", start_seconds=0, frames=16, fps=12, width_px=96, height_px=64, box=Box(0, 0, 96, 64), motion=3
)


@pytest.fixture
def shard(tmp_path):
    clips = []
    for number in range(3):
        clip = tmp_path / f"{number}.mp4"
        clip.write_bytes(bytes([number]) * (700 * number + 100))
        clips.append((CLIP, clip))
    with (tmp_path / "shard.tar").open("w+b") as file:
        return write_shard(file, "shard-000000", clips)


def test_index_of_a_shard_survives_writing_and_reading(shard):
    assert read_shard(shard_text(shard), where="x") == shard


def test_clips_are_read_by_the_index_alone(shard, tmp_path):
    clips = list(read_clips(tmp_path / "shard.tar", shard))
    assert clips == [(tmp_path / f"{number}.mp4").read_bytes() for number in range(3)]


def test_damaged_clip_is_detected_and_the_others_are_kept(shard, tmp_path):
    content = bytearray((tmp_path / "shard.tar").read_bytes())
    content[shard.members[1].offset + 5] ^= 1
    (tmp_path / "shard.tar").write_bytes(content)
    assert [clip is None for clip in read_clips(tmp_path / "shard.tar", shard)] == [False, True, False]


def test_truncated_shard_gives_its_intact_clips(shard, tmp_path):
    content = (tmp_path / "shard.tar").read_bytes()
    (tmp_path / "shard.tar").write_bytes(content[: shard.members[2].offset + 10])
    assert [clip is None for clip in read_clips(tmp_path / "shard.tar", shard)] == [False, False, True]


def test_names_of_tar_members_are_never_used(shard, tmp_path):
    """The tar holds a path upwards, a link and a pickle instead of clips."""
    with tarfile.open(tmp_path / "shard.tar", "w") as tar:
        for name, kind in (
            ("../../out.mp4", tarfile.REGTYPE),
            ("link.mp4", tarfile.SYMTYPE),
            ("a.pth", tarfile.REGTYPE),
        ):
            head = tarfile.TarInfo(name)
            head.type, head.linkname, head.size = kind, "/etc/passwd", 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(head, io.BytesIO(b"evil"))
    assert list(read_clips(tmp_path / "shard.tar", shard)) == [None, None, None]


def changed(shard, change) -> str:
    fields = json.loads(shard_text(shard))
    change(fields)
    return json.dumps(fields)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda f: f.update(name="../../etc"), "its name is '../../etc'"),
        (lambda f: f.update(timecycle_shard=2), "not the index of a shard"),
        (lambda f: f["members"][1].update(offset=3), "clip 1 has offset 3"),
        (lambda f: f["members"][2].update(size=10**12), "clip 2 has offset"),
        (lambda f: f["members"][0].update(size=-1), "clip 0 has offset"),
        (lambda f: f.update(size=100), "of 100"),
        (lambda f: f["members"][0]["clip"].update(width_px=10), "reaches beyond its frame"),
        (lambda f: f["members"][0]["clip"].update(fps=0), "16 frames at 0 a second"),
        (lambda f: f.pop("members"), "'members'"),
        (lambda f: f["members"][0].update(more=1), "more"),
    ],
)
def test_inconsistent_index_of_a_shard_is_refused(shard, change, problem):
    with pytest.raises(StoreError, match=r"s3://b/x.json is not the index of a shard") as refused:
        read_shard(changed(shard, change), where="s3://b/x.json")
    assert problem in refused.value.problem
