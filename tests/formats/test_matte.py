"""The matte is the video, opaque where an object is, with the video's times."""

import av
import numpy as np
import pytest

from clips import small_world, write_clip, write_mask
from timecycle.api.conversion import convert
from timecycle.cli.main import main
from timecycle.errors import LabelError
from timecycle.formats.registry import write_file
from timecycle.formats.video_labels import VideoLabels, facts_of
from timecycle.labels import Masks
from timecycle.runs.opened import Run
from timecycle.video import open_video


@pytest.fixture(scope="module")
def world():
    return small_world(frames=6)


def frames(path):
    with av.open(str(path)) as container:
        return [(frame.to_ndarray(format="rgba"), float(frame.time)) for frame in container.decode(video=0)]


def test_alpha_is_the_mask_and_colours_are_the_video(world, tmp_path):
    video = open_video(world.video(), fps=12.5)
    labels = {index: Masks(world.mask(index)) for index in range(5)}  # the last frame has none
    write_file(VideoLabels(kind=Masks, labels=labels, video=facts_of(video)), tmp_path / "matte.mov")
    written = frames(tmp_path / "matte.mov")
    assert len(written) == 6
    with av.open(str(tmp_path / "matte.mov")) as container:
        assert container.streams.video[0].codec_context.pix_fmt.startswith("yuva444p")
    for index, (rgba, time) in enumerate(written):
        expected = world.mask(index) > 0 if index < 5 else np.zeros((64, 96), bool)
        assert np.array_equal(rgba[..., 3] > 127, expected)
        assert set(np.unique(rgba[..., 3])) <= {0, 255}
        assert np.abs(rgba[..., :3].astype(int) - video[index].image).mean() < 4
        assert time == pytest.approx(index / 12.5)


def test_propagate_and_convert_write_a_matte(world, tmp_path, capsys):
    clip, first = write_clip(tmp_path / "clip.mp4", world), write_mask(tmp_path / "first.png", world)
    words = ["propagate", clip, first, "-o", tmp_path / "out", "--encoder", "rgb", "--matte", tmp_path / "a.mov"]
    assert main([*map(str, words), "--format", "matte"]) == 0
    convert(tmp_path / "out", tmp_path / "b.mov")
    expected = [Run(tmp_path / "out").labels[index].ids > 0 for index in range(6)]
    for path in (tmp_path / "a.mov", tmp_path / "b.mov", tmp_path / "out" / "exports" / "matte.mov"):
        assert all(np.array_equal(one > 127, there) for one, there in zip(alphas(path), expected, strict=True))
    capsys.readouterr()
    assert main([*map(str, words[:4]), str(tmp_path / "other"), *map(str, words[5:])]) == 2
    assert "already exists" in capsys.readouterr().err


def alphas(path):
    return [rgba[..., 3] for rgba, _ in frames(path)]


def test_a_matte_needs_the_video(world, tmp_path):
    with pytest.raises(LabelError, match="say which video it is"):
        write_file(VideoLabels(kind=Masks, labels={0: Masks(world.mask(0))}), tmp_path / "matte.mov")
