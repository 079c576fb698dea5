"""The verbs of Python: every example of docs/python.md, runs, corrections from memory, encoders, pictures, progress."""

import base64
import copy
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import timecycle as tc
from clips import small_world, write_clip, write_mask
from folders import contents
from small_runs import TINY
from timecycle.cli import main
from timecycle.errors import LabelError, OutputError, SettingsError, WeightsError
from timecycle.model.resnet import ResNetConfig, random_resnet
from timecycle.synthetic import WorldConfig, make_world
from trees import davis_tree

FRAMES = 12
PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def world():
    return small_world(frames=FRAMES)


@pytest.fixture(scope="module")
def clip(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    write_mask(folder / "first.png", world)
    write_mask(folder / "late.png", world, 8)
    return write_clip(folder / "dog.mp4", world)


@pytest.fixture(scope="module")
def finished(clip, world, tmp_path_factory):
    """A run that tests copy before they change it."""
    folder = tmp_path_factory.mktemp("runs") / "out"
    tc.propagate_to_folder(clip, tc.Masks(world.mask(0)), folder, encoder="rgb", config="fast")
    return folder


@pytest.fixture
def run(finished, tmp_path):
    return tc.Run(shutil.copytree(finished, tmp_path / "out"))


# The page


@pytest.mark.slow  # runs every verb, some with the bundled encoder
def test_every_example_of_the_page_runs(clip, world, tmp_path, monkeypatch):
    shutil.copytree(clip.parent, tmp_path, dirs_exist_ok=True)
    (tmp_path / "masks").mkdir()
    for t in range(FRAMES):
        write_mask(tmp_path / "masks" / f"{t:05d}.png", world, t)
    (tmp_path / "videos").mkdir()
    for seed in range(4):
        moving = make_world(WorldConfig(height_px=80, width_px=96, frames=24, seed=seed))
        write_clip(tmp_path / "videos" / f"{seed}.mp4", moving)
    davis_tree(tmp_path / "DAVIS")
    listing = tmp_path / "DAVIS" / "ImageSets" / "480p" / "val.txt"
    listing.write_text(listing.read_text().replace("clip00", "camel").replace("clip01", "dog"))
    for part in ("JPEGImages", "Annotations"):
        for number, name in enumerate(("camel", "dog")):
            (tmp_path / "DAVIS" / part / "480p" / f"clip{number:02d}").rename(tmp_path / "DAVIS" / part / "480p" / name)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    short = ", ".join(repr(setting) for setting in ("steps=2", *TINY))
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block.replace('"steps=2000"', short), block, "exec"), names)  # noqa: S102  examples of the docs
    verbs = "propagate propagate_to_folder check correct undo audit tune correspond train pack bulk evaluate compare"
    assert all(f"tc.{verb}(" in "".join(blocks) for verb in (*verbs.split(), "label_batch", "benchmark"))
    assert names["steps"][-1] == 1
    assert repr(names["run"]).startswith("Run('named', 12 frames, ")


def test_the_page_lists_every_type():
    types = [name for name in tc.__all__ if name[0].isupper() and name not in ("Propagator",)]
    assert all(f"`{name}`" in PAGE for name in types)


# Runs


def test_a_run_reads_what_was_written(run, world):
    assert len(run) == FRAMES
    assert (run.labels[0].ids == world.mask(0)).all()
    written = tc.Masks.read(run.folder / "labels" / f"{FRAMES - 1:05d}.png")
    assert (run.labels[FRAMES - 1].ids == written.ids).all()
    assert [frame.index for frame in run.frames if frame.state in ("uncertain", "lost")] == run.frames_to_review
    assert run.confidence[0]["1"].confidence == 1
    assert (run.video[3].image == tc.open_video(run.record["origin"]["video"])[3].image).all()
    assert repr(run) == f"Run({str(run.folder)!r}, 12 frames, {len(run.frames_to_review)} to review)"
    with pytest.raises(LabelError, match="has no labels of frame 12; ask for an index from 0 to 11"):
        run.labels[FRAMES]


def test_a_run_without_confidence_has_nothing_to_review(clip, world, tmp_path):
    masks = tc.Masks(world.mask(0))
    run = tc.propagate_to_folder(clip, masks, tmp_path / "out", encoder="rgb", config="fast", confidence=None)
    assert (run.confidence, run.frames_to_review, len(run)) == ({}, [], FRAMES)


