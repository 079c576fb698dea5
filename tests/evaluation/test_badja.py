"""BADJA on small datasets: coordinates scaled to the frames on disk, and scores counted by hand."""

import json
import logging

import numpy as np
import pytest
from PIL import Image

from oracle import OracleEncoder
from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Benchmark
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods.registry import Identity, NearestNeighbours, load_method
from timecycle.evaluation.protocols.badja import JOINTS, find_badja
from timecycle.propagation.settings import PropagateConfig
from timecycle.synthetic import WorldConfig, make_world

CONFIG = PropagateConfig(image_size_px=64, window_px=24, anchor_window_px=24)
PLACE = {8: (500, 300), 9: (500, 700), 10: (600, 1200)}  # (y, x) in an image of 1920 x 1080


def write_davis(davis, name="cows", *, size="480p", silhouette=20, images=None, suffix="jpg"):
    """Frames of a tenth of 1920 x 1080; silhouettes of 20 x 20, so that the threshold of PCK@0.2 is 4 px."""
    if images is None:
        images = list(make_world(WorldConfig(height_px=108, width_px=192, frames=10, static=True)).frames())
    for part in ("JPEGImages", "Annotations"):
        (davis / part / size / name).mkdir(parents=True)
    mask = np.zeros((108, 192), np.uint8)
    mask[:silhouette, :silhouette] = 255
    for t, image in enumerate(images):
        Image.fromarray(image).save(davis / "JPEGImages" / size / name / f"{t:05d}.{suffix}")
        Image.fromarray(mask).save(davis / "Annotations" / size / name / f"{t:05d}.png")


def annotate(path, frames):
    """`frames` maps a frame to its visible joints: number -> (y, x)."""
    records = [
        {
            "segmentation_path": f"DAVIS/Annotations/Full-Resolution/{path.stem}/{t:05d}.png",
            "image_path": f"DAVIS/JPEGImages/Full-Resolution/{path.stem}/{t:05d}.jpg",
            "visibility": [joint in joints for joint in range(37)],
            "joints": [joints.get(joint, (0, 0)) for joint in range(37)],
        }
        for t, joints in frames.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(records))


def visible_joints(world, t):
    """The world's visible keypoints, numbered as BADJA's joints, at ten times the size."""
    ground_truth = world.keypoints(t)
    return {
        joint: (round(10 * (float(y) + 0.5) - 0.5), round(10 * (float(x) + 0.5) - 0.5))
        for joint, (x, y), visible in zip(JOINTS, ground_truth.xy, ground_truth.visible, strict=False)
        if visible
    }


@pytest.fixture
def root(tmp_path):
    """Joints 8 and 9 are given on frame 2. On frame 4 they have moved by 3 px and 5 px; on frame 7 joint 8 is void
    and 9 is back in its position. Joint 10 is visible on both but was not given."""
    write_davis(tmp_path / "davis2016")
    y, x = PLACE[8]
    frame4 = {8: (y, x + 30), 9: (PLACE[9][0] + 50, PLACE[9][1]), 10: PLACE[10]}
    given = {8: PLACE[8], 9: PLACE[9]}
    annotate(tmp_path / "badja" / "cows.json", {2: given, 4: frame4, 7: {9: PLACE[9], 10: PLACE[10]}})
    return tmp_path / "badja"


def test_the_first_annotated_frame_gives_the_joints_at_the_size_of_the_frames(root, caplog):
    with caplog.at_level(logging.WARNING, logger="timecycle"):
        benchmark = find_badja(root, davis=None)
    assert "1 of 7 sequences of BADJA are in" in caplog.text
    assert isinstance(benchmark, Benchmark)
    (clip,) = benchmark.clips
    assert (clip.name, clip.annotated_frame, len(clip.frames)) == ("cows", 2, 8)
    joints = clip.read_annotation()
    assert len(joints.names) == 20
    visible = [name for name, visible in zip(joints.names, joints.visible, strict=True) if visible]
    assert visible == ["upper_right_1", "upper_right_2"]
    # Pixel 300 of 1920 has its centre at 300.5 from the edge, so at 30.05 from the edge of 192: pixel 29.55.
    np.testing.assert_allclose(joints.xy[0], [29.55, 49.55], atol=1e-4)


