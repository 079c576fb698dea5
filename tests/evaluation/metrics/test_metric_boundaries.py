"""Laws of boundary accuracy, and its outline and disk against slow ones."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from timecycle.errors import SettingsError
from timecycle.evaluation.metrics.boundaries import boundary, boundary_f, reach_px

some = settings(deadline=None, max_examples=30)

sizes = st.tuples(st.integers(1, 12), st.integers(1, 14))
masks = sizes.flatmap(lambda size: arrays(bool, size))
pairs = sizes.flatmap(lambda size: st.tuples(arrays(bool, size), arrays(bool, size)))


def slow_boundary(mask):
    """In the last row only the right neighbour is asked, in the last column only the lower one."""
    height, width = mask.shape
    outline = np.zeros_like(mask)
    for y in range(height):
        for x in range(width):
            near = [(y, x + 1), (y + 1, x), (y + 1, x + 1)]
            outline[y, x] = any(mask[q] != mask[y, x] for q in near if q[0] < height and q[1] < width)
    return outline


def slow_f(predicted, truth, reach):
    ours, theirs = (list(zip(*np.nonzero(slow_boundary(mask)), strict=True)) for mask in (predicted, truth))
    if not ours or not theirs:
        return float(not ours and not theirs)

    def met(some, others):
        near = [any((y - v) ** 2 + (x - u) ** 2 <= reach**2 for v, u in others) for y, x in some]
        return sum(near) / len(near)

    p, r = met(ours, theirs), met(theirs, ours)
    return 2 * p * r / (p + r) if p + r else 0.0


def disc(*, y, x, radius=60, height=480, width=854):
    rows, columns = np.mgrid[:height, :width]
    return (rows - y) ** 2 + (columns - x) ** 2 <= radius**2


@some
@given(masks)
def test_a_mask_meets_itself(mask):
    assert boundary_f(mask, mask) == 1


@some
@given(masks)
def test_the_outline_is_that_of_the_slow_rule(mask):
    assert (boundary(mask) == slow_boundary(mask)).all()
    assert (boundary(~mask) == boundary(mask)).all()


@some
@given(pairs, st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.4, 0.9]))
def test_it_equals_the_slow_rule_at_every_reach(pair, tolerance):
    predicted, truth = pair
    reach = math.ceil(tolerance * math.sqrt(truth.shape[0] ** 2 + truth.shape[1] ** 2))
    assert reach_px(*truth.shape, tolerance=tolerance) == reach
    f = boundary_f(predicted, truth, tolerance=tolerance)
    assert f == pytest.approx(slow_f(predicted, truth, reach), abs=1e-12)
    assert f == boundary_f(truth, predicted, tolerance=tolerance)


@some
@given(pairs)
def test_a_greater_tolerance_never_lowers_it(pair):
    f = [boundary_f(*pair, tolerance=tolerance) for tolerance in (0, 0.05, 0.1, 0.3, 0.9)]
    assert f == sorted(f)


def test_the_tolerance_is_8_px_at_480p():
    assert reach_px(480, 854) == 8
    assert reach_px(1080, 1920) == 18


@pytest.mark.parametrize("shift", [(8, 0), (0, -8), (5, 6), (-4, 4)])
def test_a_shift_within_the_tolerance_costs_nothing(shift):
    truth = disc(y=200, x=400)
    assert boundary_f(disc(y=200 + shift[0], x=400 + shift[1]), truth) == 1


def test_a_shift_beyond_the_tolerance_costs_the_part_that_moved_away():
    truth = disc(y=200, x=400)
    assert 0.2 < boundary_f(disc(y=200, x=420), truth) < 0.8
    assert boundary_f(disc(y=200, x=600), truth) == 0


def test_empty_masks():
    """A mask that fills the image has no outline either."""
    empty, some, full = np.zeros((40, 50), bool), np.zeros((40, 50), bool), np.ones((40, 50), bool)
    some[10:20, 10:20] = True
    pairs = ((empty, empty), (empty, some), (some, empty), (full, full), (full, empty))
    assert [boundary_f(predicted, truth) for predicted, truth in pairs] == [1, 0, 0, 1, 1]


def test_an_object_cut_off_by_the_image_has_no_outline_there():
    mask = np.zeros((20, 30), bool)
    mask[:, 10:] = True
    assert np.argwhere(boundary(mask)).tolist() == [[y, 9] for y in range(20)]


def test_a_tolerance_in_pixels_is_refused():
    with pytest.raises(SettingsError, match=r"the tolerance of boundaries is 8; give it as a fraction .* 0.008"):
        reach_px(480, 854, tolerance=8)