def test_folders_without_a_finished_run_are_refused(run, tmp_path):
    with pytest.raises(OutputError, match="holds no run"):
        tc.Run(tmp_path / "nothing")
    record = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps(record | {"status": "running"}))
    with pytest.raises(OutputError, match="is not finished"):
        tc.check(run.folder)


# Corrections


def test_labels_arrays_and_files_correct_alike_and_undo_restores(finished, clip, world, tmp_path):
    given = (tc.Masks(world.mask(8)), world.mask(8), clip.with_name("late.png"), str(clip.with_name("late.png")))
    results = []
    for number, correction in enumerate(given):
        run = tc.Run(shutil.copytree(finished, tmp_path / f"{number}"))
        before = run.labels[9].ids
        (interval,) = tc.correct(run, {8: correction})
        assert 8 in interval.changed
        assert (run.labels[8].ids == world.mask(8)).all()
        assert (run.labels[9].ids != before).any()
        assert run.frames[8].source == "annotated"
        results.append({name: data for name, data in contents(run.folder).items() if name.startswith("labels")})
        assert tc.undo(run.folder) == [8]
        assert contents(run.folder / "labels") == contents(finished / "labels")
    assert all(result == results[0] for result in results[1:])


def test_a_correction_may_be_exhaustive_or_show_one_object(run, world):
    tc.correct(run, {8: world.mask(8) == 2}, object_id=1)
    assert ((run.labels[8].ids == 1) == (world.mask(8) == 2)).all()
    tc.undo(run)
    tc.correct(run, {8: np.where(world.mask(8) == 1, 1, 0)}, exhaustive=True)
    assert set(np.unique(run.labels[8].ids)) == {0, 1}


def test_corrections_without_a_frame_are_refused(run, world, clip):
    for correction in (world.mask(8), tc.Masks(world.mask(8)), clip.with_name("late.png")):
        with pytest.raises(LabelError, match=r"a correction was given without its frame; pass \{43: masks\}"):
            tc.correct(run, correction)


def test_a_run_of_arrays_and_an_own_encoder_is_corrected_with_both(world, tmp_path):
    model = random_resnet(ResNetConfig(), seed=0)
    video = np.stack(list(world.video()))
    run = tc.propagate_to_folder(video, world.mask(0), tmp_path / "out", encoder=model, config="fast")
    with pytest.raises(OutputError, match="does not say where its video is; in Python, pass video and encoder"):
        tc.correct(run, {8: world.mask(8)})
    with pytest.raises(OutputError, match="does not say how its encoder is loaded"):
        tc.correct(run, {8: world.mask(8)}, video=video)
    assert tc.correct(run, {8: world.mask(8)}, video=video, encoder=model)
    with pytest.raises(OutputError, match="the encoder rgb is not the one"):
        tc.correct(run, {9: world.mask(9)}, video=video, encoder="rgb")


def test_a_csv_of_points_corrects_its_own_frames(clip, world, tmp_path):
    points = world.keypoints(0)
    first = tc.Keypoints(points.names, points.xy, points.visible)
    run = tc.propagate_to_folder(clip, first, tmp_path / "out", encoder="rgb", config="fast")
    name = points.names[0]
    (tmp_path / "points.csv").write_text(f"frame,name,x,y\n8,{name},5,6\n")
    tc.correct(run, tmp_path / "points.csv")
    corrected = run.labels[8]
    assert corrected.xy[corrected.names.index(name)].tolist() == [5, 6]


# Audit and tune


def test_a_run_audits_as_its_video_and_labels_do(run, clip):
    alone, both = tc.audit(run, encoder="rgb"), tc.audit(clip, run.folder / "labels", encoder="rgb")
    assert np.array_equal(alone.overlap, both.overlap, equal_nan=True)
    assert np.array_equal(tc.audit(clip, str(run.folder), encoder="rgb").overlap, both.overlap, equal_nan=True)
    assert repr(alone).startswith("Audit(12 frames, ")


def test_an_object_that_loses_its_label_is_found(clip, world):
    masks = {t: np.where((world.mask(t) == 2) & (t >= 6), 0, world.mask(t)) for t in range(FRAMES)}
    (finding,) = tc.audit(clip, masks).findings
    assert (finding.kind, finding.object) == ("dropped", "2")
    assert finding.first in (5, 6)


