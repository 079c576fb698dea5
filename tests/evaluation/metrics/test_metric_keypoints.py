"""Laws of PCK, and its numbers against plain loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.metrics.keypoints import box_reach, pck, pool_clips, silhouette_reach

some = settings(deadline=None, max_examples=30)


def clip(seed, frames=7, joints=5):
    random = np.random.default_rng(seed)
    truth = random.normal(100, 30, (frames, joints, 2))
    predicted = truth + random.normal(0, 12, truth.shape)
    predicted[0] = truth[0]
    return predicted, truth, random.random((frames, joints)) < 0.7


def slow_pck(predicted, truth, counted, alpha, first):
    """Joint by joint and frame by frame, with the size of the body worked out on the way."""
    shares = []
    for k in range(truth.shape[1]):
        right = total = 0
        for t in range(first, len(truth)):
            if not counted[t, k]:
                continue
            xs = [truth[t, i, 0] for i in range(truth.shape[1]) if counted[t, i]]
            ys = [truth[t, i, 1] for i in range(truth.shape[1]) if counted[t, i]]
            body = 0.6 * math.sqrt((max(xs) - min(xs)) ** 2 + (max(ys) - min(ys)) ** 2)
            far = math.sqrt((predicted[t, k, 0] - truth[t, k, 0]) ** 2 + (predicted[t, k, 1] - truth[t, k, 1]) ** 2)
            right, total = right + (far <= alpha * body), total + 1
        shares.append(right / total if total else math.nan)
    known = [share for share in shares if not math.isnan(share)]
    return shares, sum(known) / len(known)


@some
@given(st.integers(0, 1000), st.sampled_from([0.05, 0.1, 0.2, 0.5]), st.sampled_from(["out", "in"]))
def test_it_equals_plain_loops(seed, alpha, first_frame):
    predicted, truth, counted = clip(seed)
    counted[1:, 0] = False  # counted on the first frame at most
    counted[1:, 1] = True
    reach = box_reach(truth, counted, alpha)
    found = pck(predicted, truth, counted=counted, reach_px=reach, first_frame=first_frame)
    shares, mean = slow_pck(predicted, truth, counted, alpha, first=int(first_frame == "out"))
    np.testing.assert_allclose(found.per_joint, shares)
    assert found.mean == pytest.approx(mean)


def test_the_truth_is_right_and_the_moon_is_not():
    _, truth, counted = clip(0)
    reach = box_reach(truth, counted, 0.1)
    assert pck(truth, truth, counted=counted, reach_px=reach, first_frame="out").mean == 1
    assert pck(truth + 1e6, truth, counted=counted, reach_px=reach, first_frame="out").mean == 0


def test_at_exactly_the_reach_it_is_right():
    truth, counted = np.zeros((1, 1, 2)), np.ones((1, 1), bool)
    predicted = np.array([[[3.0, 4.0]]])
    for reach, mean in ((5.0, 1), (np.nextafter(5.0, 0), 0)):
        assert pck(predicted, truth, counted=counted, reach_px=np.array([reach]), first_frame="in").mean == mean


@some
@given(st.integers(0, 1000))
def test_a_greater_alpha_never_lowers_it(seed):
    predicted, truth, counted = clip(seed)
    means = [
        pck(predicted, truth, counted=counted, reach_px=box_reach(truth, counted, alpha), first_frame="in").mean
        for alpha in (0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
    ]
    assert means == sorted(means)


@some
@given(st.integers(0, 1000), st.permutations(range(5)))
def test_joints_may_come_in_any_order(seed, order):
    predicted, truth, counted = clip(seed)
    reach = box_reach(truth, counted, 0.1)
    found = pck(predicted, truth, counted=counted, reach_px=reach, first_frame="out")
    mixed = pck(predicted[:, order], truth[:, order], counted=counted[:, order], reach_px=reach, first_frame="out")
    np.testing.assert_array_equal(found.per_joint[order], mixed.per_joint)


def test_with_the_first_frame_the_number_is_higher():
    predicted, truth, _ = clip(3)
    counted = np.ones(truth.shape[:2], bool)
    reach = box_reach(truth, counted, 0.05)
    out, within = (pck(predicted, truth, counted=counted, reach_px=reach, first_frame=f) for f in ("out", "in"))
    assert within.mean > out.mean
    assert within.counted.tolist() == [7] * 5
    assert out.counted.tolist() == [6] * 5


def test_what_is_not_counted_does_not_matter():
    predicted, truth, counted = clip(4)
    wild = np.where(counted[..., None], predicted, np.nan)
    hidden = np.where(counted[..., None], truth, np.nan)
    reach = box_reach(truth, counted, 0.1)
    np.testing.assert_array_equal(box_reach(hidden, counted, 0.1), reach)
    a = pck(predicted, truth, counted=counted, reach_px=reach, first_frame="out")
    b = pck(wild, hidden, counted=counted, reach_px=reach, first_frame="out")
    np.testing.assert_array_equal(a.per_joint, b.per_joint)


def test_a_joint_never_counted_has_no_share():
    truth, counted = np.zeros((3, 2, 2)), np.array([[True, True], [False, True], [False, True]])
    found = pck(truth, truth, counted=counted, reach_px=np.ones(3), first_frame="out")
    np.testing.assert_array_equal(found.per_joint, [np.nan, 1])
    assert found.mean == 1
    assert math.isnan(pck(truth[:1], truth[:1], counted=counted[:1], reach_px=np.ones(1), first_frame="out").mean)


def test_a_lost_joint_is_wrong():
    truth, counted = np.zeros((2, 1, 2)), np.ones((2, 1), bool)
    assert pck(truth * np.nan, truth, counted=counted, reach_px=np.ones(2), first_frame="out").mean == 0


def test_clips_are_pooled_by_their_counts():
    parts = []
    for seed, frames in ((1, 4), (2, 9)):
        predicted, truth, counted = clip(seed, frames)
        reach = box_reach(truth, counted, 0.1)
        parts.append(pck(predicted, truth, counted=counted, reach_px=reach, first_frame="in"))
    a, b = parts
    np.testing.assert_allclose(pool_clips(parts).per_joint, (a.right + b.right) / (a.counted + b.counted))


def test_reaches():
    truth = np.array([[[0.0, 0.0], [30.0, 40.0], [500.0, 500.0]]])
    assert box_reach(truth, np.array([[True, True, False]]), 0.1).tolist() == pytest.approx([0.1 * 0.6 * 50])
    assert np.isnan(box_reach(truth, np.zeros((1, 3), bool), 0.1)).all()
    assert silhouette_reach(np.array([0.0, 100.0, 2500.0]), 0.2).tolist() == pytest.approx([0, 2, 10])


def test_refusals():
    truth, counted = np.zeros((2, 1, 2)), np.ones((2, 1), bool)
    with pytest.raises(LabelError, match="a joint is counted whose true place or reach is not known"):
        pck(truth, truth * np.nan, counted=counted, reach_px=np.ones(2), first_frame="out")
    with pytest.raises(LabelError, match="a joint is counted whose true place or reach is not known"):
        pck(truth, truth, counted=counted, reach_px=np.array([1.0, np.nan]), first_frame="out")
    with pytest.raises(LabelError, match="an area is -1 px; count the pixels of the silhouette"):
        silhouette_reach(np.array([4.0, -1.0]), 0.2)
    with pytest.raises(LabelError, match="there is no clip to pool"):
        pool_clips([])


def test_an_unknown_convention_is_refused():
    truth, counted = np.zeros((2, 1, 2)), np.ones((2, 1), bool)
    unchecked = getattr(pck, "__wrapped__", pck)  # the tests' own check of types would speak first
    with pytest.raises(SettingsError, match="first_frame is 'maybe'; give 'out' or 'in'"):
        unchecked(truth, truth, counted=counted, reach_px=np.ones(2), first_frame="maybe")
