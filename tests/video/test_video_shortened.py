"""A damaged video is refused unless damage is allowed, and never read as a shorter one; intact videos are read."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import av
import av.logging
import numpy as np
import pytest
from coded_footage import code_of, write_footage

from timecycle.errors import VideoError
from timecycle.video import Video, decoder, open_video
from timecycle.video.completeness import index_matches_chunks
from timecycle.video.damage import capture_messages
from timecycle.video.matroska_file import walk_matroska
from timecycle.video.mp4_file import walk_mp4

VPX_FAST = {"deadline": "realtime", "cpu-used": "8"}
FRAMES = 24  # of every video in the folder `damaged`
STRUCTURED = ("h264.mp4", "h264fast.mov", "h264frag.mp4", "h264.mkv", "vp9.webm", "mpeg4.avi")


def mutants(data: bytes, name: str, count: int) -> list[bytes]:
    """Copies with a flipped bit, a block of zeros, a hole or a missing end."""
    made = []
    for number in range(count):
        chance = random.Random(f"{name}/{number}")
        mutant, at = bytearray(data), chance.randrange(len(data))
        block = chance.choice([16, 256, 1024])
        match chance.choice(["flip", "flip", "zeros", "hole", "cut"]):
            case "flip":
                mutant[at] ^= 1 << chance.randrange(8)
            case "zeros":
                mutant[at : at + block] = bytes(len(mutant[at : at + block]))
            case "hole":
                del mutant[at : at + block]
            case _:
                del mutant[max(at, 1) :]
        made.append(bytes(mutant))
    return made


def by_index(video: Video) -> dict[int, bytes]:
    return {index: video[index].image.tobytes() for index in (len(video) - 1, 0, len(video) // 2)}


@pytest.mark.parametrize("name", STRUCTURED)
def test_a_mutant_is_refused_or_all_its_frames_are_read_consistently(data: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for mutant in mutants((data / "damaged" / "intact" / name).read_bytes(), name, 30):
        path.write_bytes(mutant)
        try:
            with open_video(path) as video:
                images = [frame.image.tobytes() for frame in video]
            with open_video(path) as video:
                indexed = by_index(video)
        except VideoError:
            continue
        assert len(images) == FRAMES
        assert all(images[index] == image for index, image in indexed.items())


def test_intact_videos_of_every_kind_are_read(data: Path) -> None:
    images = {".png", ".bmp", ".tif", ".npy", ".csv"}
    paths = [path for path in (data / "damaged" / "intact").iterdir() if path.suffix not in images]
    assert len(paths) == 23
    for path in paths:
        with open_video(path) as video:
            assert (sum(1 for _ in video), video.damage) == (FRAMES, None), path.name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("oneflip.avi", "only 23 of its 24 frames are there"),
        ("oneflip.mkv", "the element 1f43be75 at byte"),
        ("oneflip.webm", "Invalid track number 65"),
    ],
)
def test_one_flipped_bit_is_an_error_unless_damage_is_allowed(data: Path, name: str, problem: str) -> None:
    path = data / "damaged" / name
    with pytest.raises(VideoError, match=f"{name} is damaged: .*{problem}.*; copy it again .*--allow-damaged"):
        len(open_video(path))
    with open_video(path, allow_damaged=True) as video:
        images = [frame.image.tobytes() for frame in video]
        assert 0 < len(images) == len(video) < FRAMES
        assert all(images[index] == image for index, image in by_index(video).items())
        assert problem in (video.damage or "")


def test_a_checksum_of_matroska_reveals_a_flipped_bit_of_a_frame(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "a.mkv")
    assert walk_matroska(path).damage is None
    data = bytearray(path.read_bytes())
    with av.open(str(path)) as container:
        packet = [bytes(packet) for packet in container.demux(video=0) if packet.size][12]
    data[data.index(packet) + len(packet) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(VideoError, match=r"the element at byte \d+ does not match its checksum"):
        len(open_video(path))


@pytest.mark.parametrize(
    ("box", "movflags", "problem"),
    [
        (b"mdhd", "faststart", "a track has no media header"),
        (b"trun", "frag_keyframe+empty_moov", r"the fragment at byte \d+ lists no frames of track 1"),
    ],
)
def test_a_box_with_a_damaged_name_is_an_error(tmp_path: Path, box: bytes, movflags: str, problem: str) -> None:
    path = write_footage(tmp_path / "a.mp4", movflags=movflags)
    assert walk_mp4(path).damage is None
    path.write_bytes(path.read_bytes().replace(box, b"free", 1))
    with pytest.raises(VideoError, match=problem):
        len(open_video(path))


def is_consistent(path: Path) -> bool:
    """Return whether every frame is the same by index and in order."""
    with open_video(path) as video:
        images = [frame.image.tobytes() for frame in video]
    with open_video(path) as video:
        return all(video[index].image.tobytes() == images[index] for index in reversed(range(len(images))))


@pytest.mark.parametrize("entry", [3, 7])
def test_an_avi_with_a_damaged_index_gives_the_same_frames_by_index_and_in_order(tmp_path: Path, entry: int) -> None:
    path = write_footage(tmp_path / "a.avi", codec="mjpeg", pix_fmt="yuvj420p")
    assert index_matches_chunks(path)
    data = bytearray(path.read_bytes())
    start = data.index(b"idx1") + 8 + 16 * entry
    data[start : start + 4] = b"99zz"
    path.write_bytes(data)
    assert not index_matches_chunks(path)
    assert is_consistent(path)


def test_the_index_of_a_truncated_avi_can_be_compared(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "a.avi", codec="mjpeg", pix_fmt="yuvj420p")
    data = path.read_bytes()
    for length in range(0, len(data), 13):
        path.write_bytes(data[:length])
        index_matches_chunks(path)


def test_a_wrong_time_does_not_change_the_frame_at_an_index(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "a.webm", codec="libvpx", options=VPX_FAST)
    with av.open(str(path)) as container:
        first = next(packet for packet in container.demux(video=0) if packet.size)
    data = bytearray(path.read_bytes())
    time = data.index(bytes(first)) - 3  # of a SimpleBlock: track, time (2 bytes), flags, frame
    data[time : time + 2] = (512).to_bytes(2, "big")
    path.write_bytes(data)
    assert is_consistent(path)


def test_a_fragment_without_header_is_an_error(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "a.mp4", movflags="frag_keyframe+empty_moov")
    assert (walk_mp4(path).damage, walk_mp4(path).tracks[1].frames) == (None, 30)
    data = path.read_bytes()
    second = data.index(b"moof", data.index(b"moof") + 1)
    path.write_bytes(data[:second] + b"free" + data[second + 4 :])
    with pytest.raises(VideoError, match=r"the frames at byte \d+ have no fragment header"):
        len(open_video(path))


def test_a_truncated_file_is_read_if_damage_is_allowed(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "a.mkv")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.raises(VideoError, match=r"is cut short.*--allow-damaged"):
        open_video(path)
    with open_video(path, allow_damaged=True) as video:
        codes = [code_of(frame.image) for frame in video]
        assert codes == list(range(len(codes)))
        assert 5 < len(codes) < 30
        assert "is cut short" in (video.damage or "")


def test_frames_after_a_broken_one_are_read_if_damage_is_allowed(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "a.mp4", "libvpx-vp9", options=VPX_FAST)
    data = bytearray(path.read_bytes())
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    at = packets[5].pos
    assert at is not None
    data[at : at + packets[5].size] = bytes(packets[5].size)
    path.write_bytes(data)
    with pytest.raises(VideoError):
        list(open_video(path))
    with open_video(path, allow_damaged=True) as video:
        codes = [code_of(frame.image) for frame in video]
        assert {*range(5), *range(10, 30)} <= set(codes)
        assert video.damage


def test_real_footage_is_read_without_damage(data: Path) -> None:
    """One video of every folder; all of them were tried when the rules were made."""
    folders = [folder for kind in ("open_video", "raw_video") for folder in sorted((data / kind).iterdir())]
    paths = [sorted(folder.glob("*.mp4"))[0] for folder in folders if list(folder.glob("*.mp4"))]
    paths += (data / "mirror_mouse" / "videos").glob("*.mp4")
    for path in paths:
        with open_video(path) as video:
            assert len(video) > 0
            _ = video[len(video) // 2]


@pytest.mark.parametrize("name", ["a.mkv", "a.avi", "large.mp4"])
def test_threads_that_share_a_video_read_the_same_frames(tmp_path: Path, name: str) -> None:
    size = {"height": 720, "width": 1280, "count": 12} if name == "large.mp4" else {}
    path = write_footage(tmp_path / name, "mpeg4" if name == "a.avi" else "libx264", **size)  # type: ignore[arg-type]
    with open_video(path) as video:
        alone = [frame.image for frame in video]

    def iterate(_: int) -> bool:
        return all(np.array_equal(frame.image, alone[frame.index]) for frame in video)

    def pick(seed: int) -> bool:
        chance = random.Random(seed)
        indices = [chance.randrange(len(alone)) for _ in range(12)]
        return all(np.array_equal(video[index].image, alone[index]) for index in indices)

    with open_video(path) as video, ThreadPoolExecutor(8) as pool:
        done = [pool.submit(iterate if seed % 2 else pick, seed) for seed in range(8)]
        assert all(future.result() for future in done)


def test_the_log_settings_are_restored_after_capturing(data: Path) -> None:
    before = av.logging.get_level(), av.logging.get_skip_repeated()
    for _ in range(2):  # FFmpeg must log the same message a second time
        with pytest.raises(VideoError, match="Invalid track number"):
            len(open_video(data / "damaged" / "oneflip.webm"))
    assert (av.logging.get_level(), av.logging.get_skip_repeated()) == before


def test_only_messages_of_the_own_thread_are_captured() -> None:
    with ThreadPoolExecutor(1) as pool, capture_messages() as messages:
        pool.submit(av.logging.log, av.logging.ERROR, "other", "of another video").result()
        av.logging.log(av.logging.ERROR, "own", "of this one")
    assert [message[1:] for message in messages] == [("own", "of this one")]


def test_a_frame_size_too_large_for_the_file_is_refused_before_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_footage(tmp_path / "a.mp4", count=1)
    monkeypatch.setattr(decoder, "_ALWAYS_CREDIBLE", 64 * 48 - 1)
    assert len(open_video(path)) == 1
    monkeypatch.setattr(decoder, "_PIXELS_PER_BYTE", 0.001)
    bytes_held = path.stat().st_size
    with pytest.raises(
        VideoError, match=f"declares frames of 64x48, which {bytes_held} bytes cannot hold; .*max_pixels"
    ):
        open_video(path)
    assert len(open_video(path, max_pixels=64 * 48)) == 1
