"""JHMDB on small datasets in its own layout: finding it, and scoring as CRW and VFS do."""

import logging

import numpy as np
import pytest
from PIL import Image

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Benchmark
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods.registry import Identity, load_method
from timecycle.evaluation.protocols.jhmdb import JOINTS, find_jhmdb
from timecycle.labels import Keypoints
from timecycle.propagation.settings import PropagateConfig
from timecycle.synthetic import WorldConfig, make_world

scipy_io = pytest.importorskip("scipy.io")

CONFIG = PropagateConfig(image_size_px=64, window_px=24, anchor_window_px=24)
SAMPLE = "Goal_Keeping_Tips_catch_f_cm_np1_fr_med_2"
# Joints on the corners and sides of a box of 40 x 30: its diagonal is 50, so the thresholds of PCK@0.1 and PCK@0.2 are
# 3 px and 6 px.
BOX = np.array([(10 + 40 * (j % 2), 10 + 30 * (j % 4 // 2)) for j in range(15)], np.float64)


def static(frames):
    return np.repeat(BOX[None], frames, axis=0)


def moved(*right_px):
    """Move the box to the right by a number of pixels in each frame."""
    return np.stack([BOX + np.array([d, 0]) for d in right_px])


def write_clip(root, name, joints, *, klass="catch", frames=None, subset=2):
    """Write a clip of a static world with joints (frames, 15, 2), counted from 0."""
    folder = root / "Rename_Images" / klass / name
    folder.mkdir(parents=True)
    world = make_world(WorldConfig(height_px=64, width_px=96, frames=2, static=True))
    for t in range(len(joints) if frames is None else frames):
        Image.fromarray(world.frame(0)).save(folder / f"{t + 1:05d}.png")
    positions = root / "joint_positions" / klass / name
    positions.mkdir(parents=True)
    scipy_io.savemat(positions / "joint_positions.mat", {"pos_img": joints.transpose(2, 1, 0) + 1})
    splits = root / "splits"
    splits.mkdir(exist_ok=True)
    with (splits / f"{klass}_test_split1.txt").open("a") as file:
        file.write(f"{name}.avi {subset}\n")


def test_available_test_clips_are_found_and_a_warning_counts_them(tmp_path, caplog):
    write_clip(tmp_path, "b_clip", static(3))
    write_clip(tmp_path, "a_clip", static(2), klass="brush_hair")
    write_clip(tmp_path, "training", static(2), subset=1)
    with (tmp_path / "splits" / "catch_test_split1.txt").open("a") as file:
        file.write("not_here.avi 2\n\nin_neither.avi 0\n")
    with caplog.at_level(logging.WARNING, logger="timecycle"):
        benchmark = find_jhmdb(tmp_path)
    assert caplog.messages == [f"2 of 268 test clips of split 1 are in {tmp_path}"]
    assert isinstance(benchmark, Benchmark)
    assert [clip.name for clip in benchmark.clips] == ["a_clip", "b_clip"]
    caplog.clear()
    assert [clip.name for clip in find_jhmdb(tmp_path, names=["training"]).clips] == ["training"]
    assert not caplog.messages  # no warning for named clips
    assert all(path.is_file() for path in benchmark.ground_truth_files)


def test_joint_positions_start_at_zero_and_frames_without_joints_are_not_run(tmp_path):
    write_clip(tmp_path, "clip", static(2), frames=5)
    (clip,) = find_jhmdb(tmp_path).clips
    assert [path.name for path in clip.frames] == ["00001.png", "00002.png"]
    joints = clip.read_annotation()
    assert joints.names == JOINTS
    np.testing.assert_array_equal(joints.xy, BOX.astype(np.float32))


def test_copying_scores_one_in_a_static_video(tmp_path):
    write_clip(tmp_path / "root", "clip", static(4))
    report = evaluate(find_jhmdb(tmp_path / "root"), Identity(), CONFIG, tmp_path / "out")
    variants = ("", "_first_in", "_hidden_wrong")
    assert set(report.scores) == {f"PCK@0.{n}{variant}" for n in (1, 2) for variant in variants} | {"counted"}
    assert set(report.scores.values()) == {1.0}


def test_scores_by_hand(tmp_path):
    """Copies are off by 2 px (correct at both thresholds), 5 px (correct at 6 px only) and 10 px (wrong).

    Clip a: @0.1 1 of 2, @0.2 2 of 2. Clip b: 0 of 1. Pooled over frames, not clips: 1 of 3 and 2 of 3.
    With the first frames: a 2 of 3 and 3 of 3, b 1 of 2; pooled 3 of 5 and 4 of 5.
    """
    write_clip(tmp_path / "root", "a", moved(0, 2, 5))
    write_clip(tmp_path / "root", "b", moved(0, 10))
    report = evaluate(find_jhmdb(tmp_path / "root"), Identity(), CONFIG, tmp_path / "out")
    assert report.scores["PCK@0.1"] == pytest.approx(1 / 3, abs=1e-6)
    assert report.scores["PCK@0.2"] == pytest.approx(2 / 3, abs=1e-6)
    assert report.scores["PCK@0.1_first_in"] == pytest.approx(3 / 5)
    assert report.scores["PCK@0.2_first_in"] == pytest.approx(4 / 5)
    assert report.per_sequence["a"]["PCK@0.1"] == 0.5
    assert report.per_sequence["b"] == {
        "PCK@0.1": 0, "PCK@0.2": 0, "PCK@0.1_first_in": 0.5, "PCK@0.2_first_in": 0.5,
        "PCK@0.1_hidden_wrong": 0, "PCK@0.2_hidden_wrong": 0, "counted": 1, "frames": 2
    }  # fmt: skip


def test_hidden_joints_enter_neither_the_box_nor_the_score(tmp_path):
    """Only the joints on the left side are predicted visible: the box is 30 high, and the threshold 3.6 px, not 6.

    Where hidden joints are wrong, the box is that of all joints, so those 5 px off are correct and the others wrong.
    """
    write_clip(tmp_path / "root", "clip", moved(0, 5))
    benchmark = find_jhmdb(tmp_path / "root")
    folder = tmp_path / "predicted" / "clip"
    folder.mkdir(parents=True)
    left = BOX[:, 0] == 10
    for visible, expected in ((np.ones(15, bool), 1.0), (left, 0.0)):
        for t in range(2):
            Keypoints(JOINTS, BOX.astype(np.float32), visible).write(folder / f"{t:05d}.csv")
        scores = benchmark.score(tmp_path / "predicted")
        assert scores.overall["PCK@0.2"] == expected
        assert scores.overall["PCK@0.2_hidden_wrong"] == pytest.approx(visible.mean(), abs=1e-6)
        assert scores.overall["PCK@0.1_hidden_wrong"] == 0
        for counted in (scores.overall["counted"], scores.per_sequence["clip"]["counted"]):
            assert counted == pytest.approx(visible.mean(), abs=1e-6)
    for t in range(2):
        Keypoints(JOINTS, BOX.astype(np.float32), np.zeros(15, bool)).write(folder / f"{t:05d}.csv")
    with pytest.raises(LabelError, match="no joint can be scored"):
        benchmark.score(tmp_path / "predicted")


def test_an_encoder_predicts_a_joint_outside_the_first_frame_as_hidden(tmp_path):
    joints = static(4)
    joints[:, 3] = (120, 30)  # the image is 96 wide
    write_clip(tmp_path / "root", "clip", joints)
    report = evaluate(find_jhmdb(tmp_path / "root"), load_method("rgb"), CONFIG, tmp_path / "out")
    assert report.scores["counted"] == pytest.approx(14 / 15, abs=1e-6)
    assert report.scores["PCK@0.2_hidden_wrong"] < report.scores["PCK@0.2"]
    assert report.scores["PCK@0.2"] > 0.9  # colours alone lose a joint in a uniform region


def test_missing_folders_and_files_are_named(tmp_path):
    with pytest.raises(SettingsError, match=r"there is no folder .*splits \(JHMDB's lists of clips\)"):
        find_jhmdb(tmp_path)
    (tmp_path / "splits").mkdir()
    with pytest.raises(SettingsError, match=r"splits holds no list CLASS_test_split1.txt"):
        find_jhmdb(tmp_path)
    (tmp_path / "splits" / "catch_test_split1.txt").write_text("a.avi 2\nb.avi 1\n")
    with pytest.raises(SettingsError, match=r"there is no folder .*Rename_Images \(JHMDB frames\)"):
        find_jhmdb(tmp_path)
    (tmp_path / "Rename_Images").mkdir()
    with pytest.raises(SettingsError, match=r"there is no folder .*joint_positions \(JHMDB joints\)"):
        find_jhmdb(tmp_path)
    (tmp_path / "joint_positions").mkdir()
    with pytest.raises(
        SettingsError, match=r"none of the 1 test clips listed in .*splits is in .*Rename_Images; unpack"
    ):
        find_jhmdb(tmp_path)
    write_clip(tmp_path, "b", static(2), subset=1)
    with pytest.raises(SettingsError, match=r"name clips to evaluate with --sequences, such as b"):
        find_jhmdb(tmp_path)
    with pytest.raises(SettingsError, match="there is no sequence 'c'; the sequences are b"):
        find_jhmdb(tmp_path, names=["c"])
    joints = tmp_path / "joint_positions" / "catch" / "b" / "joint_positions.mat"
    joints.unlink()
    with pytest.raises(LabelError, match=rf"there is no file {joints}; restore the clip's joint_positions"):
        find_jhmdb(tmp_path, names=["b"])
    scipy_io.savemat(joints, {"pos_img": np.zeros((2, 14, 3))})
    with pytest.raises(LabelError, match=r"pos_img of .* is not an array of 2 x 15 x frames"):
        find_jhmdb(tmp_path, names=["b"])
    scipy_io.savemat(joints, {"pos_world": np.zeros((2, 15, 3))})
    with pytest.raises(LabelError, match=r"joint_positions.mat holds no joints: KeyError"):
        find_jhmdb(tmp_path, names=["b"])
    scipy_io.savemat(joints, {"pos_img": np.zeros((2, 15, 3))})
    with pytest.raises(LabelError, match=r"has joints of 3 frames but .*b has 2"):
        find_jhmdb(tmp_path, names=["b"])
    (tmp_path / "splits" / "catch_test_split1.txt").write_text("a.avi 2\nb.avi test\n")
    with pytest.raises(SettingsError, match=r"line 2 of .*catch_test_split1.txt is 'b.avi test'"):
        find_jhmdb(tmp_path)


def test_predictions_with_missing_files_or_other_keypoints_are_refused(tmp_path):
    write_clip(tmp_path / "root", "clip", static(3))
    benchmark = find_jhmdb(tmp_path / "root")
    with pytest.raises(SettingsError, match=r"there is no folder .*predicted/clip \(predicted joints\); predict it"):
        benchmark.score(tmp_path / "predicted")
    folder = tmp_path / "predicted" / "clip"
    folder.mkdir(parents=True)
    for t in range(3):
        Keypoints(("nose",), BOX[:1].astype(np.float32), np.ones(1, bool)).write(folder / f"{t:05d}.csv")
    with pytest.raises(LabelError, match=r"00000.csv has other keypoints than the benchmark"):
        benchmark.score(tmp_path / "predicted")
    (folder / "00001.csv").unlink()
    (folder / "00002.csv").unlink()
    with pytest.raises(LabelError, match=r"clip lacks 00001.csv and 1 more"):
        benchmark.score(tmp_path / "predicted")


@pytest.mark.data
def test_the_real_sample_is_evaluated_from_start_to_end(data, tmp_path):
    benchmark = find_jhmdb(data / "jhmdb_sample", names=[SAMPLE])
    assert [len(clip.frames) for clip in benchmark.clips] == [40]
    copied = evaluate(benchmark, Identity(), CONFIG, tmp_path / "identity")
    assert copied.scores["PCK@0.1"] == pytest.approx(1 / 585, abs=1e-6)  # of 39 frames with 15 joints
    assert copied.scores["PCK@0.2_first_in"] == pytest.approx(24 / 600)
    small = PropagateConfig(image_size_px=120, window_px=24, anchor_window_px=24)
    propagated = evaluate(benchmark, load_method("rgb"), small, tmp_path / "rgb")
    assert propagated.scores["PCK@0.2"] > copied.scores["PCK@0.2"] + 0.1
