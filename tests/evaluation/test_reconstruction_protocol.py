"""Frame reconstruction: the error is zero in static videos and with a perfect flow."""

import numpy as np
import pytest
from PIL import Image

from timecycle.errors import LabelError, OutputError, SettingsError
from timecycle.evaluation.benchmark import Benchmark
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods.registry import Identity, load_method
from timecycle.evaluation.protocols.reconstruction import L1, find_reconstruction, l1
from timecycle.propagation.settings import PropagateConfig
from timecycle.synthetic import WorldConfig, make_world

CONFIG = PropagateConfig(image_size_px=64, window_px=24, anchor_window_px=24)
STEP_PX = 2


def write_clip(root, name, images):
    folder = root / "JPEGImages" / "480p" / name
    folder.mkdir(parents=True)
    for t, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{t:05d}.png")  # without the losses of JPEG


def fading(frames, step):
    """Make uniform images whose red, green and blue rise by (step, 2 step, 0) from frame to frame."""
    return [np.full((8, 8, 3), (step * t, 2 * step * t, 0), np.uint8) for t in range(frames)]


def sliding(frames):
    """Make an image that slides to the left in front of a uniform wall, which enters at the right."""
    picture = make_world(WorldConfig(height_px=64, width_px=96, frames=2)).frame(0)
    wall = np.full((64, 96, 3), 90, np.uint8)
    wide = np.concatenate([picture[:, :80], wall], axis=1)
    return [wide[:, STEP_PX * t : STEP_PX * t + 96] for t in range(frames)]


class Perfect(Identity):
    """Returns the true flow of `sliding`: 2 px to the right for each frame of the gap."""

    name = "perfect"

    def __init__(self, gap):
        self.gap = gap

    def flow(self, a, b, config):
        return np.broadcast_to(np.float32([STEP_PX * self.gap, 0]), (*a.shape[:2], 2)).copy()


def test_a_static_clip_is_rebuilt_exactly(tmp_path):
    write_clip(
        tmp_path / "root", "static", make_world(WorldConfig(height_px=64, width_px=96, frames=12, static=True)).frames()
    )
    benchmark = find_reconstruction(tmp_path / "root")
    assert isinstance(benchmark, Benchmark)
    report = evaluate(benchmark, Identity(), CONFIG, tmp_path / "out")
    names = {"L1_5", "L1_5_mean_of_channels", "L1_10", "L1_10_mean_of_channels"}
    assert dict(report.scores) == dict.fromkeys(names, 0.0)
    assert report.benchmark == "reconstruction-5-10"


def test_a_perfect_flow_rebuilds_motion_and_copying_does_not(tmp_path):
    write_clip(tmp_path / "root", "slide", sliding(8))
    benchmark = find_reconstruction(tmp_path / "root", gaps=(5,))
    assert evaluate(benchmark, Perfect(5), CONFIG, tmp_path / "perfect").scores["L1_5"] == pytest.approx(0, abs=1e-3)
    copied = evaluate(benchmark, Identity(), CONFIG, tmp_path / "identity").scores["L1_5"]
    assert copied > 10
    for method in ("dis-flow", "rgb"):
        assert evaluate(benchmark, load_method(method), CONFIG, tmp_path / method).scores["L1_5"] < 0.7 * copied


def test_errors_by_hand(tmp_path):
    """Copies of a clip that fades by (1, 2, 0) a frame are off by 3 a frame in all, those of the other by twice that.

    The longer clip does not weigh more, and the shorter one, of 8 frames, has no score at gap 10.
    """
    write_clip(tmp_path / "root", "long", fading(12, 1))
    write_clip(tmp_path / "root", "short", fading(8, 2))
    report = evaluate(find_reconstruction(tmp_path / "root"), Identity(), CONFIG, tmp_path / "out")
    assert report.per_sequence["long"]["L1_5"] == 15
    assert report.per_sequence["short"] == {"L1_5": 30, "L1_5_mean_of_channels": 10, "frames": 8}
    assert report.scores == {"L1_5": 22.5, "L1_5_mean_of_channels": 7.5, "L1_10": 30, "L1_10_mean_of_channels": 10}
    rows = (tmp_path / "out" / "predictions" / "long" / "l1.csv").read_text().splitlines()
    assert rows[0] == "gap,frame,mean_of_channels,sum_of_channels"
    assert [row.split(",")[:2] for row in rows[1:4]] == [["5", "5"], ["5", "6"], ["5", "7"]]
    assert len(rows) == 1 + 7 + 2


def test_a_stride_skips_frames_and_is_part_of_the_name(tmp_path):
    write_clip(tmp_path / "root", "clip", fading(12, 1))
    benchmark = find_reconstruction(tmp_path / "root", gaps=(2,), stride=4)
    assert benchmark.name == "reconstruction-2-every-4"
    assert evaluate(benchmark, Identity(), CONFIG, tmp_path / "out").scores["L1_2"] == 6
    rows = (tmp_path / "out" / "predictions" / "clip" / "l1.csv").read_text().splitlines()
    assert [row.split(",")[1] for row in rows[1:]] == ["2", "6", "10"]
    with pytest.raises(OutputError, match=r"made with benchmark.name = reconstruction-2-every-4"):
        evaluate(find_reconstruction(tmp_path / "root", gaps=(3,)), Identity(), CONFIG, tmp_path / "out")


