"""VIP on small datasets in its own layout: both tasks scored by hand, and errors that name what is missing."""

import logging
import shutil

import numpy as np
import pytest
from PIL import Image

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Benchmark
from timecycle.evaluation.evaluate import evaluate
from timecycle.evaluation.methods.registry import Identity, load_method
from timecycle.evaluation.protocols.vip import CLASSES, find_vip
from timecycle.propagation.settings import PropagateConfig
from timecycle.synthetic import WorldConfig, make_world

CONFIG = PropagateConfig(image_size_px=64, window_px=24, anchor_window_px=24)
HAIR, CLOTHES, FACE = 2, 4, 13


def columns(*ranges, size=10):
    """Make a square map of ids by columns: (first, last, id)."""
    ids = np.zeros((size, size), np.uint8)
    for first, last, value in ranges:
        ids[:, first : last + 1] = value
    return ids


def write_clip(root, classes, people=None, *, name="videos1", images=None):
    """Write frames numbered in steps of 25 as in VIP; plain grey unless images are given."""
    people = [(ids > 0).astype(np.uint8) for ids in classes] if people is None else people
    parts = (("Annotations/Category_ids", "png", classes), ("Annotations/Human_ids", "png", people))
    images = [np.full((*ids.shape, 3), 128, np.uint8) for ids in classes] if images is None else images
    for kind, suffix, pictures in (("Images", "jpg", images), *parts):
        folder = root / kind / name
        folder.mkdir(parents=True)
        for t, picture in enumerate(pictures):
            Image.fromarray(picture).save(folder / f"{25 * t + 1:012d}.{suffix}")
    (root / "lists").mkdir(exist_ok=True)
    with (root / "lists" / "val_videos.txt").open("a") as file:
        file.write(f"{name}\n")


def write_world(root, *, static, frames=4):
    """Write a world whose objects are face, hair and clothes of one person each."""
    world = make_world(WorldConfig(height_px=64, width_px=96, frames=frames, static=static))
    classes = np.array([0, HAIR, CLOTHES, FACE], np.uint8)
    ids = [world.mask(t).astype(np.uint8) for t in range(frames)]
    write_clip(root, [classes[mask] for mask in ids], ids, images=list(world.frames()))


@pytest.mark.parametrize("task", ["semantic", "parts"])
def test_copying_scores_one_in_a_static_video(tmp_path, task):
    write_world(tmp_path / "root", static=True)
    benchmark = find_vip(tmp_path / "root", task=task)
    assert isinstance(benchmark, Benchmark)
    assert benchmark.name == f"vip-{task}"
    report = evaluate(benchmark, Identity(), CONFIG, tmp_path / "out")
    assert set(report.scores.values()) == {1.0}


def test_classes_by_hand(tmp_path):
    """Copies of frame 0, whose columns 0-3 are clothes, on 10 x 10 pixels; counts in columns of 10 pixels.

    frame 1, clothes on 2-5: clothes 2 of 6 (0-5), background 4 of 8 (6-9 of all but 2, 3)
    frame 2, clothes on 0-3, hair on 8-9: clothes 4 of 4, background 4 of 6 (4-9), hair 0 of 2
    frames 1 and 2 together: clothes 6/10, background 8/14, hair 0/2
    with frame 0 (clothes 4 of 4, background 6 of 6): clothes 10/14, background 14/20, hair 0/2
    """
    classes = [columns((0, 3, CLOTHES)), columns((2, 5, CLOTHES)), columns((0, 3, CLOTHES), (8, 9, HAIR))]
    write_clip(tmp_path / "root", classes)
    benchmark = find_vip(tmp_path / "root", task="semantic")
    assert benchmark.clips[0].read_annotation().exhaustive
    report = evaluate(benchmark, Identity(), CONFIG, tmp_path / "out")
    assert report.scores == {
        "mIoU": pytest.approx((10 / 14 + 14 / 20 + 0) / 3, abs=1e-6),
        "mIoU_first_out": pytest.approx((6 / 10 + 8 / 14 + 0) / 3, abs=1e-6),
        "IoU_background": pytest.approx(14 / 20, abs=1e-6),
        "IoU_hair": 0,
        "IoU_upper-clothes": pytest.approx(10 / 14, abs=1e-6),
    }
    assert report.per_sequence["videos1"]["frames"] == 3


def test_all_frames_of_all_clips_are_counted_together(tmp_path):
    """Clip 2 has one wrong column in ten and no hair: clothes 0 of 1, so the two clips' mIoU do not average.

    Background in columns: clip 1 has 5 and 5 correct, clip 2 has 10 and 9 of 10.
    """
    write_clip(tmp_path / "root", [columns((0, 4, HAIR)), columns((0, 4, HAIR))])
    write_clip(tmp_path / "root", [columns(), columns((0, 0, CLOTHES))], name="videos2")
    report = evaluate(find_vip(tmp_path / "root", task="semantic"), Identity(), CONFIG, tmp_path / "out")
    assert report.per_sequence["videos1"]["mIoU"] == 1
    assert report.per_sequence["videos2"]["mIoU"] == pytest.approx((19 / 20 + 0) / 2)
    assert report.per_sequence["videos2"]["mIoU_first_out"] == pytest.approx((9 / 10 + 0) / 2)
    assert report.scores["mIoU"] == pytest.approx((29 / 30 + 1 + 0) / 3, abs=1e-6)
    assert report.scores["mIoU_first_out"] == pytest.approx((14 / 15 + 1 + 0) / 3, abs=1e-6)