def test_scores_by_hand(root, tmp_path):
    """Of the three visible positions of given joints, two are correct: joint 8 1 of 1, joint 9 1 of 2.

    With the annotated frame 4 of 5; with the two positions of joint 10, which was not given, 2 of 5.
    """
    report = evaluate(find_badja(root, davis=None), Identity(), CONFIG, tmp_path / "out")
    assert report.benchmark == "badja"
    assert report.scores == {
        "PCK@0.2": pytest.approx(2 / 3, abs=1e-6),
        "PCK@0.2_mean_over_joints": 0.75,
        "PCK@0.2_first_in": 0.8,
        "PCK@0.2_all_joints": 0.4,
    }
    assert report.per_sequence["cows"]["per_joint"] == {"upper_right_1": 1.0, "upper_right_2": 0.5}
    assert not (tmp_path / "out" / "predictions" / "cows" / "00001.csv").exists()  # before the annotated frame


def test_clips_weigh_the_same(root, tmp_path):
    write_davis(root.parent / "davis2016", "dog")
    annotate(root / "dog.json", dict.fromkeys(range(10), PLACE))
    report = evaluate(find_badja(root, davis=None), Identity(), CONFIG, tmp_path / "out")
    assert report.per_sequence["dog"]["PCK@0.2"] == 1
    assert report.scores["PCK@0.2"] == pytest.approx((2 / 3 + 1) / 2, abs=1e-6)


def test_an_encoder_that_knows_the_surface_follows_its_points(tmp_path):
    """The world's own keypoints as joints: a reach of 8 px, a cell of the encoder, is kept over all frames."""
    world = make_world(WorldConfig(height_px=108, width_px=192, frames=8, objects=2))
    write_davis(tmp_path / "davis2016", silhouette=40, images=list(world.frames()), suffix="png")
    annotate(tmp_path / "badja" / "cows.json", {t: visible_joints(world, t) for t in (0, 3, 7)})
    method = NearestNeighbours(OracleEncoder(world))
    whole = PropagateConfig(image_size_px=108, window_px=None, anchor_window_px=None)
    report = evaluate(find_badja(tmp_path / "badja", davis=None), method, whole, tmp_path / "out")
    assert report.scores["PCK@0.2"] > 0.9
    copied = evaluate(find_badja(tmp_path / "badja", davis=None), Identity(), whole, tmp_path / "identity")
    assert copied.scores["PCK@0.2"] < 0.7


def test_a_joint_called_hidden_is_wrong(root, tmp_path):
    annotate(root / "cows.json", {1: PLACE, 3: PLACE})
    benchmark = find_badja(root, davis=None)
    evaluate(benchmark, Identity(), CONFIG, tmp_path)
    path = tmp_path / "predictions" / "cows" / "00003.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join("3,upper_right_1,,,0" if "upper_right_1" in line else line for line in lines))
    assert benchmark.score(tmp_path / "predictions").overall["PCK@0.2"] == pytest.approx(2 / 3, abs=1e-6)


def test_the_layout_of_the_badja_repository_is_found(tmp_path):
    write_davis(tmp_path / "DAVIS", size="Full-Resolution")
    annotate(tmp_path / "joint_annotations" / "cows.json", {0: PLACE, 5: PLACE})
    annotate(tmp_path / "joint_annotations" / "rs_dog.json", {0: PLACE})  # its frames are not of DAVIS
    benchmark = find_badja(tmp_path, davis=None)
    assert [clip.name for clip in benchmark.clips] == ["cows"]
    assert "Full-Resolution" in str(benchmark.clips[0].frames[0])
    write_davis(tmp_path / "other")
    assert "480p" in str(find_badja(tmp_path, davis=tmp_path / "other").clips[0].frames[0])


