"""Packing: equal videos give equal shards despite interruptions, and everything left out is counted."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest

from made_videos import make_video, write_video
from timecycle.data.packing.pack import Pack, PackConfig, check_pack, pack, read_pack, read_shards
from timecycle.data.packing.transcode import ClipFormat
from timecycle.errors import SettingsError, StoreError
from timecycle.store import FolderStore
from timecycle.video import open_video

SMALL = PackConfig(clips=ClipFormat(short_side_px=48), shard_mb=0.01)  # a few clips each


def packed(videos: Path, folder: Path, config: PackConfig = SMALL, **options) -> Pack:
    return pack(videos, FolderStore(folder), folder.with_name(f"{folder.name}_work"), config, **options)


def contents(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FolderStore(folder).sizes()}


def test_equal_videos_give_equal_shards_with_any_number_of_workers(short_videos, tmp_path):
    done = packed(short_videos, tmp_path / "one")
    packed(short_videos, tmp_path / "two", workers=2)
    assert done.counts.clips == 20
    assert len(done.shards) > 3
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_clips_longer_than_a_day_are_refused():
    with pytest.raises(SettingsError, match="more than a day"):
        ClipFormat(longest_seconds=10**400)


def test_shards_match_their_index_and_are_webdataset_tars(short_videos, tmp_path):
    done = packed(short_videos, tmp_path / "pack")
    for listed, shard in zip(done.shards, read_shards(FolderStore(tmp_path / "pack"), done), strict=True):
        path = tmp_path / "pack" / f"{listed.name}.tar"
        assert hashlib.sha256(path.read_bytes()).hexdigest() == listed.sha256
        with tarfile.open(path) as tar:
            names = tar.getnames()
            assert names == [f"{n:06d}{end}" for n in range(listed.clips) for end in (".mp4", ".json")]
            for number, member in enumerate(shard.members):
                head = tar.getmember(f"{number:06d}.mp4")
                assert (head.offset_data, head.size) == (member.offset, member.size)
                about = json.load(tar.extractfile(f"{number:06d}.json"))
                assert about["source"] == member.clip.source
                assert (about["frames"], about["fps"]) == (member.clip.frames, 12.0)


def test_left_out_videos_and_shots_are_counted(short_videos, tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    shutil.copy(short_videos / "video00.mp4", videos / "a.mp4")
    shutil.copy(short_videos / "video00.mp4", videos / "b_copy.mp4")
    make_video(videos / "c_static.mp4", 3, static=True)
    make_video(videos / "d_short.mp4", 4, frames=5)
    (videos / "e_torn.mp4").write_bytes((short_videos / "video01.mp4").read_bytes()[:3000])
    counts = packed(videos, tmp_path / "pack").counts
    assert (counts.videos, counts.clips) == (5, 1)
    assert (counts.duplicate, counts.static, counts.short, counts.corrupt) == (1, 1, 1, 1)
    sources = (tmp_path / "pack" / "sources.jsonl").read_text().splitlines()
    assert "e_torn.mp4" in json.loads(sources[4])["cut"]["problem"]


def test_reencoded_video_is_a_duplicate(short_videos, tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    shutil.copy(short_videos / "video00.mp4", videos / "a.mp4")
    with open_video(short_videos / "video00.mp4") as video:
        write_video(videos / "b.mp4", [frame.image for frame in video])
    assert packed(videos, tmp_path / "pack").counts.duplicate == 1


def test_videos_are_split_at_shot_boundaries(short_videos, tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    shots = []
    for name in ("video00.mp4", "video07.mp4", "video11.mp4"):
        with open_video(short_videos / name) as video:
            shots.append([frame.image for frame in video])
    shots[1] = [255 - image for image in shots[1]]
    write_video(videos / "cut.mp4", [image for shot in shots for image in shot])
    done = packed(videos, tmp_path / "pack")
    clips = [member.clip for shard in read_shards(FolderStore(tmp_path / "pack"), done) for member in shard.members]
    assert [clip.frames for clip in clips] == [16, 16, 16]
    assert [clip.start_seconds for clip in clips] == pytest.approx([0, 16 / 12, 32 / 12], abs=0.01)


def test_clips_have_the_requested_size_and_frame_rate(tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    rng = np.random.default_rng(0)
    texture = rng.integers(0, 255, (80, 400, 3), np.uint8).repeat(2, 0).repeat(2, 1)
    write_video(videos / "fast.mp4", [texture[:, 4 * t : 4 * t + 200] for t in range(60)], fps=30)
    done = packed(videos, tmp_path / "pack")
    (shard,) = read_shards(FolderStore(tmp_path / "pack"), done)
    clip = shard.members[0].clip
    assert (clip.frames, clip.width_px, clip.height_px) == (24, 60, 48)
    assert clip.fps == pytest.approx(12, abs=0.1)


@pytest.mark.parametrize("fps", [6, 12, 30])
def test_duration_is_that_of_the_videos_at_any_frame_rate(tmp_path, fps):
    videos = tmp_path / "videos"
    videos.mkdir()
    make_video(videos / "a.mp4", 3, frames=4 * fps, fps=fps)
    assert packed(videos, tmp_path / "pack").counts.seconds == pytest.approx(4, abs=0.1)


def test_single_file_can_be_packed(short_videos, tmp_path):
    done = packed(short_videos / "video00.mp4", tmp_path / "pack")
    assert (done.counts.videos, done.counts.clips) == (1, 1)


def test_new_videos_are_added_without_changing_old_shards(short_videos, tmp_path):
    videos = tmp_path / "videos"
    shutil.copytree(short_videos, videos)
    moved = [videos / f"video{number:02d}.mp4" for number in (3, 9)]
    for path in moved:
        path.rename(tmp_path / path.name)
    before = packed(videos, tmp_path / "pack")
    old = contents(tmp_path / "pack")
    assert packed(videos, tmp_path / "pack") == before
    assert contents(tmp_path / "pack") == old
    for path in moved:
        (tmp_path / path.name).rename(path)
    after = packed(videos, tmp_path / "pack")
    assert after.shards[: len(before.shards)] == before.shards
    assert after.counts.clips == 20
    new = contents(tmp_path / "pack")
    assert all(new[name] == old[name] for name in old if name.startswith("shard"))


def test_other_settings_are_refused(short_videos, tmp_path):
    packed(short_videos, tmp_path / "pack")
    with pytest.raises(SettingsError, match="was packed with other settings"):
        packed(short_videos, tmp_path / "pack", PackConfig(clips=ClipFormat(short_side_px=64), shard_mb=0.01))


def test_pack_on_s3_equals_a_pack_in_a_folder_and_damage_is_found(short_videos, bucket, server, tmp_path):
    done = pack(short_videos, bucket, tmp_path / "work", SMALL)
    packed(short_videos, tmp_path / "folder")
    where = server.root / bucket.name.removeprefix("s3://")
    assert contents(where) == contents(tmp_path / "folder")
    assert check_pack(bucket) == []
    assert read_pack(bucket) == done
    tar = where / f"{done.shards[1].name}.tar"
    content = bytearray(tar.read_bytes())
    content[2000] ^= 1
    tar.write_bytes(content)
    (where / f"{done.shards[2].name}.tar").unlink()
    server.notice()
    assert [problem.split("/")[-1] for problem in check_pack(bucket)] == [
        f"{done.shards[1].name}.tar is not what was packed",
        f"corpus has no {done.shards[2].name}.tar",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../../etc/shard-000000"},
        {"name": "/etc/passwd"},
        {"name": "shard-000000/../x"},
        {"name": ""},
        {"name": 7},
        {"size": -1},
        {"clips": "many"},
    ],
)
def test_shard_names_that_are_paths_are_refused(short_videos, tmp_path, change):
    packed(short_videos / "video00.mp4", tmp_path / "pack")
    path = tmp_path / "pack" / "pack.json"
    listed = json.loads(path.read_text())
    listed["shards"][0] |= change
    path.write_text(json.dumps(listed))
    with pytest.raises(StoreError, match=r"pack\.json cannot be used: .*; pack the videos again"):
        read_pack(FolderStore(tmp_path / "pack"))


@pytest.mark.parametrize("name", ["pack.json", "sources.jsonl", "shard-000000.json"])
@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff\xfe", b"[]", b"3", b'{"timecycle_pack": 2, "config": []}'])
def test_damaged_lists_of_a_pack_raise_a_store_error(short_videos, tmp_path, name, content):
    done = packed(short_videos / "video00.mp4", tmp_path / "pack")
    store = FolderStore(tmp_path / "pack")
    (tmp_path / "pack" / name).write_bytes(content)
    readers = {
        "pack.json": lambda: read_pack(store),
        "sources.jsonl": lambda: packed(short_videos, tmp_path / "pack"),
        "shard-000000.json": lambda: list(read_shards(store, done)),
    }
    with pytest.raises(StoreError, match=name):
        readers[name]()


@pytest.mark.slow  # a real process is killed three times
def test_killed_and_resumed_packing_gives_the_same_shards(short_videos, bucket, server, tmp_path):
    packed(short_videos, tmp_path / "whole", PackConfig(clips=ClipFormat(short_side_px=48), shard_mb=0.02))
    where = server.root / bucket.name.removeprefix("s3://")
    words = [short_videos, bucket.name, "--work", tmp_path / "work", "--shard-mb", "0.02", "--short-side", "48"]
    command = [sys.executable, "-m", "timecycle", "pack", *map(str, words), "--workers", "2"]
    for shards in (1, 3, 5):
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        while len(list(where.glob("*.tar"))) < shards and process.poll() is None:
            time.sleep(0.02)
        assert process.poll() is None, "it ended before it could be killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert contents(where) == contents(tmp_path / "whole")
