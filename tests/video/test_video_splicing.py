"""A spliced video has the frames and times of a video written as a whole."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from timecycle.video import Size, VideoWriter, open_video, writer
from timecycle.video.writer import keyframe_flags, splice

SIZE = Size(48, 64)
FRAMES = 30
PTS = [t * 1001 + (t % 3) * 100 for t in range(FRAMES)]  # unevenly spaced
BASE = Fraction(1, 24000)


def image_at(t: int, shade: int) -> np.ndarray:
    image = np.full((48, 64, 3), shade, np.uint8)
    image[8:24, t : t + 16] = (200, 40 + 5 * t, 90)
    return image


def write(path: Path, frames: range, shade: int, keys: set[int], size: Size = SIZE) -> Path:
    with VideoWriter(path, size, BASE) as out:
        for t in frames:
            out.write(image_at(t, shade)[: size.height_px], PTS[t], key=t in keys)
    return path


@pytest.fixture(params=["libx264", "mpeg4"])
def _encoder(request, monkeypatch):
    monkeypatch.setattr(
        writer, "_ENCODERS", tuple(encoder for encoder in writer._ENCODERS if encoder[0] == request.param)
    )


def images(path: Path) -> list[np.ndarray]:
    with open_video(path) as video:
        return [frame.image for frame in video.frames()]


@pytest.mark.usefixtures("_encoder")
@pytest.mark.parametrize("spans", [[(1, 9)], [(10, 10)], [(20, 29)], [(0, 29)], [(1, 9), (21, 29)], [(10, 19)]])
def test_only_the_frames_of_the_segments_are_replaced(tmp_path, spans):
    keys = {0, 10, 11, 20}
    whole = write(tmp_path / "whole.mp4", range(FRAMES), 30, keys)
    segments = {first: write(tmp_path / f"{first}.mp4", range(first, last + 1), 220, {first}) for first, last in spans}
    assert splice(whole, segments, tmp_path / "new.mp4")
    replaced = {first + t: image for first, file in segments.items() for t, image in enumerate(images(file))}
    old, new = images(whole), images(tmp_path / "new.mp4")
    assert len(new) == FRAMES
    for t in range(FRAMES):
        assert np.array_equal(new[t], replaced.get(t, old[t]))  # exact: no frame is encoded twice
    with open_video(whole) as before, open_video(tmp_path / "new.mp4") as after:
        assert list(after.pts) == list(before.pts) == PTS
        assert after.time_base == before.time_base


@pytest.mark.usefixtures("_encoder")
def test_a_spliced_file_keeps_the_length_and_the_keyframes(tmp_path):
    whole = write(tmp_path / "whole.mp4", range(FRAMES), 30, {0, 10, 20})
    segment = write(tmp_path / "segment.mp4", range(5, 20), 220, {5, 12})
    assert splice(whole, {5: segment}, tmp_path / "new.mp4")
    with av.open(str(whole)) as before, av.open(str(tmp_path / "new.mp4")) as after:
        assert after.streams.video[0].duration == before.streams.video[0].duration
        assert after.streams.video[0].frames == FRAMES
    keys = keyframe_flags(tmp_path / "new.mp4")
    assert len(keys) == FRAMES
    assert {0, 5, 12, 20} <= {t for t, key in enumerate(keys) if key}


def test_a_segment_of_another_size_is_not_spliced(tmp_path):
    whole = write(tmp_path / "whole.mp4", range(FRAMES), 30, {0, 10, 20})
    other = write(tmp_path / "small.mp4", range(1, 10), 30, set(), Size(40, 64))
    assert not splice(whole, {1: other}, tmp_path / "new.mp4")
    assert not (tmp_path / "new.mp4").exists()


def test_a_damaged_video_is_not_spliced(tmp_path):
    whole = tmp_path / "whole.mp4"
    whole.write_bytes(b"not a video")
    segment = write(tmp_path / "segment.mp4", range(5, 20), 220, {5})
    assert not splice(whole, {5: segment}, tmp_path / "new.mp4")
    assert keyframe_flags(whole) == []
    assert not (tmp_path / "new.mp4").exists()
