"""Blending of the two passes: laws of the weights, then their purpose on the synthetic world."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import OracleEncoder, iou
from timecycle.grid import grid_over
from timecycle.labels import Masks
from timecycle.labels.label_map import LabelMap
from timecycle.propagation.blend import Pass, blend, clearness
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import propagate
from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import open_video

CHANNELS = 3  # background and two objects
GRID = grid_over(40, 48, cells=(5, 6), stride_px=8, first_px=0)


def label_values(seed, *, sharp=4.0):
    values = torch.from_numpy(np.random.default_rng(seed).normal(size=(5, 6, CHANNELS))).float()
    return torch.softmax(sharp * values, dim=-1)


def one_pass(values, distance, *, known=(True, True, True), absent=(False, False, False)):
    labels = LabelMap(values, torch.tensor(known), GRID)
    return Pass(labels, torch.full((CHANNELS,), float(distance)), torch.tensor(absent))


def faint(values):
    """The same labels, so weak that background is more likely everywhere."""
    weak = 0.4 * values[..., 1:]
    return torch.cat([1 - weak.sum(dim=-1, keepdim=True), weak], dim=-1)


KNOWN = st.tuples(st.just(True), st.booleans(), st.booleans())


@settings(max_examples=40, deadline=None)
@given(
    seeds=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    distances=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    known=st.tuples(KNOWN, KNOWN),
    exclusive=st.booleans(),
)
def test_swapping_the_passes_gives_the_same_blend(seeds, distances, known, exclusive):
    sides = [
        one_pass(label_values(seed), distance, known=channels)
        for seed, distance, channels in zip(seeds, distances, known, strict=True)
    ]
    (labels, share), (swapped, swapped_share) = (blend(*passes, exclusive=exclusive) for passes in (sides, sides[::-1]))
    torch.testing.assert_close(labels.values, swapped.values)
    torch.testing.assert_close(share[labels.known], 1 - swapped_share[labels.known])


@pytest.mark.parametrize("exclusive", [True, False])
def test_blending_equal_passes_changes_nothing(exclusive):
    values = label_values(1)
    labels, share = blend(one_pass(values, 3), one_pass(values, 9), exclusive=exclusive)
    torch.testing.assert_close(labels.values, values)
    assert (share > 0.5).all(), "the nearer annotation weighs more"


def test_a_pass_that_lost_an_object_has_no_weight_however_near_its_annotation_is():
    values = label_values(2)
    lost = faint(values)
    assert (lost.argmax(dim=-1) == 0).all()
    labels, share = blend(one_pass(values, 30), one_pass(lost, 1), exclusive=True)
    torch.testing.assert_close(labels.values, values)
    assert (share[1:] == 1).all()


def test_an_object_lost_by_both_passes_is_weighted_by_distance():
    lost = faint(label_values(3))
    labels, share = blend(one_pass(lost, 2), one_pass(lost, 6), exclusive=True)
    torch.testing.assert_close(share[1:], torch.full((2,), 0.75))
    torch.testing.assert_close(labels.values, lost)


def test_an_annotated_absence_counts_as_clear():
    """The other pass still labels the object; next to an annotated frame on which it is absent, absence wins."""
    values = label_values(4)
    gone = torch.zeros_like(values)
    gone[..., 0] = 1
    share_lost, share_absent = (
        blend(one_pass(values, 9), one_pass(gone, 1, absent=(False, missing, missing)), exclusive=True)[1]
        for missing in (False, True)
    )
    assert (share_lost[1:] == 1).all()
    assert (share_absent[1:] < 0.15).all()


def test_a_channel_unknown_to_one_pass_is_taken_from_the_other():
    forward = one_pass(label_values(5), 1, known=(True, False, True))
    backward = one_pass(label_values(6), 9, known=(True, True, False))
    assert blend(forward, backward, exclusive=False)[1].tolist() == pytest.approx([0.9, 0, 1])


def test_an_object_unknown_to_a_pass_does_not_displace_what_that_pass_labels_clearly():
    """A later frame annotates another object only, which covers everything once it is propagated far back."""
    seen, taken = (torch.tensor(of).expand(5, 6, CHANNELS) for of in ([0.1, 0.9, 0.0], [0.0, 0.0, 1.0]))
    forward = one_pass(seen, 2, known=(True, True, False))
    backward = one_pass(taken, 20, known=(True, False, True))
    values = blend(forward, backward, exclusive=True)[0].values
    assert (values[..., 1] > 2 * values[..., 2]).all()


def test_clearness_is_the_share_of_an_object_in_cells_it_dominates():
    values = torch.tensor([[[0.1, 0.9], [0.7, 0.3], [1.0, 0.0]]])
    assert clearness(values).tolist() == pytest.approx([1.7 / 1.8, 0.9 / 1.2])


def test_annotating_a_sliver_of_an_object_does_not_harm_earlier_frames():
    """The first object moves behind another one; its last sliver is annotated, which is too little to propagate."""
    world = make_world(WorldConfig(height_px=97, width_px=129, frames=40, objects=3))
    area = np.array([(world.mask(t) == 1).sum() for t in range(40)])
    hidden = int(np.argmax(area < 0.1 * area[0]))
    assert 5 < hidden < 40
    assert area[hidden] > 0
    clip, encoder = open_video(world.video()[: hidden + 1]), OracleEncoder(world, stride_px=4)
    config = PropagateConfig(temperature=0.05, window_px=32, anchor_window_px=None)
    first, sliver = Masks(world.mask(0)), Masks(world.mask(hidden), exhaustive=True)
    overlap = {}
    for direction in ("forward", "both"):
        there = dataclasses.replace(config, direction=direction)
        frames = propagate(clip, {0: first, hidden: sliver}, encoder=encoder, config=there)
        overlap[direction] = [iou(frame.labels.ids == 1, world.mask(frame.index) == 1) for frame in frames]
    assert np.mean(overlap["both"]) > np.mean(overlap["forward"]) - 0.04
