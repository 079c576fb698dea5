"""Calibration: a curve that never falls, and that leaves alone what nothing is known of."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timecycle.review.calibration import Known, calibrate, rising

numbers = st.floats(0, 1)
pairs = st.lists(st.builds(Known, numbers, numbers), max_size=20)


@given(pairs)
def test_the_curve_never_falls_and_stays_between_0_and_1(known):
    curve = calibrate(known)
    values = [curve(x) for x in np.linspace(0, 1, 101)]
    assert min(values) >= -1e-9
    assert max(values) <= 1 + 1e-9
    assert all(b >= a - 1e-9 for a, b in pairwise(values))


def test_nothing_known_changes_nothing():
    curve = calibrate([])
    for confidence in (0.0, 0.123, 0.5, 1.0):
        assert curve(confidence) == pytest.approx(confidence)


def test_what_rises_already_stays():
    values = np.array([0.1, 0.2, 0.7])
    np.testing.assert_allclose(rising(values, np.ones(3)), values)


def test_what_falls_is_pooled_by_weight():
    pooled = rising(np.array([0.0, 1.0, 0.5, 2.0]), np.array([1.0, 1.0, 3.0, 1.0]))
    np.testing.assert_allclose(pooled, [0.0, 0.625, 0.625, 2.0])


def test_it_is_the_nearest_sequence_that_never_falls():
    """Against scipy's, on random values and weights."""
    optimize = pytest.importorskip("scipy.optimize")
    random = np.random.default_rng(0)
    for _ in range(20):
        values, weight = random.normal(size=12), random.uniform(0.1, 2, 12)
        expected = optimize.isotonic_regression(values, weights=weight).x
        np.testing.assert_allclose(rising(values, weight), expected, atol=1e-12)


def test_overconfidence_that_corrections_show_is_taken_back():
    curve = calibrate([Known(0.8, 0.3), Known(0.85, 0.35), Known(0.75, 0.3), Known(0.7, 0.3)])
    assert curve(0.8) < 0.45
    assert curve(0.1) == pytest.approx(0.1, abs=0.05)  # nothing was learned of it
