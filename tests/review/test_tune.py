"""Tuning: better candidates are ranked first, without ground truth."""

import pytest

from clips import small_world, write_clip, write_mask
from oracle import OracleEncoder
from timecycle.cli.main import main
from timecycle.config import propagate_config
from timecycle.errors import LabelError
from timecycle.labels import Keypoints, Masks
from timecycle.model.registry import load_encoder
from timecycle.propagation.settings import PropagateConfig
from timecycle.review.tune import Candidate, tune
from timecycle.video import open_video

CONFIG = PropagateConfig(window_px=32, anchor_window_px=32)


@pytest.fixture(scope="module")
def world():
    return small_world(frames=16)


def test_oracle_encoder_is_ranked_before_colour(world):
    video = open_video(world.video())
    candidates = [
        Candidate("colour", load_encoder("rgb"), CONFIG),
        Candidate("oracle", OracleEncoder(world, stride_px=4), CONFIG),
    ]
    tuned = tune(video, 0, Masks(world.mask(0)), candidates, frames=6)
    assert [one.name for one in tuned] == ["oracle", "colour"]
    assert tuned[0].cycle_error < 0.4


def test_matching_distant_frames_directly_there_and_back_is_not_rewarded():
    """Objects leave the window, so matching the annotated frame alone loses them, though its cycles would close."""
    world = small_world(frames=24)
    candidates = [
        Candidate(
            name,
            OracleEncoder(world, stride_px=4),
            propagate_config(
                "plain", ("window_px=12", "anchor_window_px=12", "temperature=0.05", f"past_frames={past_frames}")
            ),
        )
        for name, past_frames in (("direct", 0), ("stepwise", 7))
    ]
    stepwise, direct = tune(open_video(world.video()), 0, Masks(world.mask(0)), candidates)
    assert (stepwise.name, direct.name) == ("stepwise", "direct")
    assert direct.cycle_error > stepwise.cycle_error + 0.1


def test_keypoints_can_be_tuned(world):
    ground_truth = world.keypoints(0)
    points = Keypoints(ground_truth.names, ground_truth.xy, ground_truth.visible)
    candidate = Candidate("oracle", OracleEncoder(world, stride_px=4), CONFIG)
    (tuned,) = tune(open_video(world.video()), 0, points, [candidate], frames=4)
    assert 0 <= tuned.cycle_error < 1


def test_annotation_of_the_last_frames_is_refused(world):
    candidate = Candidate("colour", load_encoder("rgb"), CONFIG)
    with pytest.raises(LabelError, match="there are only 1 frames after the annotated frame 14"):
        tune(open_video(world.video()), 14, Masks(world.mask(14)), [candidate])


def test_command_ranks_presets_and_encoders(tmp_path, capsys, world):
    clip, mask = write_clip(tmp_path / "clip.mp4", world), write_mask(tmp_path / "first.png", world)
    command = ["tune", str(clip), str(mask), "--encoders", "rgb", "--presets", "fast", "crw2020", "--frames", "4"]
    assert main(command) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert printed[0].startswith(" 1. cycle error 0.")


def test_command_takes_labels_of_other_tools(tmp_path, capsys, world):
    clip, masks = write_clip(tmp_path / "clip.mp4", world), tmp_path / "masks"
    masks.mkdir()
    write_mask(masks / "00000.png", world)
    exported = str(tmp_path / "annotations.xml")
    assert main(["convert", str(masks), exported, "--to", "cvat", "--video", str(clip)]) == 0
    capsys.readouterr()
    assert main(["tune", str(clip), exported, "--encoders", "rgb", "--presets", "fast", "--frames", "2"]) == 0
    assert capsys.readouterr().out.startswith(" 1. cycle error 0.")
