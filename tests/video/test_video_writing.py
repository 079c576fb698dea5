"""A written video is read back with exact times; a failed one leaves no file."""

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from coded_footage import code_of, coded_image, write_footage

from timecycle.errors import OutputError
from timecycle.video import Size, VideoWriter, open_video, writer

SIZE = Size(48, 64)


def write(path: Path, pts: Iterable[int], time_base: Fraction, size: Size = SIZE) -> Path:
    with VideoWriter(path, size, time_base) as video:
        for index, time in enumerate(pts):
            video.write(coded_image(index, height=size.height_px, width=size.width_px), time)
    return path


def seconds(path: Path) -> list[Fraction]:
    video = open_video(path)
    return [(pts - video.pts[0]) * video.time_base for pts in video.pts]


@pytest.mark.parametrize(
    "time_base",
    [Fraction(1, 24), Fraction(1001, 30000), Fraction(1, 1000), Fraction(1, 90000), Fraction(100, 2997)],
    ids=str,
)
def test_times_are_kept_exactly(tmp_path: Path, time_base: Fraction) -> None:
    pts = [7, 8, 12, 13, 40, 41, 45, 100, 101, 102]
    path = write(tmp_path / "out.mp4", pts, time_base)
    assert seconds(path) == [(time - 7) * time_base for time in pts]
    assert [code_of(frame.image) for frame in open_video(path)] == list(range(10))


def test_a_copy_of_uneven_footage_keeps_its_times(tmp_path: Path) -> None:
    pts = [0, 40, 41, 90, 91, 92, 300]
    original = write_footage(tmp_path / "in.mkv", count=7, pts=pts, time_base=Fraction(1, 1000), options={"bf": "2"})
    with open_video(original) as video, VideoWriter(tmp_path / "out.mp4", video.size, video.time_base) as out:
        for frame in video:
            out.write(frame.image, frame.pts)
    assert seconds(tmp_path / "out.mp4") == seconds(original)


@pytest.mark.parametrize(("pts", "length"), [([0, 1, 2], 3), ([0, 10, 30], 50), ([5], 1)])
def test_the_last_frame_lasts_as_long_as_the_one_before(tmp_path: Path, pts: list[int], length: int) -> None:
    path = write(tmp_path / "out.mp4", pts, Fraction(1, 24))
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.duration is not None
        assert stream.time_base is not None
        assert stream.duration * stream.time_base == Fraction(length, 24)


def test_odd_sizes_are_padded_by_repeating_the_edge(tmp_path: Path) -> None:
    path = write(tmp_path / "odd.mp4", range(4), Fraction(1, 24), size=Size(47, 63))
    video = open_video(path)
    assert video.size == SIZE
    assert [code_of(frame.image) for frame in video] == [0, 1, 2, 3]
    image = video[0].image.astype(int)
    assert np.abs(image[-1] - image[-2]).mean() < 10


def test_the_file_is_tagged_h264_with_exact_colours(tmp_path: Path) -> None:
    red = np.full((48, 64, 3), (200, 30, 40), np.uint8)
    with VideoWriter(tmp_path / "red.mp4", SIZE, Fraction(1, 24)) as out:
        out.write(red, 0)
    with av.open(str(tmp_path / "red.mp4")) as container:
        codec = container.streams.video[0].codec_context
        assert (codec.codec.canonical_name, codec.pix_fmt, codec.colorspace) == ("h264", "yuv420p", 1)
    data = (tmp_path / "red.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    difference = np.abs(open_video(tmp_path / "red.mp4")[0].image.astype(int) - red)
    assert difference.max() < 5


def test_builds_without_x264_use_another_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_ENCODERS", writer._ENCODERS[-1:])
    path = write(tmp_path / "out.mp4", [0, 3, 4, 90], Fraction(1, 90000))
    assert [code_of(frame.image) for frame in open_video(path)] == [0, 1, 2, 3]
    assert seconds(path) == [Fraction(time, 90000) for time in (0, 3, 4, 90)]


def test_the_old_file_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    path.write_text("the old file")
    with VideoWriter(path, SIZE, Fraction(1, 24)) as out:
        out.write(coded_image(0), 0)
        assert path.read_text() == "the old file"
    assert len(open_video(path)) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    path.write_text("the old file")
    with pytest.raises(ZeroDivisionError):
        write(path, (time // (1 - time) for time in range(3)), Fraction(1, 24))
    assert path.read_text() == "the old file"
    assert list(tmp_path.iterdir()) == [path]


def test_invalid_frames_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    with pytest.raises(OutputError, match=r"got no frames; write at least one"):
        write(path, [], Fraction(1, 24))
    with pytest.raises(OutputError, match=r"got pts 3 after pts 3; write frames in the order"):
        write(path, [0, 3, 3], Fraction(1, 24))
    with (
        pytest.raises(OutputError, match=r"takes uint8 images of shape \(48, 64, 3\), not uint8 of \(9, 9, 3\)"),
        VideoWriter(path, SIZE, Fraction(1, 24)) as out,
    ):
        out.write(np.zeros((9, 9, 3), np.uint8), 0)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*out\.mp4: No such file or directory; choose a folder"):
        write(tmp_path / "none" / "out.mp4", [0], Fraction(1, 24))


def test_a_full_disk_is_an_output_error(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, hard))
    try:
        with pytest.raises(OutputError, match=r"cannot write .*out\.mp4: .*; choose a folder .* free space"):
            write(tmp_path / "out.mp4", range(60), Fraction(1, 24))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
