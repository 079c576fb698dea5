"""Cycle-consistency losses: minimal where tracking is perfect, high where it fails, and no reward for collapse."""

import math

import pytest
import torch

from timecycle.config import preset_names, train_config
from timecycle.model.localizer import LocalizerConfig
from timecycle.model.tracker import Tracker
from timecycle.objectives.cycles import CyclesConfig, cycle_losses, inlier_score, track_cycles
from timecycle.pose import alignment_error
from wandering import FRAME, PATCH, frames, patch, theta, world

SHIFTS = [(-3, 2), (-1, 1), (1, 0), (2, -2), (0, 0)]  # of the frames, oldest first


def make_tracker(**changes) -> Tracker:
    return Tracker(LocalizerConfig(**changes), frame_grid=FRAME, patch_grid=PATCH, temperature=0.02)


def evaluate(clip, query, pose, *, tracker=None, **settings):
    return cycle_losses(clip, query, pose, tracker=tracker or make_tracker(), config=CyclesConfig(**settings))


def tracked_one_by_one(clip, query, tracker) -> dict:
    """Track the cycles of section 3.1 literally, each patch alone: {kind: {length: Tracked}}."""
    k = clip.shape[1] - 1
    tracks = {"long": {}, "skip": {}, "direct": {}, "same_frame": {0: tracker(clip[:, k], query[:, None])}}
    for i in range(1, k + 1):
        current = query[:, None]
        for step in range(1, i + 1):
            current = tracker(clip[:, k - step], current).patches
        for step in range(i - 1, -1, -1):
            tracks["long"][i] = tracker(clip[:, k - step], current)
            current = tracks["long"][i].patches
        tracks["direct"][i] = tracker(clip[:, k - i], query[:, None])
        tracks["skip"][i] = tracker(clip[:, k], tracks["direct"][i].patches)
    return tracks


@pytest.mark.parametrize("shifts", [SHIFTS, [(0, 0)] * 5], ids=["moving", "static"])
@pytest.mark.parametrize("past", [1, 2, 4])
def test_perfect_features_close_every_cycle(shifts, past):
    clip = frames(world(), shifts[-past - 1 :])
    result = evaluate(clip, patch(clip[:, -1], 4, 6), theta(4, 6, 3))
    assert result.losses["long"] < 1e-6
    assert result.losses["skip"] < 1e-6
    assert result.losses["inlier"] < -0.99
    assert result.losses["similarity"] < -0.99
    assert result.losses["same_frame"] < 0.01
    assert result.diagnostics["return_error_px"] < 0.1
    assert result.diagnostics["pose_gain"] > 0.99
    assert result.diagnostics["outside"] == 0


def test_gradients_are_finite_and_reach_every_frame():
    clip = frames(world(), SHIFTS).requires_grad_()
    query = patch(clip[:, -1], 4, 6).detach().requires_grad_()
    evaluate(clip, query, theta(4, 6, 3), similarity=1.0).total.backward()
    assert torch.isfinite(clip.grad).all()
    assert torch.isfinite(query.grad).all()


def test_gradients_are_finite_with_equal_features():
    clip = torch.ones(2, 5, 8, 15, 15, requires_grad=True)
    query = torch.ones(2, 8, 5, 5, requires_grad=True)
    evaluate(clip / 8**0.5, query / 8**0.5, theta(4, 6, 2)).total.backward()
    assert torch.isfinite(clip.grad).all()
    assert torch.isfinite(query.grad).all()


def test_equal_features_minimise_the_printed_similarity_and_score_lowest_as_inliers():
    """The paper's similarity is off by default because collapsed features are its optimum."""
    flat = torch.ones(3, 5, 8, 15, 15) / 8**0.5
    collapsed = evaluate(flat, flat[:, 0, :, :5, :5], theta(4, 6, 3))
    assert collapsed.losses["similarity"] == pytest.approx(-1, abs=1e-5)
    assert -collapsed.losses["inlier"] == pytest.approx(1 / 225, rel=1e-3)
    assert collapsed.diagnostics["entropy"] == pytest.approx(1, abs=1e-4)
    # The estimated pose is the frame's centre, unrotated, for any patch.
    assert collapsed.diagnostics["pose_gain"] == pytest.approx(0, abs=0.05)


def test_reduction_sum_gives_the_printed_objective():
    """Section 3.1 as printed: L = sum over i of L_sim + 0.1 L_skip + 0.1 L_long, L_sim a Frobenius inner product."""
    clip = frames(world(channels=6), SHIFTS)
    query, pose, tracker = patch(clip[:, -1], 4, 6), theta(4, 6, 3), make_tracker()
    weights = {"similarity": 1.0, "skip": 0.1, "long": 0.1, "inlier": 0.0}
    result = evaluate(clip, query, pose, tracker=tracker, reduction="sum", **weights)
    tracks = tracked_one_by_one(clip, query, tracker)
    printed = torch.zeros(3)
    for i in range(1, 5):
        printed += -(query * tracks["direct"][i].patches[:, 0]).sum(dim=(1, 2, 3))
        printed += 0.1 * alignment_error(tracks["skip"][i].theta[:, 0], pose, scale=1 / 3)
        printed += 0.1 * alignment_error(tracks["long"][i].theta[:, 0], pose, scale=1 / 3)
    assert result.total == pytest.approx(printed.mean().item(), rel=1e-4)


