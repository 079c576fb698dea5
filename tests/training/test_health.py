"""Figures of health: each failure raises its own alarm, and healthy features raise none."""

from contextlib import closing

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from timecycle.grid import grid_over
from timecycle.pose import cell_centres
from timecycle.training.health import alarms, effective_rank, feature_health, mean_cosine, position_r2
from timecycle.training.heldout import cycle_accuracy, moving_cells, warp_accuracy
from timecycle.training.record import Journal
from timecycle.training.settings import OptimizerConfig
from wandering import FRAME, frames, world

GRID = grid_over(128, 128, cells=(16, 16), stride_px=8, first_px=0)
POSITIONS = cell_centres(GRID)


def random_features(images=8, channels=64, seed=0):
    made = torch.randn(images, 256, channels, generator=torch.Generator().manual_seed(seed))
    return F.normalize(made, dim=-1)


def names(figures):
    return set(alarms(figures))


def test_healthy_features_raise_no_alarm():
    figures = feature_health(random_features(), POSITIONS)
    assert figures["effective_rank"] > 50
    assert abs(figures["mean_cosine"]) < 0.05
    assert figures["position_r2"] < 0.1
    assert not alarms(figures)


def test_equal_features_raise_the_alarms_of_collapse():
    figures = feature_health(torch.ones(4, 256, 64) / 8, POSITIONS)
    assert figures["effective_rank"] == pytest.approx(1)
    assert figures["mean_cosine"] == pytest.approx(1)
    assert {"effective_rank", "mean_cosine"} <= names(figures)


def test_effective_rank_counts_directions():
    few = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0)) @ torch.eye(3, 64)
    assert effective_rank(few.double()) == pytest.approx(3, abs=0.05)


def test_features_that_encode_their_position_raise_an_alarm():
    leaky = torch.cat([random_features() * 0.3, POSITIONS.expand(8, -1, -1)], dim=-1)
    figures = feature_health(F.normalize(leaky, dim=-1), POSITIONS)
    assert figures["position_r2"] > 0.7
    assert "position_r2" in names(figures)
    assert position_r2(random_features()[:1].double(), POSITIONS.double()) == 0  # one image is not enough


def test_mean_cosine_is_that_of_all_pairs():
    flat = random_features(1, 8)[0, :20].double()
    pairs = flat @ flat.T
    assert mean_cosine(flat) == pytest.approx(float((pairs.sum() - pairs.trace()) / (20 * 19)))


def test_alarms_of_objectives_give_advice():
    raised = alarms({"entropy": 0.99, "spread": 0.05, "static_share": 0.95, "other": 7.0})
    assert set(raised) == {"entropy", "spread", "static_share"}
    assert "spread is 0.05: every patch is matched to one fixed position; use" in raised["spread"]


def test_perfect_features_return_and_static_features_never_move():
    seen = frames(world(), [(0, 0), (2, 1), (3, 3)])
    inner = torch.zeros(15, 15, dtype=torch.bool)
    inner[4:11, 4:11] = True
    moving = inner.flatten().expand(3, -1)
    good = cycle_accuracy(seen, moving, FRAME)
    assert good == (1, 0)
    static = cycle_accuracy(seen[:, :1].expand(-1, 3, -1, -1, -1), moving, FRAME)
    assert static == (1, 1)


def test_only_perfect_features_match_known_warps():
    whole = world()
    first, second = frames(whole, [(0, 0), (3, -2)]).unbind(dim=1)
    maps = torch.tensor([[1.0, 0, -3 * 16 / 120], [0, 1, 2 * 16 / 120]]).expand(3, 2, 3)
    assert warp_accuracy(first, second, maps, FRAME) == 1
    assert warp_accuracy(first, world(seed=4)[:, :, :15, :15], maps, FRAME) < 0.15


def test_moving_cells_change_in_every_frame():
    clips = torch.zeros(1, 3, 128, 128, 3, dtype=torch.uint8)
    clips[:, 1, :64, :64] = 200
    moving = moving_cells(clips, GRID).reshape(16, 16)
    assert moving[:7, :7].all()
    assert not moving[9:, 9:].any()


def test_learning_rate_warms_up_and_falls_to_zero():
    def rate(step, shape="cosine"):
        config = OptimizerConfig(learning_rate=1.0, warmup_steps=10, shape=shape)
        return config.learning_rate_at(step, total=110)

    assert rate(0) == pytest.approx(0.1)
    assert rate(9) == rate(10) == 1
    assert rate(60) == pytest.approx(0.5)
    assert rate(110) == pytest.approx(0, abs=1e-9)
    assert rate(110, "constant") == 1
    assert all(rate(step) >= rate(step + 1) for step in range(10, 110))


@pytest.mark.parametrize(
    ("figures", "alarm"),
    [
        ({"pose_gain": 0.02}, "pose_gain"),  # affinities may be sharp while every pose is a guess
        ({"return_rate_1": 0.94}, "return_rate_1"),
        ({"spread": 0.05}, "spread"),
        ({"static_share": 0.95}, "static_share"),
        ({"entropy": 0.99}, "entropy"),
    ],
)
def test_each_known_failure_raises_its_alarm(figures, alarm):
    assert names(figures) == {alarm}


def test_alarms_use_the_mean_of_recent_steps_also_after_resuming(tmp_path):
    with closing(Journal(tmp_path)) as journal:
        for step in range(1, 61):
            journal.write(step, {"spread": 1.0 if step <= 40 else 0.0})
        assert journal.recent_mean({"spread": 0.0}) == {"spread": pytest.approx(29 / 50, abs=0.02)}
        mean = journal.recent_mean({"spread": 0.0})
    with closing(Journal(tmp_path, resume_at=60)) as resumed:
        assert resumed.recent_mean({"spread": 0.0}) == mean
