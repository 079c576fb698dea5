"""Clips: frames are exact, all share one crop, and static or unreadable videos are replaced in a fixed order."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from training_footage import HEIGHT, WIDTH, world, write_images

from made_videos import write_video
from timecycle.data.augment.clips import ClipChoice, ClipConfig, ClipReader, choose_clip, clip_motion, read_clip, usable
from timecycle.data.corpus import footage as reading
from timecycle.data.corpus.footage import FolderFootage, read_frames
from timecycle.data.corpus.index import Entry, Index, make_index, read_index
from timecycle.data.corpus.order import generator, sample_at
from timecycle.data.corpus.probe import Box
from timecycle.errors import SettingsError, VideoError
from timecycle.video import open_video
from video.coded_footage import code_of, write_footage

SMALL = ClipConfig(short_side_px=48, crop_px=40)
WHOLE = ClipConfig(short_side_px=HEIGHT, crop_px=HEIGHT)


def entry(**changes: object) -> Entry:
    fields = {"path": "a.mp4", "fingerprint": "", "frames": 30, "fps": 12.0, "width_px": WIDTH, "height_px": HEIGHT}
    return Entry(**{**fields, "box": Box(0, 0, WIDTH, HEIGHT), "motion": 5.0, **changes})


# Exact frames


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("a.mp4", "libx264", {"bf": "3", "b-pyramid": "normal"}),
        ("a.mkv", "libx264", {"x264-params": "open-gop=1:bframes=3"}),
        ("a.webm", "libvpx", {}),
        ("a.webm", "libvpx-vp9", {}),
        ("a.avi", "mpeg4", {}),
    ],
)
def test_frames_equal_those_of_open_video(tmp_path: Path, name: str, codec: str, options: dict[str, str]):
    path = write_footage(tmp_path / name, codec, options=options)
    every = [frame.image for frame in open_video(path)]
    for indices in ([0, 1, 2, 3], [0, 9, 10, 11], [3, 11, 19, 27], [10, 20], [29], [12, 13, 28, 29]):
        images = read_frames(path, indices)
        assert [code_of(image) for image in images] == indices
        assert all(np.array_equal(image, every[index]) for image, index in zip(images, indices, strict=True))


def test_h264_frames_that_are_not_requested_are_not_all_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_footage(tmp_path / "a.mp4", options={"bf": "3"}, gop=30)
    monkeypatch.setattr(reading, "open_video", None)
    with reading._PacketDecoder(path, max_pixels=10_000) as decoder:
        packets = list(decoder._checked_packets())
        decoded = list(decoder._decoded(packets, {packets[0].pts}))
    assert len(decoded) < len(packets) * 0.8
    assert [code_of(image) for image in read_frames(path, [1, 17, 18])] == [1, 17, 18]


def test_late_frames_are_read_through_the_table_of_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_footage(tmp_path / "a.mp4")
    monkeypatch.setattr(reading, "_MAX_PACKETS", 20)
    assert [code_of(image) for image in read_frames(path, [3, 28])] == [3, 28]


def test_folder_of_images_gives_the_requested_files(tmp_path: Path):
    images = list(world(frames=6).frames())
    folder = write_images(tmp_path / "frames", images)
    assert np.array_equal(read_frames(folder, [1, 4]), [images[1], images[4]])
    with pytest.raises(VideoError, match="no frame 6: it has 6 images; make the index again"):
        read_frames(folder, [1, 6])


# Choosing


def test_frames_are_evenly_spaced_and_the_crop_lies_inside():
    gaps = []
    for position in range(300):
        choice = choose_clip(entry(), SMALL, generator(seed=0, epoch=0, position=position))
        steps = np.diff(choice.frames)
        assert len(choice.frames) == 4
        assert len(set(steps)) == 1
        assert 0 <= choice.frames[0] < choice.frames[-1] < 30
        assert 0 <= choice.left_px <= 72 - 40
        assert 0 <= choice.top_px <= 48 - 40
        gaps.append(steps[0])
    assert set(gaps) == set(range(1, 9))
    assert np.median(gaps) == 3  # log-uniform: the median is near the geometric mean of 1 and 8


def test_zoom_enlarges_the_image_and_keeps_the_crop_size(videos: Path, index: Index):
    config = ClipConfig(short_side_px=48, crop_px=40, zoom=(1.0, 2.0))
    sides = []
    for position in range(100):
        choice = choose_clip(index.entries[0], config, generator(seed=0, epoch=0, position=position))
        assert choice.top_px <= choice.short_side_px - 40
        sides.append(choice.short_side_px)
    assert 48 <= min(sides) < 51
    assert 64 < np.median(sides) < 72  # log-uniform
    assert 93 < max(sides) <= 96
    assert read_clip(videos / index.entries[0].path, index.entries[0], choice, config).shape == (4, 40, 40, 3)


def test_gap_shrinks_in_a_short_video():
    for position in range(20):
        rng = generator(seed=0, epoch=0, position=position)
        assert choose_clip(entry(frames=4, fps=100.0), SMALL, rng).frames == (0, 1, 2, 3)
    assert usable([entry(frames=3), entry(motion=0.1), entry()], SMALL) == [entry()]
    with pytest.raises(VideoError, match=r"a\.mp4 has 3 frames, a clip 4; leave the video out"):
        choose_clip(entry(frames=3), SMALL, generator(seed=0, epoch=0, position=0))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"crop_px": 200}, "crop_px is 200 and the short side may be 160; give a crop that fits"),
        ({"zoom": (0.75, 1.0)}, "crop_px is 128 and the short side may be 120"),
        ({"zoom": (2.0, 1.0)}, "the smallest, then the largest zoom"),
        ({"frames": 1}, "give at least 2 frames"),
        ({"gap_seconds": (1.0, 0.5)}, "the shortest, then the longest gap"),
    ],
)
def test_invalid_settings_are_refused(changes: dict[str, object], text: str):
    with pytest.raises(SettingsError, match=text):
        ClipConfig(**changes)


# Reading


def test_clip_at_full_size_is_an_exact_crop(videos: Path, index: Index):
    first = index.entries[0]
    every = [frame.image for frame in open_video(videos / first.path)]
    plain = read_clip(videos / first.path, first, ClipChoice((2, 5), HEIGHT, 11, 0, False), WHOLE)
    mirrored = read_clip(videos / first.path, first, ClipChoice((2, 5), HEIGHT, 11, 0, True), WHOLE)
    expected = np.stack([every[2], every[5]])[:, :, 11 : 11 + HEIGHT]
    assert np.array_equal(plain, expected)
    assert np.array_equal(mirrored, expected[:, :, ::-1])


def test_resized_crop_equals_a_crop_of_the_resized_image(videos: Path, index: Index):
    first = index.entries[0]
    clip = read_clip(videos / first.path, first, ClipChoice((3, 4), 48, 20, 5, False), SMALL)
    picture = Image.fromarray(open_video(videos / first.path)[3].image)
    resized = np.asarray(picture.resize((72, 48), Image.Resampling.BILINEAR))
    difference = np.abs(clip[0].astype(int) - resized[5:45, 20:60])
    assert difference.max() <= 2  # both round twice, and at this scale many pixels lie half-way between two levels
    assert difference.mean() < 0.2


def test_clips_never_contain_black_bars(tmp_path: Path):
    images = [np.pad(image, ((16, 16), (32, 32), (0, 0))) for image in world().frames()]
    write_video(tmp_path / "a.mp4", images)
    (barred,) = make_index(tmp_path, tmp_path / "index.jsonl").entries
    for choice in (ClipChoice((0, 1), HEIGHT, 0, 0, False), ClipChoice((0, 1), HEIGHT, WIDTH - HEIGHT, 0, False)):
        clip = read_clip(tmp_path / barred.path, barred, choice, WHOLE)
        left = 32 + choice.left_px
        assert np.abs(clip[0].astype(int) - images[0][16:-16, left : left + HEIGHT]).mean() < 6
        assert clip[0, :, [0, -1]].mean() > 30


def test_file_whose_size_differs_from_the_index_is_refused(videos: Path):
    name = next(videos.iterdir()).name
    with pytest.raises(VideoError, match="is 96x64 but its index says 100x64; make the index again"):
        read_clip(videos / name, entry(path=name, width_px=100), ClipChoice((0, 1), 48, 0, 0, False), SMALL)


# The reader


def read_all(reader: ClipReader, *, seed: int = 0, epochs: int = 1) -> dict[tuple[int, int], bytes]:
    keys = [(epoch, position) for epoch in range(epochs) for position in range(len(reader))]
    clips = {}
    for epoch, position in reversed(keys):
        clip = reader.read(epoch, position, generator(seed=seed, epoch=epoch, position=position))
        clips[epoch, position] = clip.path.encode() + clip.frames.tobytes()
    return clips


def test_clip_depends_only_on_seed_epoch_and_position(videos: Path, index: Index):
    one, other = (ClipReader(FolderFootage(videos, usable(index.entries, SMALL)), SMALL, seed=0) for _ in range(2))
    clips = read_all(one, epochs=2)
    key, clip = (1, 3), other.read(1, 3, generator(seed=0, epoch=1, position=3))
    assert clips[key] == clip.path.encode() + clip.frames.tobytes()
    assert len(set(clips.values())) == len(clips)
    for epoch in range(2):
        paths = {clips[epoch, position][:19] for position in range(len(one))}
        assert len(paths) == len(index.entries)


@pytest.fixture
def mixed(tmp_path: Path) -> tuple[Path, Index]:
    """Three moving videos, and one that moves only at its start: it is not static in the index."""
    folder = tmp_path / "mixed"
    for number in range(3):
        write_video(folder / f"moving{number}.mp4", world(number).frames())
    jump = [world(1).frame(0), *[world(2).frame(0)] * 199]
    write_video(folder / "static.mp4", jump)
    return folder, make_index(folder, tmp_path / "index.jsonl")


def test_static_clips_are_replaced_by_the_next_video(mixed: tuple[Path, Index]):
    folder, index = mixed
    assert not any(item.is_static for item in index.entries)
    config = ClipConfig(short_side_px=48, crop_px=40, min_motion=0.5, tries=2)
    reader = ClipReader(FolderFootage(folder, usable(index.entries, config)), config, seed=0)
    order = [
        usable(index.entries, config)[sample_at(seed=0, epoch=0, position=position, count=4)].path
        for position in range(4)
    ]
    for position, name in enumerate(order):
        clip = reader.read(0, position, generator(seed=0, epoch=0, position=position))
        assert clip_motion(clip.frames) >= 0.5
        assert clip.path == (order[(position + 1) % 4] if name == "static.mp4" else name)
    assert reader.unreadable == {}


def test_videos_without_motion_are_refused_with_a_remedy(mixed: tuple[Path, Index]):
    folder, index = mixed
    config = ClipConfig(short_side_px=48, crop_px=40, min_motion=254)
    reader = ClipReader(FolderFootage(folder, usable(index.entries, config)), config, seed=0)
    with pytest.raises(VideoError, match=r"motion above 254 was found in any of 4 videos .*; lower clips.min_motion"):
        reader.read(0, 0, generator(seed=0, epoch=0, position=0))
    with pytest.raises(VideoError, match=r"none of the videos below .* has 4 frames and motion; give other videos"):
        ClipReader(FolderFootage(folder, usable([], config)), config, seed=0)


def test_video_that_became_unreadable_is_counted_and_replaced(videos: Path, index: Index, tmp_path: Path):
    folder = Path(shutil.copytree(videos, tmp_path / "videos"))
    broken = index.entries[1].path
    (folder / broken).write_bytes(b"")
    reader = ClipReader(FolderFootage(folder, usable(index.entries, SMALL)), SMALL, seed=0)
    clips = read_all(reader)
    assert reader.unreadable == {1: f"{folder / broken} is empty (0 bytes)"}
    assert clips == read_all(ClipReader(FolderFootage(folder, usable(index.entries, SMALL)), SMALL, seed=0))
    untouched = read_all(ClipReader(FolderFootage(videos, usable(index.entries, SMALL)), SMALL, seed=0))
    assert sum(clips[key] != untouched[key] for key in clips) == 1
    (folder / index.entries[3].path).unlink()
    with pytest.raises(
        VideoError, match=r"2 of 5 videos cannot be read any more; the last: .*; check the disk or store"
    ):
        read_all(reader)


@pytest.mark.data
def test_clips_of_real_footage(data: Path, tmp_path: Path):
    source = data / "raw_video" / "davis2017_train"
    if not source.is_dir():
        pytest.skip("the folder of real footage has no raw_video/")
    for name in ("bear.mp4", "bus.mp4"):
        (tmp_path / name).symlink_to(source / name)
    make_index(tmp_path, tmp_path / "index.jsonl")
    entries = read_index(tmp_path / "index.jsonl").entries
    reader = ClipReader(FolderFootage(tmp_path, usable(entries, ClipConfig())), ClipConfig(), seed=0)
    for position in range(2):
        clip = reader.read(0, position, generator(seed=0, epoch=0, position=position))
        assert clip.frames.shape == (4, 128, 128, 3)
        video = open_video(tmp_path / clip.path)
        images = read_frames(tmp_path / clip.path, clip.choice.frames)
        exact = [video[index].image for index in clip.choice.frames]
        assert all(np.array_equal(image, other) for image, other in zip(images, exact, strict=True))
