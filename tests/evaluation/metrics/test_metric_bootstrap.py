"""Laws of the paired bootstrap."""

import numpy as np
import pytest

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.metrics.bootstrap import Interval, paired_bootstrap

a, b = np.random.default_rng(0).normal(0.5, 0.2, (2, 30))


def test_a_method_is_as_good_as_itself():
    assert paired_bootstrap(a, a) == Interval(0, 0, 0)


def test_a_constant_gain_is_certain_however_much_sequences_differ():
    found = paired_bootstrap(a + 0.01, a)
    assert (found.difference, found.low, found.high) == pytest.approx((0.01, 0.01, 0.01))


def test_the_other_way_round():
    forth, back = paired_bootstrap(a, b), paired_bootstrap(b, a)
    assert (back.difference, back.low, back.high) == pytest.approx((-forth.difference, -forth.high, -forth.low))


def test_the_same_seed_gives_the_same_interval():
    assert paired_bootstrap(a, b, seed=1) == paired_bootstrap(a, b, seed=1)
    assert paired_bootstrap(a, b, seed=1) != paired_bootstrap(a, b, seed=2)


def test_the_interval_is_that_of_the_mean_of_differences():
    """For 30 sequences close to the normal one: 1.96 standard errors to both sides."""
    found = paired_bootstrap(a, b, resamples=20_000)
    error = (a - b).std() / np.sqrt(len(a))
    assert found.difference == pytest.approx((a - b).mean())
    assert found.low == pytest.approx((a - b).mean() - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx((a - b).mean() + 1.96 * error, abs=0.1 * error)


def test_more_confidence_is_wider():
    wide, narrow = paired_bootstrap(a, b, confidence=0.99), paired_bootstrap(a, b, confidence=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_weights_give_the_mean_over_objects():
    objects = np.random.default_rng(1).integers(1, 6, 30)
    found = paired_bootstrap(a, b, weights=objects.astype(np.float64))
    assert found.difference == pytest.approx((np.repeat(a, objects) - np.repeat(b, objects)).mean())
    assert found.low < found.difference < found.high
    assert paired_bootstrap(a, b, weights=np.full(30, 3.0)).low == pytest.approx(paired_bootstrap(a, b).low)


def test_many_sequences_are_drawn_in_portions():
    many = np.random.default_rng(2).normal(size=(2, 20_000))
    found = paired_bootstrap(many[0], many[1], resamples=130)
    assert found.low < found.difference < found.high


def test_refusals():
    with pytest.raises(LabelError, match="30 and 29 scores with 30 weights are not pairs; score both methods"):
        paired_bootstrap(a, b[1:])
    with pytest.raises(LabelError, match="30 and 30 scores with 2 weights are not pairs"):
        paired_bootstrap(a, b, weights=np.ones(2))
    with pytest.raises(LabelError, match="a score is not a finite number, or a weight is not above 0"):
        paired_bootstrap(a, b, weights=np.zeros(30))
    with pytest.raises(LabelError, match="a score is not a finite number"):
        paired_bootstrap(a, b * np.nan)
    with pytest.raises(SettingsError, match=r"a bootstrap of 0 resamples with confidence 0\.95"):
        paired_bootstrap(a, b, resamples=0)