def test_preset_paper_has_the_printed_weights_and_the_other_presets_average():
    """Identical patches score 1 per cell: 25 cells here, 100 in the paper."""
    clip = frames(world(), SHIFTS)
    weights = {name: train_config("paper").cycles.weights[name] for name in ("similarity", "skip", "long", "inlier")}
    assert weights == {"similarity": 1.0, "skip": 0.1, "long": 0.1, "inlier": 0.0}
    reductions = {name: train_config(name).cycles.reduction for name in preset_names("train")}
    assert reductions.pop("paper") == "sum"
    assert set(reductions.values()) == {"mean"}
    summed, mean = (
        evaluate(clip, patch(clip[:, -1], 4, 6), theta(4, 6, 3), reduction=reduction).losses
        for reduction in ("sum", "mean")
    )
    assert summed["similarity"] == pytest.approx(-4 * 25, rel=0.01)
    assert mean["similarity"] == pytest.approx(-1, rel=0.01)
    assert summed["inlier"] == pytest.approx(4 * mean["inlier"].item(), rel=1e-5)
    assert summed["same_frame"] == mean["same_frame"]


def test_patch_that_is_not_in_the_clip_raises_the_losses():
    clip = frames(world(), SHIFTS)
    unrelated = world(seed=9)[:, :, :5, :5]
    result = evaluate(clip, unrelated, theta(4, 6, 3))
    assert result.losses["long"] > 0.01
    assert result.losses["inlier"] > -0.9


def test_patches_that_all_get_one_pose_have_no_spread():
    """Detects the shortcut in which every patch matches the same position."""
    clip = frames(world(batch=1), SHIFTS).expand(4, -1, -1, -1, -1)
    corners = [(1, 2), (8, 3), (4, 9), (9, 9)]
    poses = torch.cat([theta(left, top, 1) for left, top in corners])
    different = torch.cat([patch(clip[:1, -1], left, top) for left, top in corners])
    identical = patch(clip[:, -1], 5, 5)
    assert evaluate(clip, different, poses).diagnostics["spread"] > 0.8
    assert evaluate(clip, identical, poses).diagnostics["spread"] < 0.05


def test_shared_tracking_equals_tracking_each_cycle_alone():
    clip = frames(world(channels=6), SHIFTS)  # few channels: matches are ambiguous and tracks differ
    query, pose, tracker = patch(clip[:, -1], 4, 6), theta(4, 6, 3), make_tracker()
    shared, alone = track_cycles(clip, query[:, None], tracker), tracked_one_by_one(clip, query, tracker)
    assert {kind: list(tracks) for kind, tracks in shared.items()} == {
        "long": [1, 2, 3, 4],
        "skip": [1, 2, 3, 4],
        "direct": [1, 2, 3, 4],
        "same_frame": [0],
    }
    for kind, tracks in alone.items():
        for length, track in tracks.items():
            assert torch.allclose(shared[kind][length].theta, track.theta, atol=1e-4), (kind, length)
    result = evaluate(clip, query, pose, tracker=tracker)
    for kind in ("long", "skip"):
        errors = [alignment_error(track.theta[:, 0], pose, scale=1 / 3) for track in alone[kind].values()]
        assert result.losses[kind] == pytest.approx(torch.stack(errors).mean().item(), rel=1e-3)
    scores = [inlier_score(track.affinity, track.sampling_grid, tracker=tracker) for track in alone["direct"].values()]
    assert -result.losses["inlier"] == pytest.approx(torch.cat(scores).mean().item(), rel=1e-3)


def test_total_is_the_weighted_sum_and_zero_weight_leaves_a_loss_out():
    clip = frames(world(channels=6), SHIFTS)
    result = evaluate(clip, patch(clip[:, -1], 4, 6), theta(4, 6, 3), long=0.5, skip=0.25, inlier=2.0)
    expected = 0.5 * result.losses["long"] + 0.25 * result.losses["skip"] + 2 * result.losses["inlier"]
    assert result.total == pytest.approx(expected.item(), rel=1e-5)
    assert set(result.losses) == {"long", "skip", "inlier", "similarity", "same_frame"}


def test_same_frame_loss_compares_with_the_pose_the_patch_was_cut_at():
    """Unlike the inlier score, which uses the estimated pose."""
    clip = frames(world(), SHIFTS)
    query = patch(clip[:, -1], 4, 6)
    assert evaluate(clip, query, theta(5, 6, 3)).losses["same_frame"] > 5
    flat = torch.ones(3, 5, 8, 15, 15) / 8**0.5
    uniform = evaluate(flat, flat[:, 0, :, :5, :5], theta(4, 6, 3)).losses["same_frame"]
    assert uniform == pytest.approx(math.log(225), rel=1e-3)
