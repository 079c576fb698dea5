"""Laws of PCK, and PCK against plain loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.metrics.keypoints import box_threshold, pck, pool_clips, silhouette_threshold

some = settings(deadline=None, max_examples=30)


def clip(seed, frames=7, joints=5):
    random = np.random.default_rng(seed)
    ground_truth = random.normal(100, 30, (frames, joints, 2))
    predicted = ground_truth + random.normal(0, 12, ground_truth.shape)
    predicted[0] = ground_truth[0]
    return predicted, ground_truth, random.random((frames, joints)) < 0.7


def slow_pck(predicted, ground_truth, counted, alpha, first):
    """PCK joint by joint and frame by frame, with the body size computed for each."""
    shares = []
    for k in range(ground_truth.shape[1]):
        correct = total = 0
        for t in range(first, len(ground_truth)):
            if not counted[t, k]:
                continue
            xs = [ground_truth[t, i, 0] for i in range(ground_truth.shape[1]) if counted[t, i]]
            ys = [ground_truth[t, i, 1] for i in range(ground_truth.shape[1]) if counted[t, i]]
            body = 0.6 * math.sqrt((max(xs) - min(xs)) ** 2 + (max(ys) - min(ys)) ** 2)
            far = math.sqrt(
                (predicted[t, k, 0] - ground_truth[t, k, 0]) ** 2 + (predicted[t, k, 1] - ground_truth[t, k, 1]) ** 2
            )
            correct, total = correct + (far <= alpha * body), total + 1
        shares.append(correct / total if total else math.nan)
    known = [share for share in shares if not math.isnan(share)]
    return shares, sum(known) / len(known)


@some
@given(st.integers(0, 1000), st.sampled_from([0.05, 0.1, 0.2, 0.5]), st.sampled_from(["out", "in"]))
def test_pck_equals_plain_loops(seed, alpha, first_frame):
    predicted, ground_truth, counted = clip(seed)
    counted[1:, 0] = False  # counted on the first frame at most
    counted[1:, 1] = True
    threshold = box_threshold(ground_truth, counted, alpha)
    result = pck(predicted, ground_truth, counted=counted, threshold_px=threshold, first_frame=first_frame)
    shares, mean = slow_pck(predicted, ground_truth, counted, alpha, first=int(first_frame == "out"))
    np.testing.assert_allclose(result.per_joint, shares)
    assert result.mean == pytest.approx(mean)


def test_the_ground_truth_scores_one_and_distant_points_score_zero():
    _, ground_truth, counted = clip(0)
    threshold = box_threshold(ground_truth, counted, 0.1)
    assert pck(ground_truth, ground_truth, counted=counted, threshold_px=threshold, first_frame="out").mean == 1
    assert pck(ground_truth + 1e6, ground_truth, counted=counted, threshold_px=threshold, first_frame="out").mean == 0


def test_a_joint_at_exactly_the_threshold_is_correct():
    ground_truth, counted = np.zeros((1, 1, 2)), np.ones((1, 1), bool)
    predicted = np.array([[[3.0, 4.0]]])
    for threshold, mean in ((5.0, 1), (np.nextafter(5.0, 0), 0)):
        assert (
            pck(predicted, ground_truth, counted=counted, threshold_px=np.array([threshold]), first_frame="in").mean
            == mean
        )


@some
@given(st.integers(0, 1000))
def test_a_greater_alpha_never_lowers_pck(seed):
    predicted, ground_truth, counted = clip(seed)
    means = [
        pck(
            predicted,
            ground_truth,
            counted=counted,
            threshold_px=box_threshold(ground_truth, counted, alpha),
            first_frame="in",
        ).mean
        for alpha in (0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
    ]
    assert means == sorted(means)


@some
@given(st.integers(0, 1000), st.permutations(range(5)))
def test_the_order_of_joints_does_not_matter(seed, order):
    predicted, ground_truth, counted = clip(seed)
    threshold = box_threshold(ground_truth, counted, 0.1)
    result = pck(predicted, ground_truth, counted=counted, threshold_px=threshold, first_frame="out")
    mixed = pck(
        predicted[:, order],
        ground_truth[:, order],
        counted=counted[:, order],
        threshold_px=threshold,
        first_frame="out",
    )
    np.testing.assert_array_equal(result.per_joint[order], mixed.per_joint)


def test_counting_the_first_frame_raises_pck():
    predicted, ground_truth, _ = clip(3)
    counted = np.ones(ground_truth.shape[:2], bool)
    threshold = box_threshold(ground_truth, counted, 0.05)
    out, within = (
        pck(predicted, ground_truth, counted=counted, threshold_px=threshold, first_frame=f) for f in ("out", "in")
    )
    assert within.mean > out.mean
    assert within.counted.tolist() == [7] * 5
    assert out.counted.tolist() == [6] * 5


def test_joints_that_are_not_counted_do_not_matter():
    predicted, ground_truth, counted = clip(4)
    wild = np.where(counted[..., None], predicted, np.nan)
    hidden = np.where(counted[..., None], ground_truth, np.nan)
    threshold = box_threshold(ground_truth, counted, 0.1)
    np.testing.assert_array_equal(box_threshold(hidden, counted, 0.1), threshold)
    a = pck(predicted, ground_truth, counted=counted, threshold_px=threshold, first_frame="out")
    b = pck(wild, hidden, counted=counted, threshold_px=threshold, first_frame="out")
    np.testing.assert_array_equal(a.per_joint, b.per_joint)


def test_a_joint_that_is_never_counted_has_no_score():
    ground_truth, counted = np.zeros((3, 2, 2)), np.array([[True, True], [False, True], [False, True]])
    result = pck(ground_truth, ground_truth, counted=counted, threshold_px=np.ones(3), first_frame="out")
    np.testing.assert_array_equal(result.per_joint, [np.nan, 1])
    assert result.mean == 1
    assert math.isnan(
        pck(ground_truth[:1], ground_truth[:1], counted=counted[:1], threshold_px=np.ones(1), first_frame="out").mean
    )


def test_a_joint_predicted_as_nan_is_wrong():
    ground_truth, counted = np.zeros((2, 1, 2)), np.ones((2, 1), bool)
    assert (
        pck(ground_truth * np.nan, ground_truth, counted=counted, threshold_px=np.ones(2), first_frame="out").mean == 0
    )


def test_clips_are_pooled_by_their_counts():
    parts = []
    for seed, frames in ((1, 4), (2, 9)):
        predicted, ground_truth, counted = clip(seed, frames)
        threshold = box_threshold(ground_truth, counted, 0.1)
        parts.append(pck(predicted, ground_truth, counted=counted, threshold_px=threshold, first_frame="in"))
    a, b = parts
    np.testing.assert_allclose(pool_clips(parts).per_joint, (a.correct + b.correct) / (a.counted + b.counted))


def test_thresholds_by_hand():
    ground_truth = np.array([[[0.0, 0.0], [30.0, 40.0], [500.0, 500.0]]])
    assert box_threshold(ground_truth, np.array([[True, True, False]]), 0.1).tolist() == pytest.approx([0.1 * 0.6 * 50])
    assert np.isnan(box_threshold(ground_truth, np.zeros((1, 3), bool), 0.1)).all()
    assert silhouette_threshold(np.array([0.0, 100.0, 2500.0]), 0.2).tolist() == pytest.approx([0, 2, 10])


def test_unknown_positions_areas_and_no_clips_are_refused():
    ground_truth, counted = np.zeros((2, 1, 2)), np.ones((2, 1), bool)
    with pytest.raises(LabelError, match="a joint is counted whose true position or threshold is unknown"):
        pck(ground_truth, ground_truth * np.nan, counted=counted, threshold_px=np.ones(2), first_frame="out")
    with pytest.raises(LabelError, match="a joint is counted whose true position or threshold is unknown"):
        pck(ground_truth, ground_truth, counted=counted, threshold_px=np.array([1.0, np.nan]), first_frame="out")
    with pytest.raises(LabelError, match="an area is -1 px; count the pixels of the silhouette"):
        silhouette_threshold(np.array([4.0, -1.0]), 0.2)
    with pytest.raises(LabelError, match="there is no clip to pool"):
        pool_clips([])


def test_an_unknown_first_frame_convention_is_refused():
    ground_truth, counted = np.zeros((2, 1, 2)), np.ones((2, 1), bool)
    unchecked = getattr(pck, "__wrapped__", pck)  # the tests' own check of types would speak first
    with pytest.raises(SettingsError, match="first_frame is 'maybe'; give 'out' or 'in'"):
        unchecked(ground_truth, ground_truth, counted=counted, threshold_px=np.ones(2), first_frame="maybe")
