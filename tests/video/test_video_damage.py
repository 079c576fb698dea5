"""A damaged file gives a one-line error; a video is never silently shorter than it was."""

import contextlib
import random
import struct
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
from coded_footage import write_footage
from PIL import Image

from timecycle.errors import VideoError
from timecycle.video import open_video
from timecycle.video.completeness import check_not_truncated

VPX_FAST = {"deadline": "realtime", "cpu-used": "8"}

# Containers that declare their length.
BOUNDED: dict[str, dict[str, object]] = {
    "fast.mp4": {"movflags": "faststart", "options": {"bf": "3"}},
    "slow.mp4": {},
    "fragmented.mp4": {"movflags": "frag_keyframe+empty_moov"},
    "vp8.webm": {"codec": "libvpx", "options": VPX_FAST},
    "vp9.webm": {"codec": "libvpx-vp9", "options": VPX_FAST},
    "h264.mkv": {"options": {"bf": "3"}},
    "mpeg4.avi": {"codec": "mpeg4"},
    "animation.gif": {"codec": "gif", "pix_fmt": "rgb8"},
}


def read_all(path: Path) -> int:
    """Decode all frames and return their number."""
    with open_video(path) as video:
        assert len(list(video)) == len(video)
        return len(video)


@pytest.fixture(scope="module", params=BOUNDED)
def intact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("intact") / request.param
    return write_footage(path, **BOUNDED[request.param])  # type: ignore[arg-type]


@pytest.mark.parametrize("fraction", [0.02, 0.3, 0.5, 0.9, 0.99, 0.999])
def test_a_truncated_file_is_refused_unless_no_frame_is_lost(intact: Path, tmp_path: Path, fraction: float) -> None:
    data = intact.read_bytes()
    cut = tmp_path / intact.name
    cut.write_bytes(data[: int(len(data) * fraction)])
    with contextlib.suppress(VideoError):
        assert read_all(cut) == 30


def test_the_error_of_a_truncated_file_says_how_much_is_missing(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "fast.mp4", movflags="faststart")
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    actual, declared = len(data) - 100, len(data)
    with pytest.raises(VideoError, match=f"cut short: {actual} of {declared} bytes.*copy it again.*ffmpeg -i IN"):
        open_video(path)


def test_padding_after_an_intact_file_is_ignored(intact: Path, tmp_path: Path) -> None:
    padded = tmp_path / intact.name
    padded.write_bytes(intact.read_bytes() + bytes(700))
    assert read_all(padded) == 30


@pytest.mark.parametrize("slices", [1, 4])
def test_a_stream_that_ends_within_a_frame_is_refused(tmp_path: Path, slices: int) -> None:
    options = {"crf": "4", "x264-params": f"slices={slices}:sliced-threads=0"}
    path = write_footage(tmp_path / "h264.ts", options=options, height=240, width=320)
    with av.open(str(path)) as container:
        keyframe = [packet for packet in container.demux(video=0) if packet.is_keyframe][1]
    assert keyframe.pos is not None
    within = keyframe.pos + keyframe.size // 9
    data = path.read_bytes()
    path.write_bytes(data[: within - within % 188 + 60])
    with pytest.raises(VideoError, match="is cut short"):
        open_video(path)
    path.write_bytes(data[: within - within % 188])
    with pytest.raises(VideoError, match=r"is damaged: near (\d+\.\d+ s|its end) the decoder says: error while"):
        read_all(path)


