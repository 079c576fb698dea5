"""Reading video files: frame i is the same frame however it is read."""

import gc
import os
import random
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from coded_footage import code_of, set_display_matrix, set_edit, write_footage

from timecycle.errors import VideoError
from timecycle.video import Frame, Size, Video, open_video, source
from timecycle.video.cursor import FrameTable
from timecycle.video.decoder import Decoder

X265_SILENT = {"x265-params": "log-level=none"}
VPX_FAST = {"deadline": "realtime", "cpu-used": "8"}

# file name: how it is written
KINDS: dict[str, dict[str, object]] = {
    "b_frames.mp4": {"options": {"bf": "3", "x264-params": "b-pyramid=normal"}},
    "large.mp4": {"options": {"bf": "3", "preset": "ultrafast"}, "height": 720, "width": 1280, "count": 15},
    "open_gop.mp4": {"options": {"x264-params": "open-gop=1:keyint=10:bframes=3:b-adapt=0:scenecut=0"}},
    "open_gop_hevc.mp4": {
        "codec": "libx265",
        "options": {"x265-params": "open-gop=1:keyint=10:bframes=3:b-adapt=0:scenecut=0:log-level=none"},
    },
    "intra_refresh.mp4": {"options": {"x264-params": "intra-refresh=1:keyint=10:bframes=0:scenecut=0"}},
    "fragmented.mp4": {"movflags": "frag_keyframe+empty_moov"},
    "offset.mp4": {"pts": range(48, 78)},
    "ten_bit.mp4": {"pix_fmt": "yuv420p10le"},
    "ten_bit_hevc.mp4": {"codec": "libx265", "pix_fmt": "yuv420p10le", "options": X265_SILENT},
    "grey.mkv": {"codec": "ffv1", "pix_fmt": "gray"},
    "grey16.mkv": {"codec": "ffv1", "pix_fmt": "gray16le"},
    "b_frames.mkv": {"options": {"bf": "3"}},
    "vp8.webm": {"codec": "libvpx", "options": VPX_FAST | {"auto-alt-ref": "1", "lag-in-frames": "16"}},
    "vp9.webm": {"codec": "libvpx-vp9", "options": VPX_FAST | {"lag-in-frames": "16"}},
    "alpha.webm": {"codec": "libvpx-vp9", "pix_fmt": "yuva420p", "options": VPX_FAST},
    "alpha.mov": {"codec": "png", "pix_fmt": "rgba"},
    "odd.webm": {"codec": "libvpx-vp9", "height": 47, "width": 65, "options": VPX_FAST},
    "odd.mov": {"codec": "png", "pix_fmt": "rgb24", "height": 47, "width": 65},
    "mpeg4.avi": {"codec": "mpeg4", "options": {"bf": "2"}},
    "motion_jpeg.avi": {"codec": "mjpeg", "pix_fmt": "yuvj420p"},
    "transport.ts": {"options": {"bf": "3"}},
    "mpeg2.mpg": {"codec": "mpeg2video", "options": {"bf": "2"}},
    "raw.h264": {"options": {"bf": "2"}, "format": "h264"},
    "animation.gif": {"codec": "gif", "pix_fmt": "rgb8"},
    "one.mp4": {"count": 1},
    "one.webm": {"codec": "libvpx-vp9", "count": 1, "options": VPX_FAST},
}


