"""Laws of the confusion matrix, of mean IoU and of AP^r, and all against plain loops."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from timecycle.errors import LabelError
from timecycle.evaluation.metrics.parts import (
    THRESHOLDS,
    FrameMatches,
    Match,
    PredictedInstance,
    ap_r,
    average_precision,
    confusion,
    iou_per_class,
    match_frame,
    mean_iou,
)

some = settings(deadline=None, max_examples=30)

labels = arrays(np.int64, (4, 5), elements=st.integers(0, 4))


def slow_iou(predicted, ground_truth, classes):
    shares = []
    for c in range(classes):
        both = either = 0
        for p, g in zip(predicted.ravel(), ground_truth.ravel(), strict=True):
            both += p == c and g == c
            either += c in (p, g)
        shares.append(both / either if either else math.nan)
    return shares


@some
@given(labels, labels)
def test_iou_equals_plain_loops(predicted, ground_truth):
    matrix = confusion(predicted, ground_truth, 6)
    shares = slow_iou(predicted, ground_truth, 6)
    np.testing.assert_allclose(iou_per_class(matrix), shares)
    assert mean_iou(matrix) == pytest.approx(np.nanmean(shares))
    assert matrix.sum() == ground_truth.size


@some
@given(labels)
def test_the_ground_truth_scores_one(ground_truth):
    assert mean_iou(confusion(ground_truth, ground_truth, 5)) == 1


@some
@given(labels, labels, st.permutations(range(5)))
def test_class_ids_do_not_matter(predicted, ground_truth, order):
    table = np.array(order)
    plain, renamed = confusion(predicted, ground_truth, 5), confusion(table[predicted], table[ground_truth], 5)
    np.testing.assert_array_equal(renamed[np.ix_(order, order)], plain)
    assert mean_iou(renamed) == pytest.approx(mean_iou(plain))


@some
@given(labels, labels)
def test_matrices_of_frames_add_up_and_swapped_sides_transpose(predicted, ground_truth):
    whole = confusion(predicted, ground_truth, 5)
    np.testing.assert_array_equal(sum(confusion(p, g, 5) for p, g in zip(predicted, ground_truth, strict=True)), whole)
    np.testing.assert_array_equal(confusion(ground_truth, predicted, 5), whole.T)


def test_rows_are_the_ground_truth():
    matrix = confusion(np.array([1, 1, 0], np.uint8), np.array([1, 0, 0], np.uint16), 2)
    assert matrix.tolist() == [[1, 1], [0, 1]]
    assert iou_per_class(matrix).tolist() == [0.5, 0.5]


def test_absent_classes_are_left_out_of_the_mean():
    matrix = confusion(np.array([0, 1]), np.array([0, 1]), 20)
    assert np.isnan(iou_per_class(matrix)[2:]).all()
    assert mean_iou(matrix) == 1
    assert math.isnan(mean_iou(np.zeros((3, 3), np.int64)))


def test_ignored_pixels_do_not_count_whatever_is_predicted_there():
    predicted, ground_truth = np.array([0, 1, 77, 1]), np.array([0, 1, 255, 255])
    assert confusion(predicted, ground_truth, 2, ignore=255).tolist() == [[1, 0], [0, 1]]


def test_unknown_classes_and_different_shapes_are_refused():
    good = np.array([0, 1])
    with pytest.raises(LabelError, match="the prediction has classes from 0 to 7, but there are 2; number them 0 to 1"):
        confusion(np.array([0, 7]), good, 2)
    with pytest.raises(LabelError, match="the ground truth has classes from -1 to 0, but there are 2"):
        confusion(good, np.array([-1, 0]), 2)
    with pytest.raises(LabelError, match=r"the prediction has the shape \(2,\) but the ground truth \(3,\)"):
        confusion(good, np.array([0, 1, 1]), 2)


CLASSES = (1, 2, 3)


def scene(seed, frames=4):
    """Frames of square instances, predicted a few pixels off, some with the wrong class, some not at all."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(frames):
        ground_truth, predicted = np.zeros((2, 30, 40), np.int64)
        classes, instances = {}, {}
        for i in range(1, random.integers(2, 7)):
            y, x, side = random.integers(0, 20), random.integers(0, 30), random.integers(4, 11)
            ground_truth[y : y + side, x : x + side] = i
            classes[i] = int(random.choice(CLASSES))
            if random.random() < 0.85:
                dy, dx = random.integers(0, 4, 2)
                predicted[y + dy : y + dy + side, x + dx : x + dx + side] = 10 + i
                klass = classes[i] if random.random() < 0.8 else int(random.choice(CLASSES))
                instances[10 + i] = PredictedInstance(klass, float(random.choice([0.1, 0.4, 0.5, 0.9])))
        made.append((predicted, instances, ground_truth, classes))
    return made


