"""Figures of health: each sign is seen where it is made, and not where it is not."""

from contextlib import closing

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from timecycle.grid import grid_over
from timecycle.pose import cell_places
from timecycle.training.health import alarms, effective_rank, examine, mean_cosine, position_r2
from timecycle.training.journal import Journal
from timecycle.training.schedule import rate_at
from timecycle.training.validation import cycle_accuracy, moving_cells, warp_accuracy
from wandering import FRAME, frames, world

GRID = grid_over(128, 128, cells=(16, 16), stride_px=8, first_px=0)
PLACES = cell_places(GRID)


def random_cells(images=8, channels=64, seed=0):
    made = torch.randn(images, 256, channels, generator=torch.Generator().manual_seed(seed))
    return F.normalize(made, dim=-1)


def names(figures):
    return {alarm.name for alarm in alarms(figures)}


def test_healthy_features_raise_no_alarm():
    figures = examine(random_cells(), PLACES)
    assert figures["effective_rank"] > 50
    assert abs(figures["mean_cosine"]) < 0.05
    assert figures["position_r2"] < 0.1
    assert not alarms(figures)


def test_equal_features_are_a_collapse():
    figures = examine(torch.ones(4, 256, 64) / 8, PLACES)
    assert figures["effective_rank"] == pytest.approx(1)
    assert figures["mean_cosine"] == pytest.approx(1)
    assert {"effective_rank", "mean_cosine"} <= names(figures)


def test_few_directions_are_counted():
    few = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0)) @ torch.eye(3, 64)
    assert effective_rank(few.double()) == pytest.approx(3, abs=0.05)


def test_features_that_hold_their_place_leak_it():
    leaky = torch.cat([random_cells() * 0.3, PLACES.expand(8, -1, -1)], dim=-1)
    figures = examine(F.normalize(leaky, dim=-1), PLACES)
    assert figures["position_r2"] > 0.7
    assert "position_r2" in names(figures)
    assert position_r2(random_cells()[:1].double(), PLACES.double()) == 0  # one image cannot tell


def test_the_mean_cosine_is_that_of_all_pairs():
    flat = random_cells(1, 8)[0, :20].double()
    pairs = flat @ flat.T
    assert mean_cosine(flat) == pytest.approx(float((pairs.sum() - pairs.trace()) / (20 * 19)))


def test_alarms_of_objectives_say_what_to_do():
    found = alarms({"entropy": 0.99, "spread": 0.05, "static_share": 0.95, "other": 7.0})
    assert {alarm.name for alarm in found} == {"entropy", "spread", "static_share"}
    assert "spread is 0.05: every patch is found at one fixed place; use" in str(found[1])


def test_perfect_features_follow_what_moves_and_static_ones_stay():
    seen = frames(world(), [(0, 0), (2, 1), (3, 3)])
    inner = torch.zeros(15, 15, dtype=torch.bool)
    inner[4:11, 4:11] = True
    moving = inner.flatten().expand(3, -1)
    good = cycle_accuracy(seen, moving, FRAME)
    assert (good.home, good.stayed) == (1, 0)
    static = cycle_accuracy(seen[:, :1].expand(-1, 3, -1, -1, -1), moving, FRAME)
    assert (static.home, static.stayed) == (1, 1)


def test_known_warps_are_found_by_perfect_features_only():
    whole = world()
    first, second = frames(whole, [(0, 0), (3, -2)]).unbind(dim=1)
    maps = torch.tensor([[1.0, 0, -3 * 16 / 120], [0, 1, 2 * 16 / 120]]).expand(3, 2, 3)
    assert warp_accuracy(first, second, maps, FRAME) == 1
    assert warp_accuracy(first, world(seed=4)[:, :, :15, :15], maps, FRAME) < 0.15


def test_moving_cells_are_those_that_change_all_the_time():
    clips = torch.zeros(1, 3, 128, 128, 3, dtype=torch.uint8)
    clips[:, 1, :64, :64] = 200
    moving = moving_cells(clips, GRID).reshape(16, 16)
    assert moving[:7, :7].all()
    assert not moving[9:, 9:].any()


def test_the_rate_warms_up_and_falls_to_nothing():
    def rate(step, shape="cosine"):
        return rate_at(step, peak=1.0, warm_up=10, total=110, shape=shape)

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
        ({"home_1": 0.94}, "home_1"),
        ({"spread": 0.05}, "spread"),
        ({"static_share": 0.95}, "static_share"),
        ({"entropy": 0.99}, "entropy"),
    ],
)
def test_each_known_way_out_of_learning_raises_its_alarm(figures, alarm):
    assert names(figures) == {alarm}


def test_alarms_go_by_the_last_steps_and_a_resumed_run_remembers_them(tmp_path):
    with closing(Journal(tmp_path)) as journal:
        for step in range(1, 61):
            journal.write(step, {"spread": 1.0 if step <= 40 else 0.0})
        assert journal.lately({"spread": 0.0}) == {"spread": pytest.approx(29 / 50, abs=0.02)}
        told = journal.lately({"spread": 0.0})
    with closing(Journal(tmp_path, resume_at=60)) as resumed:
        assert resumed.lately({"spread": 0.0}) == told
