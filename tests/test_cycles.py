"""Tracking cycles: at their minimum where tracking is perfect, costly where it is not, and no reward for collapse."""

import math

import pytest
import torch

from timecycle.config import preset_names, train_config
from timecycle.cycles import CyclesConfig, cycle_losses, inlier_score
from timecycle.model.localizer import LocalizerConfig
from timecycle.model.tracker import Tracker
from timecycle.pose import alignment_error
from wandering import FRAME, PATCH, frames, patch, theta, world

MOVES = [(-3, 2), (-1, 1), (1, 0), (2, -2), (0, 0)]  # of the frames, oldest first


def tracker(**changes) -> Tracker:
    return Tracker(LocalizerConfig(**changes), frame_grid=FRAME, patch_grid=PATCH, temperature=0.02)


def outcome(seen, query, pose, *, track=None, **weights):
    return cycle_losses(seen, query, pose, tracker=track or tracker(), config=CyclesConfig(**weights))


@pytest.mark.parametrize("moves", [MOVES, [(0, 0)] * 5], ids=["moving", "still"])
@pytest.mark.parametrize("past", [1, 2, 4])
def test_perfect_features_are_followed_home_at_no_cost(moves, past):
    seen = frames(world(), moves[-past - 1 :])
    found = outcome(seen, patch(seen[:, -1], 4, 6), theta(4, 6, 3))
    assert found.losses["long"] < 1e-6
    assert found.losses["skip"] < 1e-6
    assert found.losses["inlier"] < -0.99
    assert found.losses["similarity"] < -0.99
    assert found.losses["still"] < 0.01
    assert found.diagnostics["return_error_px"] < 0.1
    assert found.diagnostics["pose_gain"] > 0.99
    assert found.diagnostics["outside"] == 0


def test_gradients_are_finite_and_reach_every_frame():
    seen = frames(world(), MOVES).requires_grad_()
    query = patch(seen[:, -1], 4, 6).detach().requires_grad_()
    outcome(seen, query, theta(4, 6, 3), similarity=1.0).total.backward()
    assert torch.isfinite(seen.grad).all()
    assert torch.isfinite(query.grad).all()


def test_gradients_are_finite_with_equal_features():
    seen = torch.ones(2, 5, 8, 15, 15, requires_grad=True)
    query = torch.ones(2, 8, 5, 5, requires_grad=True)
    outcome(seen / 8**0.5, query / 8**0.5, theta(4, 6, 2)).total.backward()
    assert torch.isfinite(seen.grad).all()
    assert torch.isfinite(query.grad).all()


def test_equal_features_are_the_best_of_the_printed_similarity_and_the_worst_of_the_inlier_score():
    """Why the similarity of the paper is off by default: everything alike is its optimum."""
    flat = torch.ones(3, 5, 8, 15, 15) / 8**0.5
    collapsed = outcome(flat, flat[:, 0, :, :5, :5], theta(4, 6, 3))
    assert collapsed.losses["similarity"] == pytest.approx(-1, abs=1e-5)
    assert -collapsed.losses["inlier"] == pytest.approx(1 / 225, rel=1e-3)
    assert collapsed.diagnostics["entropy"] == pytest.approx(1, abs=1e-4)
    # No rotation and the middle of the frame, wherever the patch was.
    assert collapsed.diagnostics["pose_gain"] == pytest.approx(0, abs=0.05)


def test_the_paper_adds_losses_over_lengths_and_the_similarity_over_the_cells_of_a_patch():
    """Section 3.1 as printed: L = sum over i of L_sim + 0.1 L_skip + 0.1 L_long, L_sim a Frobenius inner product."""
    seen = frames(world(channels=6), MOVES)
    query, pose, track = patch(seen[:, -1], 4, 6), theta(4, 6, 3), tracker()
    weights = {"similarity": 1.0, "skip": 0.1, "long": 0.1, "inlier": 0.0}
    found = outcome(seen, query, pose, track=track, reduction="sum", **weights)
    printed = torch.zeros(3)
    for length in range(1, 5):
        moved = query[:, None]
        for step in range(1, length + 1):
            moved = track(seen[:, 4 - step], moved).patches
        for step in range(length - 1, -1, -1):
            end = track(seen[:, 4 - step], moved)
            moved = end.patches
        direct = track(seen[:, 4 - length], query[:, None]).patches
        back = track(seen[:, 4], direct)
        printed += -(query * direct[:, 0]).sum(dim=(1, 2, 3))
        printed += 0.1 * alignment_error(back.theta[:, 0], pose, scale=1 / 3)
        printed += 0.1 * alignment_error(end.theta[:, 0], pose, scale=1 / 3)
    assert found.total == pytest.approx(printed.mean().item(), rel=1e-4)