def test_labels_that_cannot_be_audited_are_refused(clip, world):
    with pytest.raises(LabelError, match="coordinates cannot be audited; audit masks, parts, keypoints"):
        tc.audit(clip, dict.fromkeys(range(4), tc.Coordinates.of_image(64, 96)))
    with pytest.raises(LabelError, match="no labels were given; pass the labels too"):
        tc.audit(clip)


def test_tune_names_presets_and_settings(clip, world):
    configs = ["fast", tc.PropagateConfig(image_size_px=120, neighbours=1)]
    tried = tc.tune(clip, world.mask(0), encoders=["rgb"], configs=configs, frames=4)
    assert sorted(one.name for one in tried) == ["rgb fast", "rgb image_size_px=120 neighbours=1"]
    assert [one.cycle_error for one in tried] == sorted(one.cycle_error for one in tried)


# Encoders


class Torchvision(nn.Module):
    """The names of torchvision's ResNet: ours, with the layers that ours leaves out."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        for name, module in inner.named_children():
            self.add_module(name, module)
        self.layer4 = nn.Sequential(nn.Conv2d(256, 512, 3))
        self.fc = nn.Linear(512, 1000)


@pytest.fixture(scope="module")
def model():
    return random_resnet(ResNetConfig(), seed=0).eval()


def test_a_model_is_the_same_encoder_as_its_folder_and_its_torchvision_form(model, world, tmp_path):
    tc.save_pretrained(model, tmp_path / "saved")
    expected = tc.load_encoder(tmp_path / "saved", device="cpu")
    for given in (model, tc.from_pretrained(tmp_path / "saved"), Torchvision(model)):
        encoder = tc.load_encoder(given, device="cpu")
        assert encoder.sha256 == expected.sha256
        assert torch.equal(encoder.encode(world.frame(0)).cells, expected.encode(world.frame(0)).cells)
    assert tc.load_encoder(expected) is expected


def test_a_module_becomes_an_encoder_of_its_own_stride_and_does_not_change(world):
    patches, padded = nn.Conv2d(3, 16, 8, stride=8), nn.Conv2d(3, 16, 3, stride=2, padding=1)
    for module, stride, first in ((patches, 8, 3.5), (padded, 2, 0)):
        before = copy.deepcopy(module.state_dict())
        features = tc.load_encoder(module, device="cpu").encode(world.frame(0))
        assert (features.grid.x.stride_px, features.grid.x.first_px) == (stride, first)
        assert features.grid.x.cells == 96 // stride
        torch.testing.assert_close(features.cells.norm(dim=-1), torch.ones(features.cells.shape[:2]))
        assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
        assert all(parameter.requires_grad for parameter in module.parameters())


def test_modules_that_do_not_fit_are_refused():
    with pytest.raises(WeightsError, match="the cells of the module Conv2d do not cover the image evenly: 63 for 256"):
        tc.load_encoder(nn.Conv2d(3, 8, 7, stride=4))
    with pytest.raises(WeightsError, match="the module Sequential returns no feature map"):
        tc.load_encoder(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()))


# Pictures


def png_of(html: str) -> Image.Image:
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    return Image.open(io.BytesIO(base64.b64decode(data)))


def test_pictures_show_the_labels_on_the_frame(run, clip, world):
    frame = next(tc.propagate(clip, world.mask(0), encoder="rgb", config="fast"))
    expected = frame.labels.overlay(frame.image)
    assert (np.array(frame.show()) == expected).all()
    assert (np.array(frame.labels.show(frame.image)) == expected).all()
    assert (np.array(png_of(frame._repr_html_())) == expected).all()
    assert (np.array(run.video[2].show()) == run.video[2].image).all()
    assert run.show().size == Image.open(run.folder / "contact.png").size
    assert max(png_of(run._repr_html_()).size) == 640


def test_every_kind_with_pixels_has_a_picture(world):
    masks = tc.Masks(world.mask(0))
    texture = tc.Texture(np.full((64, 96, 4), 255, np.uint8))
    for labels in (masks, tc.Parts(masks.ids, masks.ids), texture, tc.Coordinates.of_image(64, 96)):
        assert png_of(labels._repr_html_()).size == (96, 64)
        assert (np.array(labels.show()) == labels.overlay(np.full((64, 96, 3), 64, np.uint8))).all()
    points = tc.Keypoints(("nose",), np.ones((1, 2), np.float32), np.ones(1, bool))
    assert points._repr_html_() is None
    assert points.show(world.frame(0)).size == (96, 64)
    with pytest.raises(LabelError, match="keypoints alone have no picture; pass their frame"):
        points.show()
    match = tc.correspond(world.frame(0), world.frame(1), encoder="rgb")
    assert png_of(match._repr_html_()).size == match.show(world.frame(0)).size == (96, 64)


def test_captions_in_a_notebook_are_escaped():
    points = tc.Masks(np.ones((4, 4), np.uint16))
    assert "<figcaption>Masks(1 object: 1; 4x4 px)</figcaption>" in points._repr_html_()
    video = tc.open_video(np.zeros((2, 4, 4, 3), np.uint8), fps=25)
    assert repr(video) == "Video('array', 2 frames, 4x4 px, 25 fps)"
    assert repr(video[1]) == "Frame(index=1, time_seconds=0.04, 4x4 px)"


# Progress


@pytest.mark.parametrize("annotated", [0, 8])  # with 8 there is a backward pass too
def test_progress_counts_every_step_once(clip, world, annotated, tmp_path):
    for verb in (
        lambda show: list(
            tc.propagate(clip, {annotated: world.mask(annotated)}, encoder="rgb", config="fast", progress=show)
        ),
        lambda show: tc.propagate_to_folder(
            clip, {annotated: world.mask(annotated)}, tmp_path / "out", encoder="rgb", config="fast", progress=show
        ),
    ):
        calls = []
        verb(lambda done, total, calls=calls: calls.append((done, total)))
        total = FRAMES + (annotated + 1 if annotated else 0)
        assert calls == [(done, total) for done in range(1, total + 1)]


def test_progress_is_shown_only_when_asked_for(clip, world, capfd):
    for progress, shown in ((None, False), (False, False), (True, True)):
        list(tc.propagate(clip, world.mask(0), encoder="rgb", config="fast", progress=progress))
        assert ("propagating" in capfd.readouterr().err) == shown


# Many videos


def test_a_list_of_videos_gives_what_a_manifest_gives(clip, tmp_path, monkeypatch):
    monkeypatch.chdir(clip.parent)
    (tmp_path / "videos.csv").write_text(f"video,labels\n{clip},{clip.with_name('first.png')}\n")
    from_file = tc.bulk(tmp_path / "videos.csv", tmp_path / "a", encoder="rgb", config="fast")
    line = {"video": "dog.mp4", "labels": Path("first.png")}
    from_list = tc.bulk([line], tmp_path / "b", encoder="rgb", config="fast")
    assert (from_file.done, from_list.done, from_list.dead) == (1, 1, 0)
    assert contents(tmp_path / "a" / "dog" / "labels") == contents(tmp_path / "b" / "dog" / "labels")
    assert tc.bulk([line], tmp_path / "b", encoder="rgb", config="fast").before == 1


def test_bulk_refuses_what_other_processes_cannot_load(model, tmp_path):
    with pytest.raises(SettingsError, match=r"which other processes cannot load; pass its name or path"):
        tc.bulk([{"video": "dog.mp4", "labels": "first.png"}], tmp_path / "out", encoder=model)
    with pytest.raises(SettingsError, match="the list of videos line 2 has no labels"):
        tc.bulk([{"video": "a.mp4", "labels": "a.png"}, {"video": "b.mp4"}], tmp_path / "out", encoder="rgb")


# Evaluation


def test_an_evaluation_without_a_folder_scores_the_same_and_keeps_nothing(tmp_path, monkeypatch):
    davis_tree(tmp_path / "DAVIS", clips=1)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    settings = {"encoder": "rgb", "config": "fast", "sequences": ["clip00"]}
    kept = tc.evaluate("davis", tmp_path / "DAVIS", tmp_path / "scores", **settings)
    gone = tc.evaluate("davis", str(tmp_path / "DAVIS"), **settings)
    assert gone.scores == kept.scores
    assert (tmp_path / "scores" / "report.json").is_file()
    assert not list((tmp_path / "tmp").iterdir())
    same = tc.compare(kept, tmp_path / "scores")
    assert all(one.difference == 0 for one in same.differences)
    assert repr(kept).startswith("Report(rgb on davis2016, 1 sequence: ")
    copied = tc.evaluate("davis", tmp_path / "DAVIS", encoder="identity", sequences=["clip00"])
    assert copied.scores["JF"] < 1
    masks = tmp_path / "DAVIS" / "Annotations" / "480p"
    assert tc.evaluate("davis", tmp_path / "DAVIS", masks=masks, sequences=["clip00"]).scores["JF"] == 1


def test_wrong_benchmarks_and_options_are_refused(tmp_path):
    with pytest.raises(SettingsError, match="there is no benchmark 'devis'; choose one of davis, jhmdb"):
        tc.evaluate("devis", tmp_path)
    with pytest.raises(SettingsError, match="the benchmark davis has no option 'task'; its options are year"):
        tc.evaluate("davis", tmp_path, task="parts")
    with pytest.raises(SettingsError, match="an encoder or settings cannot be combined with masks"):
        tc.evaluate("davis", tmp_path, masks=tmp_path, encoder="rgb")


# Training


@pytest.mark.slow  # trains, twice
def test_training_resumes_with_its_own_settings_and_refuses_others(tmp_path, clip):
    (tmp_path / "videos").mkdir()
    for seed in range(3):
        world = make_world(WorldConfig(height_px=80, width_px=96, frames=14, seed=seed))
        write_clip(tmp_path / "videos" / f"{seed}.mp4", world)
    config = tc.train_config("small", ["steps=2", *TINY])
    calls = []
    done = tc.train(tmp_path / "videos", tmp_path / "run", config=config, progress=lambda *now: calls.append(now))
    assert calls[-2:] == [(1, 2), (2, 2)]
    again = tc.train(tmp_path / "videos", tmp_path / "run", resume=True)
    assert (again.weights, again.steps, again.after) == (done.weights, 2, None)
    with pytest.raises(SettingsError, match="was started with another setting of steps"):
        tc.train(tmp_path / "videos", tmp_path / "run", resume=True, steps=3)
    with pytest.raises(SettingsError, match="steps and minutes were both given"):
        tc.train(tmp_path / "videos", tmp_path / "run", steps=3, minutes=1)
    said = []
    started = tc.train(
        tmp_path / "videos", tmp_path / "next", config=config, start="timecycle-v2", licence="mine", say=said.append
    )
    assert started.before is not None
    assert any("whose terms still apply to them" in line for line in said)


def test_files_of_images_are_matched_as_their_pixels_are(world, tmp_path):
    for t in (0, 1):
        Image.fromarray(world.frame(t)).save(tmp_path / f"{t}.png")
    by_file = tc.correspond(tmp_path / "0.png", str(tmp_path / "1.png"), encoder="rgb")
    by_pixels = tc.correspond(world.frame(0), world.frame(1), encoder="rgb")
    assert np.array_equal(by_file.flow, by_pixels.flow)


def test_completion_offers_the_public_names_alone():
    assert dir(tc) == sorted(tc.__all__)


def test_run_whose_video_was_moved_is_corrected_with_its_new_location(clip, world, tmp_path, capsys):
    moving = Path(shutil.copy(clip, tmp_path / "dog.mp4"))
    tc.propagate_to_folder(moving, {0: clip.parent / "first.png"}, tmp_path / "out", encoder="rgb", config="fast")
    moved = moving.rename(tmp_path / "cat.mp4")
    command = ["correct", str(tmp_path / "out"), f"8={clip.parent / 'late.png'}"]
    assert main(command) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "dog.mp4 any more try: put it back, or say where it is now: timecycle correct OUT --video FILE" in told
    assert main([*command, "--video", str(moved)]) == 0
    assert tc.Run(tmp_path / "out").frames[8].source == "annotated"


def test_correction_of_a_new_object_is_noted(clip, world, tmp_path, caplog):
    run = tc.propagate_to_folder(clip, {0: clip.parent / "first.png"}, tmp_path / "out", encoder="rgb", config="fast")
    ids = (world.mask(8) == 1).astype(np.uint16)
    tc.correct(run, {8: ids}, object_id=9)
    assert "object 9 of the annotation of frame 8 is new: the run has 1, 2" in caplog.text


def test_run_of_a_numbered_pattern_is_corrected(world, tmp_path):
    for t in range(4):
        Image.fromarray(world.frame(t)).save(tmp_path / f"shot_{t:04d}.png")
    run = tc.propagate_to_folder(
        tmp_path / "shot_####.png", tc.Masks(world.mask(0)), tmp_path / "out", encoder="rgb", config="fast"
    )
    tc.correct(run, {3: tc.Masks(world.mask(3))})
    assert run.frames[3].source == "annotated"