@pytest.mark.parametrize(
    ("head", "declared"),
    [
        (struct.pack(">I4sIIQ", 16, b"ftyp", 0, 0, 0), 0),
        (struct.pack(">I4sQI4sQ", 16, b"ftyp", 0, 1, b"mdat", 5_000_000_000), 5_000_000_016),
        (struct.pack(">I4sQI4s", 16, b"ftyp", 0, 0, b"mdat"), 0),
        (b"RIFF" + struct.pack("<I", 100), 108),
        (b"RIFF" + struct.pack("<I", 0), 0),
        (b"\x1a\x45\xdf\xa3\x81\x00\x18\x53\x80\x67\x42\x00", 524),
        (b"\x1a\x45\xdf\xa3\x81\x00\x18\x53\x80\x67\x01" + b"\xff" * 7, 0),
        (b"\x1a\x45\xdf\xa3\x81\x00no segment", 0),
        (b"\x1a\x45\xdf\xa3", 0),
        ((b"\x47" + bytes(187)) * 6, 0),
        ((b"\x47" + bytes(187)) * 6 + b"\x47", 7 * 188),
        ((bytes(4) + b"\x47" + bytes(187)) * 6 + bytes(9), 7 * 192),
        (b"\x47 of something else", 0),
    ],
)
def test_the_declared_length_is_read(tmp_path: Path, head: bytes, declared: int) -> None:
    path = tmp_path / "head"
    path.write_bytes(head)
    if declared:
        with pytest.raises(VideoError, match=f"cut short: {len(head)} of {declared} bytes"):
            check_not_truncated(path)
    else:
        check_not_truncated(path)


def test_damage_in_the_middle_is_reported(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "holed.mp4", options={"bf": "3"})
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    data = bytearray(path.read_bytes())
    start, size = packets[10].pos, packets[10].size
    assert start is not None
    data[start + 5 : start + size] = bytes(size - 5)
    path.write_bytes(data)
    assert len(open_video(path)) == 30
    with pytest.raises(VideoError, match=r"holed\.mp4 (is damaged|cannot be decoded): .*ffmpeg -i IN"):
        read_all(path)


def test_a_frame_that_the_decoder_skips_is_an_error(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "gap.webm", "libvpx-vp9", options=VPX_FAST)
    data = bytearray(path.read_bytes())
    with av.open(str(path)) as container:
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    data[data.index(packets[12][:24])] &= 0b1111_1101  # the bit of VP9 that marks a visible frame
    path.write_bytes(data)
    with pytest.raises(VideoError, match="only 29 of its 30 frames can be decoded, not frame 12"):
        read_all(path)


def write_resized(path: Path) -> Path:
    """Two raw H.264 streams of different sizes, one after the other."""
    streams = [
        write_footage(path.with_name(f"{height}.h264"), count=5, height=height).read_bytes() for height in (48, 64)
    ]
    path.write_bytes(b"".join(streams))
    return path


def test_a_change_of_size_is_refused(tmp_path: Path) -> None:
    path = write_resized(tmp_path / "grows.h264")
    with pytest.raises(VideoError, match=r"changes its size from 64x48 to 64x64 .*at one size"):
        read_all(path)


def test_the_pixel_limit_also_applies_inside_the_stream(tmp_path: Path) -> None:
    path = write_resized(tmp_path / "grows.h264")
    with pytest.raises(VideoError, match="cannot be decoded"):
        list(open_video(path, max_pixels=64 * 50))


def test_too_many_pixels_are_refused_before_decoding(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "large.mp4", count=1)
    with pytest.raises(VideoError, match=r"is 64x48, more than 3000 pixels; shrink .* or raise max_pixels"):
        open_video(path, max_pixels=3000)