def test_missing_folders_and_files_are_named(root, tmp_path):
    davis = tmp_path / "davis2016"
    with pytest.raises(SettingsError, match=r"there is no folder .*nowhere \(BADJA's annotations\)"):
        find_badja(tmp_path / "nowhere", davis=None)
    with pytest.raises(SettingsError, match=r"davis2016 holds no annotations of BADJA"):
        find_badja(davis, davis=None)
    with pytest.raises(SettingsError, match=r"no folder JPEGImages in .*badja; pass --davis DIR"):
        find_badja(root, davis=root)
    with pytest.raises(SettingsError, match="there is no sequence 'dog'; the sequences are cows"):
        find_badja(root, davis=None, names=["dog"])
    (davis / "Annotations" / "480p" / "cows" / "00004.png").rename(tmp_path / "kept.png")
    with pytest.raises(LabelError, match=r"there is no silhouette .*cows/00004.png"):
        find_badja(root, davis=None)
    (davis / "JPEGImages" / "480p" / "cows" / "00007.jpg").unlink()
    with pytest.raises(LabelError, match=r"cows.json has joints of frame 00007, which is not in .*480p/cows"):
        find_badja(root, davis=None)
    (davis / "JPEGImages" / "480p" / "cows").rename(davis / "JPEGImages" / "480p" / "goats")
    with pytest.raises(SettingsError, match=r"none of the 1 sequences annotated in .*badja is in .*480p"):
        find_badja(root, davis=None)
    (davis / "Annotations").rename(tmp_path / "elsewhere")
    with pytest.raises(SettingsError, match=r"there is no folder .*Annotations/480p \(DAVIS annotations"):
        find_badja(root, davis=None)
    (davis / "JPEGImages" / "480p").rename(davis / "JPEGImages" / "1080p")
    with pytest.raises(SettingsError, match=r"there is no folder .*JPEGImages/480p \(DAVIS frames\)"):
        find_badja(root, davis=None)


@pytest.mark.parametrize(
    "text", ["{", "[]", "[1]", '[{"joints": []}]', '[{"image_path": "a/00000.jpg", "joints": [1]}]']
)
def test_a_file_that_is_no_annotation_is_refused_by_name(root, text):
    (root / "cows.json").write_text(text)
    with pytest.raises(LabelError, match=r"cows.json is not an annotation of BADJA"):
        find_badja(root, davis=None).clips[0].read_annotation()


def test_an_annotation_with_nothing_to_score_is_refused_by_name(root, tmp_path):
    annotate(root / "cows.json", {1: {8: PLACE[8]}, 3: {9: PLACE[9]}})
    with pytest.raises(LabelError, match=r"cows.json has no joint of its first annotated frame on a later one"):
        evaluate(find_badja(root, davis=None), Identity(), CONFIG, tmp_path / "out")


@pytest.mark.data
def test_copying_on_the_real_sequences_scores_as_counted(data, tmp_path):
    """Of 311, 374, 174 and 151 joints visible on later frames 0, 0, 30 and 12 are of joints that were not given."""
    benchmark = find_badja(data / "badja", davis=None)
    copied = evaluate(benchmark, Identity(), CONFIG, tmp_path / "identity")
    per = copied.per_sequence
    assert list(per) == ["camel", "cows", "dog", "horsejump-high"]
    assert [per[name]["PCK@0.2"] for name in per] == pytest.approx([148 / 311, 197 / 374, 8 / 144, 11 / 139], abs=1e-6)
    assert per["dog"]["PCK@0.2_all_joints"] == pytest.approx(8 / 174, abs=1e-6)
    one = find_badja(data / "badja", davis=data / "davis2016", names=["horsejump-high"])
    small = PropagateConfig(image_size_px=120, window_px=24, anchor_window_px=24)
    propagated = evaluate(one, load_method("rgb"), small, tmp_path / "rgb")
    assert propagated.scores["PCK@0.2"] > per["horsejump-high"]["PCK@0.2"]
