"""Tuning: what follows well is ranked before what does not, without truth."""

import pytest

from clips import small_world, write_clip, write_mask
from oracle import OracleEncoder
from timecycle.cli.main import main
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


def test_an_encoder_that_knows_the_world_comes_before_one_that_does_not(world):
    video = open_video(world.video())
    candidates = [
        Candidate("colour", load_encoder("rgb"), CONFIG),
        Candidate("oracle", OracleEncoder(world, stride_px=4), CONFIG),
    ]
    tried = tune(video, 0, Masks(world.mask(0)), candidates, frames=6)
    assert [one.name for one in tried] == ["oracle", "colour"]
    assert tried[0].cycle_error < 0.4


def test_one_leap_out_and_back_is_no_proof():
    """Objects move farther than a window reaches: who leaps from the drawing loses them, and comes home by the leap."""
    world = small_world(frames=24)
    candidates = [
        Candidate(
            name,
            OracleEncoder(world, stride_px=4),
            PropagateConfig(window_px=12, anchor_window_px=12, temperature=0.05, past_frames=past_frames),
        )
        for name, past_frames in (("leaps", 0), ("steps", 7))
    ]
    steps, leaps = tune(open_video(world.video()), 0, Masks(world.mask(0)), candidates)
    assert (steps.name, leaps.name) == ("steps", "leaps")
    assert leaps.cycle_error > steps.cycle_error + 0.1


def test_points_can_be_tuned_for(world):
    truth = world.keypoints(0)
    points = Keypoints(truth.names, truth.xy, truth.visible)
    candidate = Candidate("oracle", OracleEncoder(world, stride_px=4), CONFIG)
    (tried,) = tune(open_video(world.video()), 0, points, [candidate], frames=4)
    assert 0 <= tried.cycle_error < 1


def test_a_drawing_at_the_end_is_refused(world):
    candidate = Candidate("colour", load_encoder("rgb"), CONFIG)
    with pytest.raises(LabelError, match="there are 1 frames after the drawing on frame 14"):
        tune(open_video(world.video()), 14, Masks(world.mask(14)), [candidate])


def test_the_command_ranks_presets_and_encoders(tmp_path, capsys, world):
    clip, mask = write_clip(tmp_path / "clip.mp4", world), write_mask(tmp_path / "first.png", world)
    command = ["tune", str(clip), str(mask), "--encoders", "rgb", "--presets", "fast", "crw2020", "--frames", "4"]
    assert main(command) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2
    assert said[0].startswith(" 1. cycle error 0.")