def test_void_is_neither_propagated_nor_scored(tmp_path):
    void = columns((0, 3, CLOTHES), (9, 9, 255))
    write_clip(tmp_path / "root", [void, columns((0, 3, CLOTHES), (8, 9, 255))])
    benchmark = find_vip(tmp_path / "root", task="semantic")
    assert set(np.unique(benchmark.clips[0].read_annotation().ids)) == {0, CLOTHES}
    assert evaluate(benchmark, Identity(), CONFIG, tmp_path / "out").scores["mIoU"] == 1


@pytest.fixture
def faces(tmp_path):
    """Frame 0: two faces, on columns 0-3 and 6-9. Frame 1: the first has moved to 2-5, and people have other ids.
    Frame 2: one face on 0-3 with hair on 4-5; the other is gone."""
    classes = [
        columns((0, 3, FACE), (6, 9, FACE)),
        columns((2, 9, FACE)),
        columns((0, 3, FACE), (4, 5, HAIR)),
    ]
    people = [columns((0, 3, 1), (6, 9, 2)), columns((2, 5, 5), (6, 9, 1)), columns((0, 5, 1))]
    write_clip(tmp_path / "root", classes, people)
    return find_vip(tmp_path / "root", task="parts")


def test_parts_by_hand(faces, tmp_path):
    """Copies of frame 0: two faces on each frame. The overlaps are 1 and 1 on frame 0, 2/6 and 1 on frame 1, 1 and 0 on
    frame 2.

    Faces (5 true, 6 predicted): up to 0.3 five are correct, AP = 5/6 * 5/5; above four are, AP = 4/6 * 4/5.
    Hair (1 true, none predicted): 0. The mean over both classes is half of that.
    Without frame 0 (2 true, 2 correct): 3/4 * 3/3 and 2/4 * 2/3.
    """
    report = evaluate(faces, Identity(), CONFIG, tmp_path / "out")
    low, high = 5 / 6 / 2, 4 / 6 * 4 / 5 / 2
    for suffix in ("", "_constant"):
        aps = [report.scores[f"AP_0.{n}{suffix}"] for n in range(1, 10)]
        assert aps == pytest.approx([low] * 3 + [high] * 6, abs=1e-6)
        assert report.scores[f"AP_vol{suffix}"] == pytest.approx((3 * low + 6 * high) / 9, abs=1e-6)
    without_first = (3 * 3 / 4 + 6 * 2 / 4 * 2 / 3) / 2 / 9
    assert report.scores["AP_vol_first_out"] == pytest.approx(without_first, abs=1e-6)


def test_parts_ranked_by_their_scores(faces, tmp_path):
    """Ranked: four correct, one correct up to 0.3, one wrong. AP of faces is 1 up to 0.3, and 4/5 above.

    Without frame 0 two of three are correct above 0.3, ranked first: 2/3.
    """
    evaluate(faces, Identity(), CONFIG, tmp_path)
    path = tmp_path / "predictions" / "videos1" / "scores.csv"
    rows = ["0,13001,1", "0,13002,1", "1,13001,0.5", "1,13002,0.9", "2,13001,0.8", "2,13002,0.1"]
    path.write_text("\n".join(["frame,pair,score", *rows]))
    scores = faces.score(tmp_path / "predictions").overall
    assert scores["AP_vol"] == pytest.approx((3 * 1 + 6 * 4 / 5) / 2 / 9, abs=1e-6)
    assert scores["AP_vol_first_out"] == pytest.approx((3 * 1 + 6 * 2 / 3) / 2 / 9, abs=1e-6)
    assert scores["AP_vol_constant"] == pytest.approx((3 * 5 / 6 + 6 * 4 / 6 * 4 / 5) / 2 / 9, abs=1e-6)
    path.write_text("\n".join(["frame,pair,score", *rows[:-1]]))
    with pytest.raises(LabelError, match=r"scores.csv has no score of 13002 on frame 2"):
        faces.score(tmp_path / "predictions")
    path.write_text("frame,score\n0,1\n")
    with pytest.raises(LabelError, match=r"scores.csv cannot be read: KeyError"):
        faces.score(tmp_path / "predictions")


def test_an_encoder_propagates_classes_and_parts_and_ranks_parts(tmp_path):
    write_world(tmp_path / "root", static=True)
    method = load_method("rgb")
    classes = evaluate(find_vip(tmp_path / "root", task="semantic"), method, CONFIG, tmp_path / "classes")
    parts = evaluate(find_vip(tmp_path / "root", task="parts"), method, CONFIG, tmp_path / "parts")
    # Feature cells of 8 px lose much of objects of 20 px, so the bounds are loose.
    assert classes.scores["mIoU"] > 0.5
    assert parts.scores["AP_0.1"] > 0.5
    assert (tmp_path / "parts" / "predictions" / "videos1" / "scores.csv").is_file()


