"""Laws of region similarity J and boundary accuracy F; boundary and dilation against slow references."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from timecycle.errors import SettingsError
from timecycle.evaluation.metrics.masks import boundary, boundary_f, jaccard, tolerance_px

some = settings(deadline=None, max_examples=30)

regions = arrays(bool, (6, 7))
sizes = st.tuples(st.integers(1, 12), st.integers(1, 14))
masks = sizes.flatmap(lambda size: arrays(bool, size))
pairs = sizes.flatmap(lambda size: st.tuples(arrays(bool, size), arrays(bool, size)))


def slow_boundary(mask):
    """The last row compares with the right neighbour only, the last column with the lower one only."""
    height, width = mask.shape
    edge = np.zeros_like(mask)
    for y in range(height):
        for x in range(width):
            near = [(y, x + 1), (y + 1, x), (y + 1, x + 1)]
            edge[y, x] = any(mask[q] != mask[y, x] for q in near if q[0] < height and q[1] < width)
    return edge


def slow_f(predicted, ground_truth, radius):
    edge, true_edge = (list(zip(*np.nonzero(slow_boundary(mask)), strict=True)) for mask in (predicted, ground_truth))
    if not edge or not true_edge:
        return float(not edge and not true_edge)

    def matched(pixels, others):
        near = [any((y - v) ** 2 + (x - u) ** 2 <= radius**2 for v, u in others) for y, x in pixels]
        return sum(near) / len(near)

    p, r = matched(edge, true_edge), matched(true_edge, edge)
    return 2 * p * r / (p + r) if p + r else 0.0


def disc(*, y, x, radius=60, height=480, width=854):
    rows, columns = np.mgrid[:height, :width]
    return (rows - y) ** 2 + (columns - x) ** 2 <= radius**2


@some
@given(masks)
def test_a_mask_matches_itself(mask):
    assert boundary_f(mask, mask) == 1


@some
@given(masks)
def test_boundary_equals_the_slow_reference(mask):
    assert (boundary(mask) == slow_boundary(mask)).all()
    assert (boundary(~mask) == boundary(mask)).all()


@some
@given(pairs, st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.4, 0.9]))
def test_boundary_f_equals_the_slow_reference_at_every_tolerance(pair, tolerance):
    predicted, ground_truth = pair
    radius = math.ceil(tolerance * math.sqrt(ground_truth.shape[0] ** 2 + ground_truth.shape[1] ** 2))
    assert tolerance_px(*ground_truth.shape, tolerance=tolerance) == radius
    f = boundary_f(predicted, ground_truth, tolerance=tolerance)
    assert f == pytest.approx(slow_f(predicted, ground_truth, radius), abs=1e-12)
    assert f == boundary_f(ground_truth, predicted, tolerance=tolerance)


@some
@given(pairs)
def test_a_greater_tolerance_never_lowers_f(pair):
    f = [boundary_f(*pair, tolerance=tolerance) for tolerance in (0, 0.05, 0.1, 0.3, 0.9)]
    assert f == sorted(f)


def test_the_tolerance_is_8_px_at_480p():
    assert tolerance_px(480, 854) == 8
    assert tolerance_px(1080, 1920) == 18


@pytest.mark.parametrize("shift", [(8, 0), (0, -8), (5, 6), (-4, 4)])
def test_a_shift_within_the_tolerance_costs_nothing(shift):
    ground_truth = disc(y=200, x=400)
    assert boundary_f(disc(y=200 + shift[0], x=400 + shift[1]), ground_truth) == 1


def test_a_shift_beyond_the_tolerance_lowers_f():
    ground_truth = disc(y=200, x=400)
    assert 0.2 < boundary_f(disc(y=200, x=420), ground_truth) < 0.8
    assert boundary_f(disc(y=200, x=600), ground_truth) == 0


def test_boundary_f_of_empty_and_full_masks():
    """A mask that fills the image has no boundary either."""
    empty, some, full = np.zeros((40, 50), bool), np.zeros((40, 50), bool), np.ones((40, 50), bool)
    some[10:20, 10:20] = True
    pairs = ((empty, empty), (empty, some), (some, empty), (full, full), (full, empty))
    assert [boundary_f(predicted, ground_truth) for predicted, ground_truth in pairs] == [1, 0, 0, 1, 1]


def test_an_object_cut_off_by_the_image_has_no_boundary_there():
    mask = np.zeros((20, 30), bool)
    mask[:, 10:] = True
    assert np.argwhere(boundary(mask)).tolist() == [[y, 9] for y in range(20)]


def test_a_tolerance_in_pixels_is_refused():
    with pytest.raises(SettingsError, match=r"the tolerance of boundaries is 8; give it as a fraction .* 0.008"):
        tolerance_px(480, 854, tolerance=8)


# Region similarity


@some
@given(regions)
def test_a_mask_overlaps_itself_fully(mask):
    assert jaccard(mask, mask) == 1


@some
@given(regions, regions)
def test_jaccard_is_symmetric_and_a_fraction(a, b):
    assert jaccard(a, b) == jaccard(b, a)
    assert 0 <= jaccard(a, b) <= 1


@some
@given(regions, regions, st.permutations(range(42)))
def test_jaccard_does_not_depend_on_the_order_of_pixels(a, b, order):
    def shuffled(mask):
        return mask.reshape(42)[order].reshape(6, 7)

    assert jaccard(a, b) == jaccard(shuffled(a), shuffled(b))


def test_two_empty_masks_agree_and_one_empty_mask_does_not():
    empty, full = np.zeros((4, 4), bool), np.ones((4, 4), bool)
    assert jaccard(empty, empty) == 1
    assert jaccard(empty, full) == jaccard(full, empty) == 0


def test_jaccard_of_two_squares_that_share_half():
    a, b = np.zeros((2, 8, 8), bool)
    a[:4, :4] = b[2:6, :4] = True
    assert jaccard(a, b) == 8 / 24