def slow_matches(predicted, instances, ground_truth, classes):
    matched = []
    for i, instance in instances.items():
        if not (predicted == i).any():
            continue
        best = 0.0
        for k, klass in classes.items():
            if klass == instance.klass:
                both = ((predicted == i) & (ground_truth == k)).sum()
                best = max(best, both / ((predicted == i) | (ground_truth == k)).sum())
        matched.append((instance.klass, instance.score, best))
    return matched


def slow_ap(matched, true_count, threshold):
    """The area by its definition: every gain in recall times the best precision at that recall or a higher one."""
    points = []
    for level in sorted({score for score, _ in matched}, reverse=True):
        kept = [iou for score, iou in matched if score >= level]
        correct = sum(iou > threshold for iou in kept)
        points.append((correct / true_count, correct / len(kept)))
    area, before = 0.0, 0.0
    for recall, _ in points:
        best = max(precision for r, precision in points if r >= recall)
        area, before = area + (recall - before) * best, recall
    return area


@some
@given(st.integers(0, 300))
def test_ap_equals_plain_loops(seed):
    frames = scene(seed)
    result = ap_r(match_frame(*frame) for frame in frames)
    matched = [match for frame in frames for match in slow_matches(*frame)]
    true_classes = [classes[k] for _, _, ground_truth, classes in frames for k in classes if (ground_truth == k).any()]
    table = []
    for klass in CLASSES:
        of_class = [(score, iou) for k, score, iou in matched if k == klass]
        if true_classes.count(klass):
            table.append([slow_ap(of_class, true_classes.count(klass), t) for t in THRESHOLDS])
        elif of_class:
            table.append([0.0] * len(THRESHOLDS))
    assert list(result.per_threshold.values()) == pytest.approx(np.mean(table, axis=0).tolist())
    assert list(result.per_class.values()) == pytest.approx(np.mean(table, axis=1).tolist())
    assert result.mean == pytest.approx(np.mean(table))


@some
@given(st.integers(0, 300))
def test_the_ground_truth_scores_one_with_any_instance_scores(seed):
    frames = []
    for _, _, ground_truth, classes in scene(seed):
        instances = {k: PredictedInstance(klass, k / 7) for k, klass in classes.items()}
        frames.append(match_frame(ground_truth, instances, ground_truth, classes))
    result = ap_r(frames)
    assert result.mean == pytest.approx(1)
    assert result.per_threshold == pytest.approx(dict.fromkeys(THRESHOLDS, 1.0))


@some
@given(st.integers(0, 300), st.randoms(use_true_random=False))
def test_the_order_of_frames_and_instances_does_not_matter(seed, random):
    frames = [match_frame(*frame) for frame in scene(seed)]
    shuffled = [FrameMatches(tuple(random.sample(f.matches, len(f.matches))), f.ground_truth_count) for f in frames]
    random.shuffle(shuffled)
    assert ap_r(shuffled) == ap_r(frames)