def write_sound(path: Path) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        sound.rate = 16000
        container.mux(stream.encode(sound))
        container.mux(stream.encode(None))


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("missing.mp4", lambda path: None, "there is no file or folder .*missing.mp4; check the path"),
        ("empty.mp4", lambda path: path.write_bytes(b""), r"is empty \(0 bytes\); copy or record it again"),
        ("text.mp4", lambda path: path.write_text("hello\n" * 99), "cannot be decoded: .*; if it is a video"),
        ("text.txt", lambda path: path.write_text("hello\n" * 99), "cannot be decoded"),
        ("noise.webm", lambda path: path.write_bytes(random.Random(0).randbytes(9999)), "cannot be decoded"),
        ("sound.mp4", write_sound, "has no video stream .*; pass a file that contains video"),
        (
            "list.m3u8",
            lambda path: path.write_text("#EXTM3U\n#EXTINF:1,\n/etc/passwd\n"),
            "cannot be decoded",
        ),
        (
            "list.ffconcat",
            lambda path: path.write_text("ffconcat version 1.0\nfile x.mp4\n"),
            "cannot be decoded",
        ),
        ("text.png", lambda path: path.write_text("hello"), "cannot be read as an image"),
        ("empty.jpg", lambda path: path.write_bytes(b""), "cannot be read as an image"),
    ],
)
def test_a_file_that_is_no_video_is_an_error(
    tmp_path: Path, name: str, make: Callable[[Path], object], message: str
) -> None:
    make(tmp_path / name)
    with pytest.raises(VideoError, match=message):
        open_video(tmp_path / name)


def test_a_file_removed_after_opening_is_an_error(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "gone.mp4", count=2)
    video = open_video(path)
    path.unlink()
    with pytest.raises(VideoError, match=r"gone\.mp4 cannot be read"):
        video.fingerprint()
    with pytest.raises(VideoError, match=r"gone\.mp4 cannot be decoded: No such file"):
        list(video)


def test_a_file_without_read_permission_is_an_error(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "locked.mp4", count=2)
    path.chmod(0)
    try:
        path.open("rb").close()
    except PermissionError:
        with pytest.raises(VideoError, match=r"cannot be read: Permission denied; .*you may read"):
            open_video(path)
    else:
        pytest.skip("this user may read everything")


def test_a_name_may_look_like_a_protocol_or_a_pattern(tmp_path: Path) -> None:
    for name in ("http:[1]%03d.mp4", "a b'c.mp4"):
        assert read_all(write_footage(tmp_path / "plain.mp4", count=2).rename(tmp_path / name)) == 2


def write_image(path: Path) -> Path:
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)).save(path)
    return path


TINY: dict[str, Callable[[Path], Path]] = {
    "a.mp4": lambda path: write_footage(path, count=5, height=32, width=32, options={"bf": "2"}),
    "a.mkv": lambda path: write_footage(path, count=5, height=32, width=32),
    "a.webm": lambda path: write_footage(path, "libvpx", count=5, height=32, width=32, options=VPX_FAST),
    "a.avi": lambda path: write_footage(path, "mpeg4", count=5, height=32, width=32),
    "a.ts": lambda path: write_footage(path, "mpeg2video", count=9),
    "a.gif": lambda path: write_footage(path, "gif", pix_fmt="rgb8", count=5, height=32, width=32),
    "a.png": write_image,
    "a.jpg": write_image,
    "a.tif": write_image,
    "a.webp": write_image,
}


@pytest.mark.parametrize("name", TINY)
def test_mutated_files_give_frames_or_a_video_error(tmp_path: Path, name: str) -> None:
    """Try forty mutants of each file, mostly with changes in the header."""
    original = TINY[name](tmp_path / name)
    assert read_all(original) > 0
    data = original.read_bytes()
    chance = random.Random(name)
    for _ in range(40):
        mutant = bytearray(data)
        for _ in range(chance.choice([1, 3, 10])):
            at = chance.randrange(min(len(data), chance.choice([64, 1024, len(data)])))
            mutant[at] = chance.choice([0, 255, mutant[at] ^ 1 << chance.randrange(8), chance.randrange(256)])
        path = tmp_path / f"mutant{Path(name).suffix}"
        path.write_bytes(mutant)
        with contextlib.suppress(VideoError):
            video = open_video(path, max_pixels=1 << 20)
            for frame in video:
                assert frame.image.shape == (video.size.height_px, video.size.width_px, 3)
            _ = video[len(video) - 1]
