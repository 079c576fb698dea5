"""DAVIS on a small dataset in its own layout: finding it, resuming predictions, and scoring by the protocol."""

import json
import logging
import shutil

import numpy as np
import pytest
from PIL import Image

from timecycle.errors import LabelError, OutputError, SettingsError
from timecycle.evaluation.evaluate import evaluate, evaluate_masks
from timecycle.evaluation.methods.registry import Identity, NearestNeighbours, load_method
from timecycle.evaluation.protocols.davis import find_davis
from timecycle.evaluation.reporting.report import read_report
from timecycle.labels.drawing import palette
from timecycle.model.third_party.hand_crafted import RgbEncoder
from timecycle.propagation.settings import PropagateConfig
from trees import davis_tree

CONFIG = PropagateConfig(image_size_px=64, window_px=24, anchor_window_px=24)
CLIPS = ["clip00", "clip01"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("davis")
    davis_tree(folder, clips=2)
    return folder


def test_both_years_are_found_by_their_lists(tmp_path):
    davis_tree(tmp_path / "a", year="2016", clips=1)
    davis_tree(tmp_path / "b", year="2017", clips=1)
    both = [find_davis(tmp_path / folder, names=["clip00"]) for folder in "ab"]
    assert [benchmark.name for benchmark in both] == ["davis2016", "davis2017"]
    assert [sorted(np.unique(benchmark.clips[0].read_annotation().ids)) for benchmark in both] == [[0, 1], [0, 1, 2]]


def test_either_year_of_the_joint_release_can_be_chosen(tmp_path):
    davis_tree(tmp_path, year="2017", clips=1)
    names = "\n".join(f"clip{number:02d}" for number in range(20))
    (tmp_path / "ImageSets" / "2016").mkdir()
    (tmp_path / "ImageSets" / "2016" / "val.txt").write_text(names)
    assert find_davis(tmp_path, names=["clip00"]).year == "2017"
    single = find_davis(tmp_path, year="2016", names=["clip00"])
    assert set(np.unique(single.clips[0].read_annotation().ids)) == {0, 1}


def test_the_ground_truth_scores_one_and_so_does_copying_in_a_static_video(root, tmp_path):
    benchmark = find_davis(root, names=CLIPS)
    scores = benchmark.score(root / "Annotations" / "480p")
    assert scores.overall["JF"] == scores.overall["J_recall"] == 1
    assert scores.overall["J_decay"] == 0
    davis_tree(tmp_path / "static", clips=1, static=True)
    static = find_davis(tmp_path / "static", names=["clip00"])
    assert evaluate(static, Identity(), CONFIG, tmp_path / "out").scores["JF"] == 1


def test_objects_are_averaged_not_clips(tmp_path):
    """In two clips of 2017, with two objects and with one, each object weighs the same."""
    davis_tree(tmp_path / "root", year="2017", clips=2, frames=6)
    for path in (tmp_path / "root" / "Annotations" / "480p" / "clip01").iterdir():
        ids = np.array(Image.open(path))
        Image.fromarray(np.where(ids == 1, ids, 0).astype(np.uint8)).save(path)
    benchmark = find_davis(tmp_path / "root", names=CLIPS)
    report = evaluate(benchmark, Identity(), CONFIG, tmp_path / "out")
    per = report.per_sequence
    two, one = (per[name]["J"] for name in CLIPS)
    assert [per[name]["objects"] for name in CLIPS] == [2, 1]
    assert report.scores["J"] == pytest.approx((2 * two + one) / 3, abs=1e-5)
    assert report.scores["J"] != pytest.approx((two + one) / 2, abs=1e-2)
    assert len(per["clip00"]["J_per_frame"]) == 4  # the first and the last of 6 are not scored
    assert per["clip00"]["frames"] == 6


def test_a_report_has_scores_settings_data_and_machine(root, tmp_path):
    report = evaluate(find_davis(root, names=CLIPS), load_method("rgb"), CONFIG, tmp_path)
    raw = json.loads((tmp_path / "report.json").read_text())
    wanted = {"benchmark", "encoder", "scores", "per_sequence", "commit", "config", "weights_sha256", "data"}
    assert wanted | {"machine", "seconds"} <= set(raw)
    assert raw["config"]["window_px"] == 24
    assert raw["data"]["sequences"] == 2
    assert raw["data"]["frames"] == 10
    assert read_report(tmp_path) == read_report(tmp_path / "report.json") == report


class Counting(NearestNeighbours):
    """Counts the clips that it propagates labels through."""

    clips = 0
    stop_at: int | None = None

    def propagate(self, video, annotated_frame, annotation, config):
        type(self).clips += 1
        if self.stop_at == self.clips:
            raise KeyboardInterrupt
        yield from super().propagate(video, annotated_frame, annotation, config)


def test_an_interrupted_evaluation_resumes_with_the_interrupted_clip(root, tmp_path):
    benchmark = find_davis(root, names=CLIPS)
    Counting.clips, Counting.stop_at = 0, 2
    with pytest.raises(KeyboardInterrupt):
        evaluate(benchmark, Counting(RgbEncoder()), CONFIG, tmp_path / "cut")
    assert [path.name for path in (tmp_path / "cut" / "predictions").iterdir()] == ["clip00"]
    Counting.clips, Counting.stop_at = 0, None
    resumed = evaluate(benchmark, Counting(RgbEncoder()), CONFIG, tmp_path / "cut")
    assert Counting.clips == 1
    whole = evaluate(benchmark, Counting(RgbEncoder()), CONFIG, tmp_path / "whole")
    assert resumed.per_sequence == whole.per_sequence
    assert Counting.clips == 3
    evaluate(benchmark, Counting(RgbEncoder()), CONFIG, tmp_path / "whole")
    assert Counting.clips == 3  # scored again without predicting


def test_predictions_of_different_settings_weights_or_data_are_never_mixed(root, tmp_path):
    benchmark = find_davis(root, names=["clip00"])
    evaluate(benchmark, load_method("rgb"), CONFIG, tmp_path)
    other = PropagateConfig(image_size_px=64, window_px=16, anchor_window_px=24)
    with pytest.raises(OutputError, match=r"predictions made with config\.window_px = 24, and now it is 16; .*-o"):
        evaluate(benchmark, load_method("rgb"), other, tmp_path)
    with pytest.raises(OutputError, match="made with encoder = rgb, and now it is identity"):
        evaluate(benchmark, Identity(), CONFIG, tmp_path)
    with pytest.raises(OutputError, match=r"made with benchmark\.sequences = 1, and now it is 2"):
        evaluate(find_davis(root, names=CLIPS), load_method("rgb"), CONFIG, tmp_path)
    report = evaluate(benchmark, Identity(), CONFIG, tmp_path, overwrite=True)
    assert report.encoder == "identity"


def test_predictions_without_a_record_are_refused(root, tmp_path):
    (tmp_path / "predictions").mkdir()
    with pytest.raises(OutputError, match="holds predictions without a record of how they were made"):
        evaluate(find_davis(root, names=["clip00"]), Identity(), CONFIG, tmp_path)


def test_masks_of_another_program_may_lack_frames_that_are_not_scored(root, tmp_path):
    benchmark = find_davis(root, names=["clip00"])
    shutil.copytree(root / "Annotations" / "480p" / "clip00", tmp_path / "masks" / "clip00")
    (tmp_path / "masks" / "clip00" / "00000.png").unlink()
    (tmp_path / "masks" / "clip00" / "00004.png").unlink()
    report = evaluate_masks(benchmark, tmp_path / "masks", tmp_path / "out")
    assert report.scores["JF"] == 1
    assert report.description == "predicted elsewhere; the checksum is of the masks"
    (tmp_path / "masks" / "clip00" / "00002.png").unlink()
    (tmp_path / "masks" / "clip00" / "00003.png").unlink()
    with pytest.raises(LabelError, match=r"clip00 lacks 00002\.png and 1 more; .*the 5 annotations of clip00"):
        benchmark.score(tmp_path / "masks")


@pytest.fixture
def many(tmp_path):
    """A clip of DAVIS-2017, and a folder for masks of it."""
    davis_tree(tmp_path / "root", year="2017", clips=1)
    (tmp_path / "masks" / "clip00").mkdir(parents=True)
    return find_davis(tmp_path / "root", names=["clip00"])


def write_masks(benchmark, masks, picture):
    """Write every annotation of the clip as an image made by `picture`."""
    for path in benchmark.ground_truth_files:
        Image.fromarray(picture(np.array(Image.open(path)))).save(masks / "clip00" / path.name)


OWN_COLOURS = np.array([(0, 0, 0), (255, 0, 0), (10, 200, 90), (255, 255, 0)], np.uint8)


def test_masks_in_colours_that_have_no_id_are_refused(many, tmp_path):
    write_masks(many, tmp_path / "masks", lambda ids: OWN_COLOURS[ids])
    with pytest.raises(
        LabelError, match=r"00000\.png shows .* not in DAVIS's palette: their ids cannot .* palette PNGs"
    ):
        many.score(tmp_path / "masks")
    write_masks(many, tmp_path / "masks", lambda ids: palette()[ids])
    assert many.score(tmp_path / "masks").overall["JF"] == 1


def test_ids_that_the_first_annotation_lacks_are_background_with_one_warning(many, tmp_path, caplog):
    write_masks(many, tmp_path / "masks", lambda ids: np.where(ids == 0, 255, ids).astype(np.uint8))
    with caplog.at_level(logging.WARNING, logger="timecycle"):
        assert many.score(tmp_path / "masks").overall["JF"] == 1
    (message,) = caplog.messages
    assert message.endswith(
        "clip00/00000.png has ids that the first annotation lacks (255), as have 4 other masks: "
        "they count as background"
    )


def test_masks_of_2016_with_several_objects_or_without_background_are_refused(root, tmp_path):
    benchmark = find_davis(root, names=["clip00"])
    (tmp_path / "clip00").mkdir()
    write_masks(benchmark, tmp_path, lambda ids: ids // 255)  # any value but 0 is the object
    assert benchmark.score(tmp_path).overall["JF"] == 1
    write_masks(benchmark, tmp_path, lambda ids: ids // 255 + 1)
    with pytest.raises(LabelError, match=r"no mask in .*clip00 has a background; DAVIS-2016 .* write 0 for the backgr"):
        benchmark.score(tmp_path)
    for name in ("00000.png", "00004.png"):  # a missing mask does not count as background
        (tmp_path / "clip00" / name).unlink()
    with pytest.raises(LabelError, match="no mask in"):
        benchmark.score(tmp_path)
    write_masks(benchmark, tmp_path, lambda ids: np.where(np.arange(ids.shape[1]) < 9, 7, ids).astype(np.uint8))
    with pytest.raises(LabelError, match=r"00000\.png has 3 values: 0, 7, 255; DAVIS-2016 has one object"):
        benchmark.score(tmp_path)


def test_the_error_of_misplaced_masks_names_their_folder_not_root(root, tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(
        SettingsError,
        match=r"no folder .*clip00 \(predicted masks\); the masks of a sequence are in a "
        rf"folder of its name: {tmp_path} is there and holds other",
    ):
        find_davis(root, names=["clip00"]).score(tmp_path)


def test_files_that_a_killed_evaluation_left_are_removed(root, tmp_path):
    benchmark = find_davis(root, names=["clip00"])
    left = tmp_path / ".report.json.0123456789abcdef.part"
    left.write_text("{")
    evaluate(benchmark, Identity(), CONFIG, tmp_path)
    assert not left.exists()
    left.write_text("{")
    evaluate_masks(benchmark, root / "Annotations" / "480p", tmp_path, overwrite=True)
    assert not left.exists()


def test_a_folder_with_another_evaluation_is_refused(root, tmp_path):
    benchmark = find_davis(root, names=["clip00"])
    evaluate(benchmark, Identity(), CONFIG, tmp_path)
    ground_truth = root / "Annotations" / "480p"
    with pytest.raises(OutputError, match="holds another evaluation; choose another folder with -o, or pass --overw"):
        evaluate_masks(benchmark, ground_truth, tmp_path)
    assert read_report(tmp_path).encoder == "identity"
    assert evaluate_masks(benchmark, ground_truth, tmp_path, overwrite=True).scores["JF"] == 1
    (tmp_path / "predictions.json").unlink()
    with pytest.raises(OutputError, match="holds another evaluation"):
        evaluate_masks(benchmark, ground_truth, tmp_path)


def test_interrupted_overwriting_leaves_no_old_predictions(root, tmp_path):
    benchmark = find_davis(root, names=CLIPS)
    evaluate(benchmark, Identity(), CONFIG, tmp_path)
    Counting.clips, Counting.stop_at = 0, 1
    with pytest.raises(KeyboardInterrupt):
        evaluate(benchmark, Counting(RgbEncoder()), CONFIG, tmp_path, overwrite=True)
    assert not (tmp_path / "report.json").exists()
    assert not (tmp_path / "predictions").exists()
    record = json.loads((tmp_path / "predictions.json").read_text())
    assert (record["settings"]["encoder"], record["clips"]) == ("rgb", {})
    Counting.clips, Counting.stop_at = 0, None
    evaluate(benchmark, Counting(RgbEncoder()), CONFIG, tmp_path)
    assert Counting.clips == 2


def test_a_changed_prediction_is_refused_before_it_is_scored(root, tmp_path, monkeypatch):
    benchmark = find_davis(root, names=CLIPS)
    evaluate(benchmark, Identity(), CONFIG, tmp_path)
    changed = tmp_path / "predictions" / "clip01" / "00002.png"
    shutil.copy(root / "Annotations" / "480p" / "clip01" / "00002.png", changed)
    monkeypatch.setattr(type(benchmark), "score", lambda *_, **__: pytest.fail("it was scored"))
    with pytest.raises(OutputError, match=r"predictions/clip01 was changed after it was predicted; pass --overwrite"):
        evaluate(benchmark, Identity(), CONFIG, tmp_path)


def test_a_folder_is_locked_while_it_is_scored(root, tmp_path, monkeypatch):
    benchmark = find_davis(root, names=["clip00"])
    score = type(benchmark).score

    def busy(self, predictions, *, progress=None):
        monkeypatch.setattr(type(benchmark), "score", score)
        for other in (
            lambda: evaluate(benchmark, Identity(), CONFIG, tmp_path),
            lambda: evaluate_masks(benchmark, root / "Annotations" / "480p", tmp_path, overwrite=True),
        ):
            with pytest.raises(OutputError, match="is in use by another run"):
                other()
        return score(self, predictions, progress=progress)

    monkeypatch.setattr(type(benchmark), "score", busy)
    assert evaluate(benchmark, Identity(), CONFIG, tmp_path).encoder == "identity"


def test_hidden_files_beside_images_are_not_frames(root, tmp_path):
    shutil.copytree(root, tmp_path / "root")
    (tmp_path / "root" / "JPEGImages" / "480p" / "clip00" / "._00000.jpg").write_bytes(b"no image")
    assert len(find_davis(tmp_path / "root", names=["clip00"]).clips[0].frames) == 5


def test_masks_of_a_different_size_are_refused(root, tmp_path):
    (tmp_path / "clip00").mkdir()
    for t in range(5):
        Image.fromarray(np.zeros((32, 48), np.uint8)).save(tmp_path / "clip00" / f"{t:05d}.png")
    with pytest.raises(LabelError, match=r"00000\.png is 48x32 but its annotation is 96x64; resize"):
        find_davis(root, names=["clip00"]).score(tmp_path)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("JPEGImages", r"no folder .*JPEGImages/480p \(DAVIS frames\); check ROOT: .* holds Annotations, ImageSets"),
        ("Annotations", r"no folder .*Annotations/480p \(DAVIS annotations\)"),
        ("ImageSets", r"no list of the DAVIS validation sequences: none of .*2017/val\.txt, .*480p/val\.txt; ROOT is"),
        ("JPEGImages/480p/clip01", r"no folder .*clip01 \(frames of clip01, one of 20 sequences\)"),
        ("Annotations/480p/clip00", r"no folder .*clip00 \(annotations of clip00, one of 20 sequences\)"),
    ],
)
def test_the_error_names_the_missing_folder(tmp_path, missing, message):
    davis_tree(tmp_path)
    shutil.rmtree(tmp_path / missing)
    with pytest.raises(SettingsError, match=message):
        find_davis(tmp_path)


def test_an_incomplete_list_and_frames_without_annotation_are_refused(tmp_path):
    davis_tree(tmp_path)
    (tmp_path / "Annotations" / "480p" / "clip01" / "00003.png").unlink()
    with pytest.raises(LabelError, match=r"clip01 has 5 frames in .* but 4 annotations in .*clip01"):
        find_davis(tmp_path, names=["clip01"])
    (tmp_path / "ImageSets" / "480p" / "val.txt").write_text("clip00\n")
    with pytest.raises(SettingsError, match=r"lists 1 sequences but DAVIS-2016 val has 20; .*--sequences"):
        find_davis(tmp_path)
    shutil.copy(tmp_path / "Annotations/480p/clip01/00002.png", tmp_path / "Annotations/480p/clip01/00003.png")
    assert len(find_davis(tmp_path, names=["clip00"]).clips) == 1  # named clips do not need the whole list


def test_the_error_of_an_unknown_sequence_lists_the_available_ones(root):
    with pytest.raises(SettingsError, match="there is no sequence 'camel'; the sequences are clip00, clip01"):
        find_davis(root, names=["camel"])
