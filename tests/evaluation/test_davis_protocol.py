"""DAVIS on a small tree in its own layout: found or refused exactly, predicted once, scored as the protocol says."""

import json
import logging
import shutil

import numpy as np
import pytest
from PIL import Image

from timecycle.errors import LabelError, OutputError, SettingsError
from timecycle.evaluation.davis import find_davis
from timecycle.evaluation.evaluate import evaluate, evaluate_masks
from timecycle.evaluation.methods import Identity, Neighbours, load_method
from timecycle.evaluation.report import read_report
from timecycle.labels.palette import palette
from timecycle.model.foreign.rgb import RgbEncoder
from timecycle.propagation.settings import PropagateConfig
from trees import davis_tree

CONFIG = PropagateConfig(image_size_px=64, window_px=24, anchor_window_px=24)
CLIPS = ["clip00", "clip01"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("davis")
    davis_tree(folder, filmed=2)
    return folder


def test_both_years_are_found_by_their_lists(tmp_path):
    davis_tree(tmp_path / "a", year="2016", filmed=1)
    davis_tree(tmp_path / "b", year="2017", filmed=1)
    found = [find_davis(tmp_path / folder, names=["clip00"]) for folder in "ab"]
    assert [benchmark.name for benchmark in found] == ["davis2016", "davis2017"]
    assert [sorted(np.unique(benchmark.clips[0].given().ids)) for benchmark in found] == [[0, 1], [0, 1, 2]]


def test_the_joint_release_lists_both_and_may_be_asked_for_either(tmp_path):
    davis_tree(tmp_path, year="2017", filmed=1)
    names = "\n".join(f"clip{number:02d}" for number in range(20))
    (tmp_path / "ImageSets" / "2016").mkdir()
    (tmp_path / "ImageSets" / "2016" / "val.txt").write_text(names)
    assert find_davis(tmp_path, names=["clip00"]).year == "2017"
    single = find_davis(tmp_path, year="2016", names=["clip00"])
    assert set(np.unique(single.clips[0].given().ids)) == {0, 1}


def test_the_truth_scores_one_and_so_does_copying_where_nothing_moves(root, tmp_path):
    benchmark = find_davis(root, names=CLIPS)
    scores = benchmark.score(root / "Annotations" / "480p")
    assert scores.overall["JF"] == scores.overall["J_recall"] == 1
    assert scores.overall["J_decay"] == 0
    davis_tree(tmp_path / "still", filmed=1, still=True)
    still = find_davis(tmp_path / "still", names=["clip00"])
    assert evaluate(still, Identity(), CONFIG, tmp_path / "out").scores["JF"] == 1


def test_objects_are_averaged_not_clips(tmp_path):
    """Two clips of 2017, with two objects and with one: the mean over the dataset weighs each object once."""
    davis_tree(tmp_path / "root", year="2017", filmed=2, frames=6)
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
    assert len(per["clip00"]["J_per_frame"]) == 4  # the first and the last of 6 are left out
    assert per["clip00"]["frames"] == 6


def test_a_report_says_all_that_is_needed_to_trust_it(root, tmp_path):
    report = evaluate(find_davis(root, names=CLIPS), load_method("rgb"), CONFIG, tmp_path)
    raw = json.loads((tmp_path / "report.json").read_text())
    wanted = {"benchmark", "encoder", "scores", "per_sequence", "commit", "config", "weights_sha256", "data"}
    assert wanted | {"machine", "seconds"} <= set(raw)
    assert raw["config"]["window_px"] == 24
    assert raw["data"]["sequences"] == 2
    assert raw["data"]["frames"] == 10
    assert read_report(tmp_path) == read_report(tmp_path / "report.json") == report


class Counting(Neighbours):
    """Carries as its encoder does, and counts the clips it was asked to carry."""

    carried = 0
    stop_at: int | None = None

    def carry(self, video, first, given, config):
        type(self).carried += 1
        if self.stop_at == self.carried:
            raise KeyboardInterrupt
        yield from super().carry(video, first, given, config)


def test_an_interrupted_evaluation_goes_on_with_the_clip_it_was_in(root, tmp_path):
    benchmark = find_davis(root, names=CLIPS)
    Counting.carried, Counting.stop_at = 0, 2
    with pytest.raises(KeyboardInterrupt):
        evaluate(benchmark, Counting(RgbEncoder()), CONFIG, tmp_path / "cut")
    assert [path.name for path in (tmp_path / "cut" / "predictions").iterdir()] == ["clip00"]
    Counting.carried, Counting.stop_at = 0, None
    resumed = evaluate(benchmark, Counting(RgbEncoder()), CONFIG, tmp_path / "cut")
    assert Counting.carried == 1
    whole = evaluate(benchmark, Counting(RgbEncoder()), CONFIG, tmp_path / "whole")
    assert resumed.per_sequence == whole.per_sequence
    assert Counting.carried == 3
    evaluate(benchmark, Counting(RgbEncoder()), CONFIG, tmp_path / "whole")
    assert Counting.carried == 3  # only scored again


def test_predictions_of_other_settings_weights_or_data_are_never_mixed(root, tmp_path):
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


def test_predictions_without_a_record_are_not_taken_up(root, tmp_path):
    (tmp_path / "predictions").mkdir()
    with pytest.raises(OutputError, match="holds predictions without a record of how they were made"):
        evaluate(find_davis(root, names=["clip00"]), Identity(), CONFIG, tmp_path)


def test_anyones_masks_are_scored_without_frames_the_protocol_leaves_out(root, tmp_path):
    benchmark = find_davis(root, names=["clip00"])
    shutil.copytree(root / "Annotations" / "480p" / "clip00", tmp_path / "masks" / "clip00")
    (tmp_path / "masks" / "clip00" / "00000.png").unlink()
    (tmp_path / "masks" / "clip00" / "00004.png").unlink()
    report = evaluate_masks(benchmark, tmp_path / "masks", tmp_path / "out")
    assert report.scores["JF"] == 1
    assert report.form == "predicted elsewhere; the checksum is of the masks"
    (tmp_path / "masks" / "clip00" / "00002.png").unlink()
    (tmp_path / "masks" / "clip00" / "00003.png").unlink()
    with pytest.raises(LabelError, match=r"clip00 lacks 00002\.png and 1 more; .*the 5 annotations of clip00"):
        benchmark.score(tmp_path / "masks")


@pytest.fixture
def many(tmp_path):
    """A clip of DAVIS-2017, and a folder for masks of it."""
    davis_tree(tmp_path / "root", year="2017", filmed=1)
    (tmp_path / "masks" / "clip00").mkdir(parents=True)
    return find_davis(tmp_path / "root", names=["clip00"])


def write_masks(benchmark, masks, picture):
    """Every annotation of the clip as `picture` makes it."""
    for path in benchmark.truth_files:
        Image.fromarray(picture(np.array(Image.open(path)))).save(masks / "clip00" / path.name)


OWN_COLOURS = np.array([(0, 0, 0), (255, 0, 0), (10, 200, 90), (255, 255, 0)], np.uint8)


def test_masks_in_colours_that_have_no_number_are_refused(many, tmp_path):
    write_masks(many, tmp_path / "masks", lambda ids: OWN_COLOURS[ids])
    with pytest.raises(
        LabelError, match=r"00000\.png shows .* not in DAVIS's palette: their ids cannot .* palette PNGs"
    ):
        many.score(tmp_path / "masks")
    write_masks(many, tmp_path / "masks", lambda ids: palette()[ids])
    assert many.score(tmp_path / "masks").overall["JF"] == 1


def test_ids_that_were_not_given_are_background_and_named_once(many, tmp_path, caplog):
    write_masks(many, tmp_path / "masks", lambda ids: np.where(ids == 0, 255, ids).astype(np.uint8))
    with caplog.at_level(logging.WARNING, logger="timecycle"):
        assert many.score(tmp_path / "masks").overall["JF"] == 1
    (said,) = caplog.messages
    assert said.endswith(
        "clip00/00000.png has ids that were not given (255), as have 4 other masks: they count as background"
    )


def test_masks_of_several_objects_or_without_background_are_not_of_2016(root, tmp_path):
    benchmark = find_davis(root, names=["clip00"])
    (tmp_path / "clip00").mkdir()
    write_masks(benchmark, tmp_path, lambda ids: ids // 255)  # 1 is as good as 255
    assert benchmark.score(tmp_path).overall["JF"] == 1
    write_masks(benchmark, tmp_path, lambda ids: ids // 255 + 1)
    with pytest.raises(LabelError, match=r"no mask in .*clip00 has a background; DAVIS-2016 .* write 0 for the backgr"):
        benchmark.score(tmp_path)
    for name in ("00000.png", "00004.png"):  # what is missing is no background
        (tmp_path / "clip00" / name).unlink()
    with pytest.raises(LabelError, match="no mask in"):
        benchmark.score(tmp_path)
    write_masks(benchmark, tmp_path, lambda ids: np.where(np.arange(ids.shape[1]) < 9, 7, ids).astype(np.uint8))
    with pytest.raises(LabelError, match=r"00000\.png has 3 values: 0, 7, 255; DAVIS-2016 has one object"):
        benchmark.score(tmp_path)


def test_masks_in_the_wrong_place_are_not_blamed_on_root(root, tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(
        SettingsError,
        match=r"no folder .*clip00 \(predicted masks\); the masks of a sequence are in a "
        rf"folder of its name: {tmp_path} is there and holds other",
    ):
        find_davis(root, names=["clip00"]).score(tmp_path)


def test_masks_do_not_go_beside_another_evaluation(root, tmp_path):
    benchmark = find_davis(root, names=["clip00"])
    evaluate(benchmark, Identity(), CONFIG, tmp_path)
    truth = root / "Annotations" / "480p"
    with pytest.raises(OutputError, match="holds another evaluation; choose another folder with -o, or pass --overw"):
        evaluate_masks(benchmark, truth, tmp_path)
    assert read_report(tmp_path).encoder == "identity"
    assert evaluate_masks(benchmark, truth, tmp_path, overwrite=True).scores["JF"] == 1
    (tmp_path / "predictions.json").unlink()
    with pytest.raises(OutputError, match="holds another evaluation"):
        evaluate_masks(benchmark, truth, tmp_path)


def test_overwriting_that_is_interrupted_leaves_nothing_old_that_passes_for_new(root, tmp_path):
    benchmark = find_davis(root, names=CLIPS)
    evaluate(benchmark, Identity(), CONFIG, tmp_path)
    Counting.carried, Counting.stop_at = 0, 1
    with pytest.raises(KeyboardInterrupt):
        evaluate(benchmark, Counting(RgbEncoder()), CONFIG, tmp_path, overwrite=True)
    assert not (tmp_path / "report.json").exists()
    assert not (tmp_path / "predictions").exists()
    record = json.loads((tmp_path / "predictions.json").read_text())
    assert (record["settings"]["encoder"], record["clips"]) == ("rgb", {})
    Counting.carried, Counting.stop_at = 0, None
    evaluate(benchmark, Counting(RgbEncoder()), CONFIG, tmp_path)
    assert Counting.carried == 2


def test_a_changed_prediction_is_refused_before_it_is_scored(root, tmp_path, monkeypatch):
    benchmark = find_davis(root, names=CLIPS)
    evaluate(benchmark, Identity(), CONFIG, tmp_path)
    changed = tmp_path / "predictions" / "clip01" / "00002.png"
    shutil.copy(root / "Annotations" / "480p" / "clip01" / "00002.png", changed)
    monkeypatch.setattr(type(benchmark), "score", lambda *_, **__: pytest.fail("it was scored"))
    with pytest.raises(OutputError, match=r"predictions/clip01 was changed after it was predicted; pass --overwrite"):
        evaluate(benchmark, Identity(), CONFIG, tmp_path)


def test_nobody_else_may_evaluate_there_while_it_is_scored(root, tmp_path, monkeypatch):
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


def test_files_that_systems_leave_beside_images_are_not_frames(root, tmp_path):
    shutil.copytree(root, tmp_path / "root")
    (tmp_path / "root" / "JPEGImages" / "480p" / "clip00" / "._00000.jpg").write_bytes(b"no image")
    assert len(find_davis(tmp_path / "root", names=["clip00"]).clips[0].frames) == 5


def test_masks_of_another_size_are_refused(root, tmp_path):
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
def test_what_is_missing_is_named_exactly(tmp_path, missing, message):
    davis_tree(tmp_path)
    shutil.rmtree(tmp_path / missing)
    with pytest.raises(SettingsError, match=message):
        find_davis(tmp_path)


def test_a_list_cut_short_and_frames_without_annotation_are_refused(tmp_path):
    davis_tree(tmp_path)
    (tmp_path / "Annotations" / "480p" / "clip01" / "00003.png").unlink()
    with pytest.raises(LabelError, match=r"clip01 has 5 frames in .* but 4 annotations in .*clip01"):
        find_davis(tmp_path, names=["clip01"])
    (tmp_path / "ImageSets" / "480p" / "val.txt").write_text("clip00\n")
    with pytest.raises(SettingsError, match=r"lists 1 sequences but DAVIS-2016 val has 20; .*--sequences"):
        find_davis(tmp_path)
    shutil.copy(tmp_path / "Annotations/480p/clip01/00002.png", tmp_path / "Annotations/480p/clip01/00003.png")
    assert len(find_davis(tmp_path, names=["clip00"]).clips) == 1  # a part was asked for


def test_an_unknown_sequence_lists_the_ones_there_are(root):
    with pytest.raises(SettingsError, match="there is no sequence 'camel'; the sequences are clip00, clip01"):
        find_davis(root, names=["camel"])