@some
@given(st.integers(0, 300))
def test_only_the_order_of_scores_matters_and_a_higher_threshold_never_helps(seed):
    frames = [match_frame(*frame) for frame in scene(seed)]
    rescored = [
        FrameMatches(tuple(Match(m.klass, m.score**3 * 50 - 7, m.iou) for m in f.matches), f.ground_truth_count)
        for f in frames
    ]
    assert ap_r(rescored) == ap_r(frames)
    values = list(ap_r(frames).per_threshold.values())
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(values))


def matches(*pairs):
    return [Match(1, score, iou) for score, iou in pairs]


def test_average_precision_by_hand():
    ranked = matches((0.9, 0.8), (0.8, 0.1), (0.7, 0.9), (0.6, 0.2))
    # correct, wrong, correct, wrong of 4: recall 1/4 at precision 1, then 2/4 at 2/3
    assert average_precision(ranked, 4, 0.5) == pytest.approx(1 / 4 + 1 / 4 * 2 / 3)


def test_constant_scores_give_precision_times_recall():
    tied = matches((1, 0.8), (1, 0.1), (1, 0.9))
    assert average_precision(tied, 4, 0.5) == pytest.approx(2 / 3 * 2 / 4)
    assert average_precision(tied[::-1], 4, 0.5) == pytest.approx(2 / 3 * 2 / 4)


def test_an_iou_equal_to_the_threshold_is_wrong():
    assert average_precision(matches((1, 0.5)), 1, 0.5) == 0


def test_matches_are_not_one_to_one():
    """Two halves of one instance are both correct at a low threshold, as in the official evaluator."""
    ground_truth = np.ones((4, 4), np.int64)
    halves = np.repeat([[1], [1], [2], [2]], 4, axis=1)
    frame = match_frame(halves, {1: PredictedInstance(5, 1.0), 2: PredictedInstance(5, 0.5)}, ground_truth, {1: 5})
    assert [match.iou for match in frame.matches] == [0.5, 0.5]
    assert average_precision(frame.matches, 1, 0.1) == 2
    assert average_precision(frame.matches, 1, 0.5) == 0


def test_a_class_with_predictions_only_counts_0_and_one_with_neither_is_left_out():
    correct = FrameMatches((Match(1, 1.0, 1.0),), {1: 1, 3: 0})
    assert ap_r([correct]).per_class == {1: pytest.approx(1)}
    false_positive = FrameMatches((Match(2, 1.0, 0.0),), {})
    assert ap_r([correct, false_positive]).per_class == {1: pytest.approx(1), 2: 0}
    missed = FrameMatches((), {3: 4})
    assert ap_r([correct, missed]).mean == pytest.approx(0.5)


def test_overlap_with_another_class_does_not_count():
    ids = np.ones((3, 3), np.int64)
    frame = match_frame(ids, {1: PredictedInstance(2, 1.0), 6: PredictedInstance(2, 1.0)}, ids, {1: 1, 9: 1})
    assert frame.matches == (Match(2, 1.0, 0.0),)  # id 6 has no pixel
    assert frame.ground_truth_count == {1: 1}  # nor has 9


def test_undescribed_instances_shapes_and_scores_are_refused():
    ids = np.array([[0, 4]])
    with pytest.raises(LabelError, match="the prediction has instance 4, whose class is not given"):
        match_frame(ids, {}, ids, {4: 1})
    with pytest.raises(LabelError, match="the ground truth has instance 4, whose class is not given"):
        match_frame(ids, {4: PredictedInstance(1, 1.0)}, ids, {})
    with pytest.raises(LabelError, match=r"the prediction has the shape \(1, 2\) but the ground truth \(2, 1\)"):
        match_frame(ids, {4: PredictedInstance(1, 1.0)}, ids.T, {4: 1})
    with pytest.raises(LabelError, match="an instance has the score nan; give finite scores"):
        PredictedInstance(1, float("nan"))
    with pytest.raises(LabelError, match="no frame has an instance, true or predicted"):
        ap_r([])
