"""Laws of the confusion matrix and of mean IoU, and both against plain loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from timecycle.errors import LabelError
from timecycle.evaluation.metrics.classes import confusion, iou_per_class, mean_iou

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
