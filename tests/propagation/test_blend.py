"""Where two passes meet: laws of the weights, then what they are for, in the synthetic world."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import OracleEncoder, iou
from timecycle.labels import Masks
from timecycle.propagation.blend import Pass, blend, clearness
from timecycle.propagation.propagate import propagate
from timecycle.propagation.settings import PropagateConfig
from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import open_video

CHANNELS = 3  # background and two objects


def soft_map(seed, *, sharp=4.0):
    values = torch.from_numpy(np.random.default_rng(seed).normal(size=(5, 6, CHANNELS))).float()
    return torch.softmax(sharp * values, dim=-1)


def one_pass(soft, distance, *, knows=(True, True, True), absent=(False, False, False)):
    return Pass(soft, torch.tensor(knows), torch.full((CHANNELS,), float(distance)), torch.tensor(absent))


def faint(soft):
    """The same labels, so weak that background is everywhere more likely."""
    weak = 0.4 * soft[..., 1:]
    return torch.cat([1 - weak.sum(dim=-1, keepdim=True), weak], dim=-1)


KNOWN = st.tuples(st.just(True), st.booleans(), st.booleans())


@settings(max_examples=40, deadline=None)
@given(
    seeds=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    distances=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    knows=st.tuples(KNOWN, KNOWN),
    exclusive=st.booleans(),
)
def test_time_has_no_direction(seeds, distances, knows, exclusive):
    sides = [
        one_pass(soft_map(seed), distance, knows=known)
        for seed, distance, known in zip(seeds, distances, knows, strict=True)
    ]
    there, back = blend(*sides, exclusive=exclusive), blend(*reversed(sides), exclusive=exclusive)
    torch.testing.assert_close(there.soft, back.soft)
    decided = sides[0].knows | sides[1].knows
    torch.testing.assert_close(there.share[decided], 1 - back.share[decided])


@pytest.mark.parametrize("exclusive", [True, False])
def test_passes_that_agree_are_not_changed(exclusive):
    soft = soft_map(1)
    found = blend(one_pass(soft, 3), one_pass(soft, 9), exclusive=exclusive)
    torch.testing.assert_close(found.soft, soft)
    assert (found.share > 0.5).all(), "the nearer drawing weighs more"


def test_a_pass_that_lost_an_object_leaves_it_to_the_other_however_near_its_drawing_is():
    soft = soft_map(2)
    lost = faint(soft)
    assert (lost.argmax(dim=-1) == 0).all()
    found = blend(one_pass(soft, 30), one_pass(lost, 1), exclusive=True)
    torch.testing.assert_close(found.soft, soft)
    assert (found.share[1:] == 1).all()


def test_what_both_lost_is_shared_by_distance():
    lost = faint(soft_map(3))
    found = blend(one_pass(lost, 2), one_pass(lost, 6), exclusive=True)
    torch.testing.assert_close(found.share[1:], torch.full((2,), 0.75))
    torch.testing.assert_close(found.soft, lost)


def test_a_drawing_without_the_object_is_no_loss():
    """The other pass still sees it; next to a drawing that shows it is gone, gone it is."""
    soft = soft_map(4)
    gone = torch.zeros_like(soft)
    gone[..., 0] = 1
    lost, absent = (
        blend(one_pass(soft, 9), one_pass(gone, 1, absent=(False, missing, missing)), exclusive=True)
        for missing in (False, True)
    )
    assert (lost.share[1:] == 1).all()
    assert (absent.share[1:] < 0.15).all()


def test_what_one_pass_knows_nothing_of_is_the_others():
    forward = one_pass(soft_map(5), 1, knows=(True, False, True))
    backward = one_pass(soft_map(6), 9, knows=(True, True, False))
    assert blend(forward, backward, exclusive=False).share.tolist() == pytest.approx([0.9, 0, 1])


def test_what_one_pass_sees_clearly_is_not_taken_by_an_object_it_never_heard_of():
    """A later drawing shows another object only, and carried far back that one lies on everything."""
    seen, taken = (torch.tensor(of).expand(5, 6, CHANNELS) for of in ([0.1, 0.9, 0.0], [0.0, 0.0, 1.0]))
    forward = one_pass(seen, 2, knows=(True, True, False))
    backward = one_pass(taken, 20, knows=(True, False, True))
    found = blend(forward, backward, exclusive=True).soft
    assert (found[..., 1] > 2 * found[..., 2]).all()


def test_clearness_is_the_part_of_an_object_that_is_its_own():
    soft = torch.tensor([[[0.1, 0.9], [0.7, 0.3], [1.0, 0.0]]])
    assert clearness(soft).tolist() == pytest.approx([1.7 / 1.8, 0.9 / 1.2])


def test_a_drawing_that_hardly_shows_an_object_does_not_spoil_the_frames_before_it():
    """The first object slides behind another one; its last sliver is drawn, from which nothing can be carried."""
    world = make_world(WorldConfig(height_px=97, width_px=129, frames=40, objects=3))
    area = np.array([(world.mask(t) == 1).sum() for t in range(40)])
    hidden = int(np.argmax(area < 0.1 * area[0]))
    assert 5 < hidden < 40
    assert area[hidden] > 0
    clip, encoder = open_video(world.video()[: hidden + 1]), OracleEncoder(world, stride_px=4)
    config = PropagateConfig(temperature=0.05, window_px=32, anchor_window_px=None)
    first, sliver = Masks(world.mask(0)), Masks(world.mask(hidden), complete=True)
    overlap = {}
    for direction in ("forward", "both"):
        there = dataclasses.replace(config, direction=direction)
        frames = propagate(clip, {0: first, hidden: sliver}, encoder=encoder, config=there)
        overlap[direction] = [iou(frame.labels.ids == 1, world.mask(frame.index) == 1) for frame in frames]
    assert np.mean(overlap["both"]) > np.mean(overlap["forward"]) - 0.02