def test_preset_paper_has_the_printed_proportions_and_the_others_average():
    """25 cells here, 100 in the paper: identical patches score as many times one as there are cells."""
    seen = frames(world(), MOVES)
    weights = {name: train_config("paper").cycles.weights[name] for name in ("similarity", "skip", "long", "inlier")}
    assert weights == {"similarity": 1.0, "skip": 0.1, "long": 0.1, "inlier": 0.0}
    reductions = {name: train_config(name).cycles.reduction for name in preset_names("train")}
    assert reductions.pop("paper") == "sum"
    assert set(reductions.values()) == {"mean"}
    added, mean = (
        outcome(seen, patch(seen[:, -1], 4, 6), theta(4, 6, 3), reduction=reduction).losses
        for reduction in ("sum", "mean")
    )
    assert added["similarity"] == pytest.approx(-4 * 25, rel=0.01)
    assert mean["similarity"] == pytest.approx(-1, rel=0.01)
    assert added["inlier"] == pytest.approx(4 * mean["inlier"].item(), rel=1e-5)
    assert added["still"] == mean["still"]


def test_a_lost_patch_costs_and_the_figures_say_so():
    seen = frames(world(), MOVES)
    strange = world(seed=9)[:, :, :5, :5]
    found = outcome(seen, strange, theta(4, 6, 3))
    assert found.losses["long"] > 0.01
    assert found.losses["inlier"] > -0.9


def test_patches_found_at_one_fixed_place_have_no_spread():
    """The shortcut in which every patch matches the same place."""
    seen = frames(world(batch=1), MOVES).expand(4, -1, -1, -1, -1)
    places = [(1, 2), (8, 3), (4, 9), (9, 9)]
    poses = torch.cat([theta(left, top, 1) for left, top in places])
    honest = torch.cat([patch(seen[:1, -1], left, top) for left, top in places])
    fixed = patch(seen[:, -1], 5, 5)
    assert outcome(seen, honest, poses).diagnostics["spread"] > 0.8
    assert outcome(seen, fixed, poses).diagnostics["spread"] < 0.05


def test_cycles_of_all_lengths_are_what_tracking_them_one_by_one_gives():
    """The shared way back and patches tracked together change nothing."""
    seen = frames(world(channels=6), MOVES)  # few channels: matches are ambiguous and tracks differ
    query, pose, track = patch(seen[:, -1], 4, 6), theta(4, 6, 3), tracker()
    found = outcome(seen, query, pose, track=track)
    long, skip, inlier = [], [], []
    for length in range(1, 5):
        current = query[:, None]
        for step in range(1, length + 1):
            current = track(seen[:, 4 - step], current).patches
        for step in range(length - 1, -1, -1):
            last = track(seen[:, 4 - step], current)
            current = last.patches
        long.append(alignment_error(last.theta[:, 0], pose, scale=1 / 3))
        direct = track(seen[:, 4 - length], query[:, None])
        inlier.append(inlier_score(direct.found, direct.cells, tracker=track))
        skip.append(alignment_error(track(seen[:, 4], direct.patches).theta[:, 0], pose, scale=1 / 3))
    assert found.losses["long"] == pytest.approx(torch.stack(long).mean().item(), rel=1e-3)
    assert found.losses["skip"] == pytest.approx(torch.stack(skip).mean().item(), rel=1e-3)
    assert -found.losses["inlier"] == pytest.approx(torch.cat(inlier).mean().item(), rel=1e-3)


def test_the_total_is_the_weighted_sum_and_a_weight_of_nothing_leaves_a_loss_out():
    seen = frames(world(channels=6), MOVES)
    found = outcome(seen, patch(seen[:, -1], 4, 6), theta(4, 6, 3), long=0.5, skip=0.25, inlier=2.0)
    expected = 0.5 * found.losses["long"] + 0.25 * found.losses["skip"] + 2 * found.losses["inlier"]
    assert found.total == pytest.approx(expected.item(), rel=1e-5)
    assert set(found.losses) == {"long", "skip", "inlier", "similarity", "still"}


def test_a_patch_is_still_where_its_own_frame_says_and_nowhere_else():
    """Unlike the inlier score, which goes by where the patch was found, this goes by where it was cut."""
    seen = frames(world(), MOVES)
    query = patch(seen[:, -1], 4, 6)
    assert outcome(seen, query, theta(5, 6, 3)).losses["still"] > 5
    flat = torch.ones(3, 5, 8, 15, 15) / 8**0.5
    lost = outcome(flat, flat[:, 0, :, :5, :5], theta(4, 6, 3)).losses["still"]
    assert lost == pytest.approx(math.log(225), rel=1e-3)