@pytest.fixture(scope="module", params=KINDS)
def footage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A file of every kind with coded frames, and its number of frames."""
    recipe = dict(KINDS[request.param])
    path = tmp_path_factory.mktemp("footage") / request.param
    return write_footage(path, **recipe), int(recipe.get("count", 30))  # type: ignore[arg-type, call-overload]


@pytest.fixture
def b_frames(tmp_path: Path) -> Path:
    return write_footage(tmp_path / "b_frames.mp4", options={"bf": "3", "sc_threshold": "0"})


def codes(frames: list[Frame]) -> list[int]:
    return [code_of(frame.image) for frame in frames]


def assert_consistent(video: Video) -> None:
    """Check that random access and reading backwards give the pixels and times of reading in order."""
    in_order = list(video)
    assert [frame.index for frame in in_order] == list(range(len(video)))
    shuffled = random.Random(0).sample(range(len(video)), len(video))
    for index in [*shuffled, -1]:
        frame = video[index]
        assert frame.index == index % len(video)
        assert frame.pts == in_order[index].pts
        assert np.array_equal(frame.image, in_order[index].image), index
    for frame, expected in zip(video.backwards(), reversed(in_order), strict=True):
        assert frame.index == expected.index
        assert np.array_equal(frame.image, expected.image)


def test_frames_are_indexed_in_the_order_they_were_written(footage: tuple[Path, int]) -> None:
    path, count = footage
    with open_video(path) as video:
        assert len(video) == count
        frames = list(video)
        assert codes(frames) == list(range(count))
        assert [frame.pts for frame in frames] == list(video.pts)
        assert all(later > earlier for earlier, later in zip(video.pts, video.pts[1:], strict=False))
        assert frames[0].image.dtype == np.uint8
        assert frames[0].image.shape == (video.size.height_px, video.size.width_px, 3)


def test_random_access_and_reading_backwards_agree_with_reading_in_order(footage: tuple[Path, int]) -> None:
    with open_video(footage[0]) as video:
        assert_consistent(video)


def test_a_range_of_frames_is_read(b_frames: Path) -> None:
    video = open_video(b_frames)
    assert codes(list(video.frames(7, 23))) == list(range(7, 23))
    assert codes(list(video.frames(29))) == [29]
    assert list(video.frames(5, 5)) == []
    assert codes(list(video.backwards(12))) == list(range(12, -1, -1))


def test_uneven_times_are_kept(tmp_path: Path) -> None:
    pts = [0, 1, 5, 6, 20, 21, 22, 40, 41, 90]
    path = write_footage(tmp_path / "vfr.mp4", count=10, pts=pts, time_base=Fraction(1, 600), options={"bf": "2"})
    video = open_video(path)
    assert [(time - video.pts[0]) * video.time_base * 600 for time in video.pts] == pts
    assert codes(list(video)) == list(range(10))
    assert video[4].time_seconds == pytest.approx(20 / 600)
    assert_consistent(video)


def test_times_are_the_times_of_the_container(tmp_path: Path) -> None:
    video = open_video(write_footage(tmp_path / "transport.ts", pts=range(48, 78)))
    assert video[0].time_seconds > 1.9
    assert video[24].time_seconds - video[0].time_seconds == pytest.approx(1)


def test_an_edit_list_selects_the_frames(b_frames: Path) -> None:
    set_edit(b_frames, skip=4, last=25)
    video = open_video(b_frames)
    assert codes(list(video)) == list(range(4, 4 + len(video)))
    assert 20 <= len(video) <= 22  # the end of an edit is rounded to milliseconds
    assert_consistent(video)


@pytest.mark.parametrize(
    ("matrix", "restore"),
    [
        ((0, 1, -1, 0), lambda image: np.rot90(image, k=-1)),
        ((-1, 0, 0, -1), lambda image: np.rot90(image, k=2)),
        ((0, -1, 1, 0), lambda image: np.rot90(image, k=1)),
        ((-1, 0, 0, 1), lambda image: image[:, ::-1]),
        ((1, 0, 0, -1), lambda image: image[::-1]),
    ],
    ids=["90", "180", "270", "mirrored", "upside down"],
)
def test_frames_are_upright(b_frames: Path, matrix: tuple[int, ...], restore: object) -> None:
    coded = list(open_video(b_frames))
    set_display_matrix(b_frames, matrix)
    video = open_video(b_frames)
    assert video.size == (Size(64, 48) if matrix[0] == 0 else Size(48, 64))
    for shown, frame in zip(video, coded, strict=True):
        assert np.array_equal(shown.image, restore(frame.image))  # type: ignore[operator]
    assert shown.image.flags.c_contiguous


@pytest.mark.parametrize(("matrix", "name"), [(1, "BT.709"), (5, "BT.601")])
def test_colours_follow_the_tags_of_the_stream(tmp_path: Path, matrix: int, name: str) -> None:
    path, red = tmp_path / "colour.mp4", (200, 30, 40)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=24, options={"crf": "1"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.codec_context.colorspace, stream.codec_context.color_range = matrix, 1
        image = np.full((48, 64, 3), red, np.uint8)
        frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format="yuv420p", dst_colorspace=matrix)
        frame.colorspace = matrix
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    assert np.abs(open_video(path)[0].image.reshape(-1, 3).mean(axis=0) - red).max() < 4, name


def test_hidden_vp8_packets_are_not_frames(tmp_path: Path) -> None:
    path = write_footage(tmp_path / "vp8.webm", "libvpx", options=VPX_FAST)
    data = bytearray(path.read_bytes())
    with av.open(str(path)) as container:
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    data[data.index(packets[12][:24])] &= 0b1110_1111  # the bit that marks a visible frame
    path.write_bytes(data)
    video = open_video(path)
    assert len(video) == 29
    assert codes(list(video)) == [*range(12), *range(13, 30)]
    assert_consistent(video)


@pytest.mark.parametrize("wrong", [-1, 1], ids=["a frame too few", "a frame too many at the start"])
def test_a_wrong_frame_table_is_corrected(b_frames: Path, monkeypatch: pytest.MonkeyPatch, wrong: int) -> None:
    from_packets = FrameTable.from_packets

    def wrong_table(decoder: Decoder) -> FrameTable:
        table = from_packets(decoder)
        assert table is not None
        stamps = table.stamps[:-1] if wrong < 0 else [-512, *table.stamps]
        keyframes = table.keyframes if wrong < 0 else [index + 1 for index in table.keyframes]
        return FrameTable(stamps, keyframes, frame_duration=1, certain=False)

    monkeypatch.setattr(FrameTable, "from_packets", wrong_table)
    video = open_video(b_frames)
    assert len(video) == 30 + wrong
    assert codes(list(video)) == list(range(30))
    assert len(video) == 30
    assert code_of(open_video(b_frames)[20].image) in {19, 20}  # decoding from a keyframe does not reveal the error
    assert code_of(video[20].image) == 20


def test_a_recording_may_begin_between_keyframes(tmp_path: Path, b_frames: Path) -> None:
    path = tmp_path / "begun.mkv"
    with av.open(str(b_frames)) as reader, av.open(str(path), "w") as writer:
        stream = writer.add_stream_from_template(reader.streams.video[0])
        for packet in list(reader.demux(video=0))[6:-1]:
            packet.stream = stream
            writer.mux(packet)
    video = open_video(path)
    frames = list(video)
    assert len(frames) == len(video)
    assert codes(frames) == list(range(30 - len(frames), 30))
    assert_consistent(video)


def test_times_increase_even_if_stamps_repeat_or_decrease() -> None:
    table = FrameTable([0, 5, 5, 4, 9], [0, 2], frame_duration=3, certain=True)
    assert table.pts == [0, 5, 6, 7, 9]
    assert table.index_of_keyframe == {0: 0}
    assert list(FrameTable([None, None, None], [0], frame_duration=3, certain=True).pts) == [0, 3, 6]


def test_reading_backwards_keeps_a_bounded_block(b_frames: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    video = open_video(b_frames)
    monkeypatch.setattr(source, "BACKWARDS_BLOCK_BYTES", 4 * video.size.pixels * 3)
    blocks = []
    frames = video.frames

    def recorded(start: int = 0, stop: int | None = None) -> object:
        blocks.append((stop or 0) - start)
        return frames(start, stop)

    monkeypatch.setattr(video, "frames", recorded)
    assert codes(list(video.backwards())) == list(range(29, -1, -1))
    assert max(blocks) == 4


def test_a_block_read_backwards_starts_at_a_keyframe(b_frames: Path) -> None:
    video = open_video(b_frames)
    assert video._block_start(3, 28) == 10
    assert video._block_start(13, 18) == 13


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs a /proc to count open files")
def test_the_number_of_open_files_stays_constant(b_frames: Path) -> None:
    video = open_video(b_frames)
    _ = video[0]
    gc.collect()  # files that failed tests left open must not close while counting
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for index in random.Random(1).choices(range(30), k=150):
        _ = video[index]
        next(video.frames(index))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    video.close()
    assert len(os.listdir("/proc/self/fd")) < before  # noqa: PTH208
    assert code_of(video[3].image) == 3  # a closed video opens again


def test_concurrent_iterations_are_independent(b_frames: Path) -> None:
    video = open_video(b_frames)
    for one, other in zip(video, video, strict=True):
        assert code_of(video[-1].image) == 29
        assert np.array_equal(one.image, other.image)


def test_the_fingerprint_depends_on_the_content_only(b_frames: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.mp4"
    copy.write_bytes(b_frames.read_bytes())
    assert open_video(copy).fingerprint() == open_video(b_frames).fingerprint()
    assert open_video(write_footage(copy, count=3)).fingerprint() != open_video(b_frames).fingerprint()


@pytest.mark.parametrize("index", [30, -31])
def test_an_index_out_of_range_is_refused(b_frames: Path, index: int) -> None:
    with pytest.raises(VideoError, match=rf"has no frame {index}: it has 30 frames; .* 0 to 29"):
        _ = open_video(b_frames)[index]


@pytest.mark.parametrize(("start", "stop"), [(-1, 4), (5, 4), (0, 31)])
def test_a_range_out_of_bounds_is_refused_before_reading(b_frames: Path, start: int, stop: int) -> None:
    with pytest.raises(VideoError, match=f"no frames from {start} to {stop}"):
        open_video(b_frames).frames(start, stop)
    with pytest.raises(VideoError, match="no frame 30 to start from"):
        open_video(b_frames).backwards(30)
