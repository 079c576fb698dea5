"""Laws of region similarity."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from timecycle.evaluation.metrics.regions import jaccard

some = settings(deadline=None, max_examples=30)

masks = arrays(bool, (6, 7))


@some
@given(masks)
def test_a_mask_is_like_itself(mask):
    assert jaccard(mask, mask) == 1


@some
@given(masks, masks)
def test_it_is_symmetric_and_a_fraction(a, b):
    assert jaccard(a, b) == jaccard(b, a)
    assert 0 <= jaccard(a, b) <= 1


@some
@given(masks, masks, st.permutations(range(42)))
def test_it_does_not_know_where_pixels_are(a, b, order):
    def mixed(mask):
        return mask.reshape(42)[order].reshape(6, 7)

    assert jaccard(a, b) == jaccard(mixed(a), mixed(b))


def test_two_empty_masks_agree_and_one_empty_mask_does_not():
    empty, full = np.zeros((4, 4), bool), np.ones((4, 4), bool)
    assert jaccard(empty, empty) == 1
    assert jaccard(empty, full) == jaccard(full, empty) == 0


def test_two_squares_that_share_half():
    a, b = np.zeros((2, 8, 8), bool)
    a[:4, :4] = b[2:6, :4] = True
    assert jaccard(a, b) == 8 / 24