def test_only_annotated_frames_of_available_clips_are_run(tmp_path, caplog):
    write_clip(tmp_path, [columns((0, 3, FACE))] * 3)
    shutil.copy(tmp_path / "Images" / "videos1" / f"{1:012d}.jpg", tmp_path / "Images" / "videos1" / f"{2:012d}.jpg")
    (tmp_path / "lists" / "val_videos.txt").write_text("Images/videos1\nImages/videos2\n")
    with caplog.at_level(logging.WARNING, logger="timecycle"):
        benchmark = find_vip(tmp_path, task="parts")
    assert caplog.messages == [f"1 of 50 validation clips of VIP are in {tmp_path}"]
    assert [path.stem for path in benchmark.clips[0].frames] == [f"{n:012d}" for n in (1, 26, 51)]
    assert len(benchmark.ground_truth_files) == 6
    for kind in ("Category_ids", "Human_ids"):
        (tmp_path / "Annotations" / kind).rename(tmp_path / kind)
    assert len(find_vip(tmp_path, task="parts").clips) == 1


def test_a_part_without_a_person_is_ignored(tmp_path):
    write_clip(tmp_path, [columns((0, 7, FACE))], [columns((0, 3, 1), (9, 9, 2))])
    parts = find_vip(tmp_path, task="parts").clips[0].read_annotation()
    assert set(np.unique(parts.pairs)) == {0, 13001}
    assert (parts.pairs > 0).sum() == 40


def test_missing_folders_and_files_are_named(tmp_path):
    with pytest.raises(SettingsError, match=r"there is no list .*lists/val_videos.txt; ROOT is the folder VIP_Fine"):
        find_vip(tmp_path, task="semantic")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "val_videos.txt").write_text("videos9\n")
    with pytest.raises(SettingsError, match=r"there is no folder .*Images \(VIP frames\)"):
        find_vip(tmp_path, task="semantic")
    (tmp_path / "Images").mkdir()
    with pytest.raises(SettingsError, match=r"there is no folder .*Annotations/Category_ids \(VIP classes\)"):
        find_vip(tmp_path, task="semantic")
    (tmp_path / "Annotations" / "Category_ids").mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"none of the 1 clips listed in .*val_videos.txt is in .*Images"):
        find_vip(tmp_path, task="semantic")
    with pytest.raises(SettingsError, match=r"there is no folder .*Annotations/Human_ids \(VIP people\)"):
        find_vip(tmp_path, task="parts")
    write_clip(tmp_path, [columns((0, 3, FACE))] * 2)
    with pytest.raises(SettingsError, match="there is no sequence 'videos9'; the sequences are videos1"):
        find_vip(tmp_path, task="semantic", names=["videos9"])
    (tmp_path / "Annotations" / "Human_ids" / "videos1" / f"{26:012d}.png").unlink()
    with pytest.raises(LabelError, match=r"there is no annotation .*Human_ids/videos1/000000000026.png"):
        find_vip(tmp_path, task="parts")
    (tmp_path / "Images" / "videos1" / f"{26:012d}.jpg").unlink()
    with pytest.raises(LabelError, match=r"videos1 lacks the annotated frame 000000000026; restore"):
        find_vip(tmp_path, task="semantic")


def test_predictions_with_missing_files_or_wrong_sizes_are_refused(tmp_path):
    write_clip(tmp_path / "root", [columns((0, 3, FACE))] * 3)
    benchmark = find_vip(tmp_path / "root", task="semantic")
    folder = tmp_path / "predicted" / "videos1"
    with pytest.raises(SettingsError, match=r"there is no folder .*predicted/videos1 \(predicted labels\)"):
        benchmark.score(tmp_path / "predicted")
    folder.mkdir(parents=True)
    Image.fromarray(columns()).save(folder / "00000.png")
    with pytest.raises(LabelError, match=r"videos1 lacks 00001.png and 1 more; number the labels of the 3 annotated"):
        benchmark.score(tmp_path / "predicted")
    for t in (1, 2):
        Image.fromarray(columns(size=12)).save(folder / f"{t:05d}.png")
    with pytest.raises(LabelError, match=r"00001.png is 12x12 but its classes are 10x10"):
        benchmark.score(tmp_path / "predicted")
    Image.fromarray(np.zeros((10, 10, 3), np.uint8)).save(folder / "00001.png")
    with pytest.raises(LabelError, match=r"00001.png is an image of mode RGB"):
        benchmark.score(tmp_path / "predicted")


@pytest.mark.parametrize("task", ["semantic", "parts"])
def test_clips_of_one_frame_have_nothing_to_score(tmp_path, task):
    write_clip(tmp_path / "root", [columns((0, 3, FACE))])
    with pytest.raises(LabelError, match="has no frame to score"):
        evaluate(find_vip(tmp_path / "root", task=task), Identity(), CONFIG, tmp_path / "out")


def test_there_are_twenty_classes():
    assert len(set(CLASSES)) == 20
    assert (CLASSES[0], CLASSES[FACE]) == ("background", "face")
