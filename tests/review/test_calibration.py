"""Calibration: the curve never falls, and keeps confidence where no corrected object is near."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timecycle.review.calibration import calibrate, isotonic

numbers = st.floats(0, 1)
pairs = st.lists(st.tuples(numbers, numbers), max_size=20)


@given(pairs)
def test_the_curve_never_falls_and_stays_between_0_and_1(corrected):
    curve = calibrate(corrected)
    values = [curve(x) for x in np.linspace(0, 1, 101)]
    assert min(values) >= -1e-9
    assert max(values) <= 1 + 1e-9
    assert all(b >= a - 1e-9 for a, b in pairwise(values))


def test_without_corrected_objects_confidence_stays():
    curve = calibrate([])
    for confidence in (0.0, 0.123, 0.5, 1.0):
        assert curve(confidence) == pytest.approx(confidence)


def test_rising_values_stay():
    values = np.array([0.1, 0.2, 0.7])
    np.testing.assert_allclose(isotonic(values, np.ones(3)), values)


def test_falling_values_are_pooled_by_weight():
    pooled = isotonic(np.array([0.0, 1.0, 0.5, 2.0]), np.array([1.0, 1.0, 3.0, 1.0]))
    np.testing.assert_allclose(pooled, [0.0, 0.625, 0.625, 2.0])


def test_isotonic_regression_equals_that_of_scipy():
    optimize = pytest.importorskip("scipy.optimize")
    random = np.random.default_rng(0)
    for _ in range(20):
        values, weight = random.normal(size=12), random.uniform(0.1, 2, 12)
        expected = optimize.isotonic_regression(values, weights=weight).x
        np.testing.assert_allclose(isotonic(values, weight), expected, atol=1e-12)


def test_overconfidence_shown_by_corrections_is_reduced():
    curve = calibrate([(0.8, 0.3), (0.85, 0.35), (0.75, 0.3), (0.7, 0.3)])
    assert curve(0.8) < 0.45
    assert curve(0.1) == pytest.approx(0.1, abs=0.05)  # no corrected object is near