def test_the_validation_list_chooses_the_clips(tmp_path):
    for name in ("a", "b", "c"):
        write_clip(tmp_path, name, fading(12, 1))
    assert [clip.name for clip in find_reconstruction(tmp_path).clips] == ["a", "b", "c"]
    (tmp_path / "ImageSets" / "2017").mkdir(parents=True)
    (tmp_path / "ImageSets" / "2017" / "val.txt").write_text("c\na\n")
    assert [clip.name for clip in find_reconstruction(tmp_path).clips] == ["c", "a"]
    assert [clip.name for clip in find_reconstruction(tmp_path, names=["a"]).clips] == ["a"]


def test_the_order_of_gaps_does_not_matter(tmp_path):
    write_clip(tmp_path, "clip", fading(12, 1))
    names = {find_reconstruction(tmp_path, gaps=gaps, stride=10).name for gaps in ((5, 10), (10, 5), (5, 10, 5))}
    assert names == {"reconstruction-5-10-every-10"}


def test_missing_clips_and_impossible_gaps_are_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"there is no folder .*JPEGImages/480p \(DAVIS frames\)"):
        find_reconstruction(tmp_path)
    (tmp_path / "JPEGImages" / "480p").mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"480p holds no clips"):
        find_reconstruction(tmp_path)
    write_clip(tmp_path, "clip", fading(10, 1))
    with pytest.raises(SettingsError, match="no clip has a frame 10 frames before another: the longest has 10 frames"):
        find_reconstruction(tmp_path)
    for gaps in ((), (0, 5)):
        with pytest.raises(SettingsError, match="gaps is"):
            find_reconstruction(tmp_path, gaps=gaps)
    with pytest.raises(SettingsError, match="stride is 0"):
        find_reconstruction(tmp_path, gaps=(5,), stride=0)
    benchmark = find_reconstruction(tmp_path, gaps=(5,))
    with pytest.raises(LabelError, match="frame reconstruction has no labels"):
        benchmark.clips[0].read_annotation()


def test_missing_or_malformed_errors_are_refused(tmp_path):
    write_clip(tmp_path / "root", "clip", fading(8, 1))
    benchmark = find_reconstruction(tmp_path / "root", gaps=(5,))
    (tmp_path / "clip").mkdir()
    path = tmp_path / "clip" / "l1.csv"
    with pytest.raises(LabelError, match=rf"there is no file {path}"):
        benchmark.score(tmp_path)
    path.write_text("gap,frame\n5,5\n")
    with pytest.raises(LabelError, match=r"l1.csv cannot be read: KeyError"):
        benchmark.score(tmp_path)
    path.write_text("gap,frame,mean_of_channels,sum_of_channels\n5,5,1,3\n5,7,1,3\n")
    with pytest.raises(LabelError, match=r"l1.csv has no error of frame 6 at gap 5"):
        benchmark.score(tmp_path)


# The L1 error


def test_l1_is_zero_for_equal_images_and_largest_for_black_and_white():
    black, white = np.zeros((4, 5, 3), np.uint8), np.full((4, 5, 3), 255, np.uint8)
    assert l1(white, white) == L1(0, 0)
    assert l1(black, white) == l1(white, black) == L1(255, 765)


def test_l1_of_one_channel_of_one_pixel():
    a, b = np.zeros((2, 2, 5, 3), np.uint8)
    b[0, 3, 2] = 200
    error = l1(a, b)
    assert error.mean_of_channels == pytest.approx(200 / 30)
    assert error.sum_of_channels == pytest.approx(200 / 10)


def test_the_sum_of_channels_is_three_times_their_mean():
    a, b = np.random.default_rng(0).integers(0, 256, (2, 9, 8, 3)).astype(np.uint8)
    error = l1(a, b)
    assert error.sum_of_channels == pytest.approx(3 * error.mean_of_channels)
    differences = [abs(int(p) - int(q)) for p, q in zip(a.flat, b.flat, strict=True)]
    assert error.mean_of_channels == pytest.approx(sum(differences) / len(differences))


def test_l1_of_different_sizes_is_refused():
    with pytest.raises(LabelError, match=r"the reconstruction has the shape \(4, 5, 3\) but the frame \(4, 4, 3\)"):
        l1(np.zeros((4, 5, 3), np.uint8), np.zeros((4, 4, 3), np.uint8))


@pytest.mark.data
def test_optical_flow_rebuilds_real_footage_better_than_copying(data, tmp_path):
    benchmark = find_reconstruction(data / "davis2016", stride=20, names=["blackswan"])
    small = PropagateConfig(image_size_px=120, window_px=48, anchor_window_px=48)
    copied, warped = (
        evaluate(benchmark, load_method(name), small, tmp_path / name) for name in ("identity", "dis-flow")
    )
    for score in ("L1_5", "L1_10"):
        assert 0 < warped.scores[score] < copied.scores[score] < 255
