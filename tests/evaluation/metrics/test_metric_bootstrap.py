"""Laws of the paired bootstrap."""

import numpy as np
import pytest

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.metrics.bootstrap import Interval, paired_bootstrap

a, b = np.random.default_rng(0).normal(0.5, 0.2, (2, 30))


def test_a_method_does_not_differ_from_itself():
    assert paired_bootstrap(a, a) == Interval(0, 0, 0)


def test_a_constant_gain_is_certain_however_much_sequences_differ():
    interval = paired_bootstrap(a + 0.01, a)
    assert (interval.difference, interval.low, interval.high) == pytest.approx((0.01, 0.01, 0.01))


def test_swapped_methods_give_the_negated_interval():
    ab, ba = paired_bootstrap(a, b), paired_bootstrap(b, a)
    assert (ba.difference, ba.low, ba.high) == pytest.approx((-ab.difference, -ab.high, -ab.low))


def test_the_same_seed_gives_the_same_interval():
    assert paired_bootstrap(a, b, seed=1) == paired_bootstrap(a, b, seed=1)
    assert paired_bootstrap(a, b, seed=1) != paired_bootstrap(a, b, seed=2)


def test_the_interval_is_that_of_the_mean_of_differences():
    """For 30 sequences it is close to the normal interval: 1.96 standard errors to both sides."""
    interval = paired_bootstrap(a, b, resamples=20_000)
    error = (a - b).std() / np.sqrt(len(a))
    assert interval.difference == pytest.approx((a - b).mean())
    assert interval.low == pytest.approx((a - b).mean() - 1.96 * error, abs=0.1 * error)
    assert interval.high == pytest.approx((a - b).mean() + 1.96 * error, abs=0.1 * error)


def test_a_higher_confidence_gives_a_wider_interval():
    wide, narrow = paired_bootstrap(a, b, confidence=0.99), paired_bootstrap(a, b, confidence=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_weights_give_the_mean_over_objects():
    objects = np.random.default_rng(1).integers(1, 6, 30)
    interval = paired_bootstrap(a, b, weights=objects.astype(np.float64))
    assert interval.difference == pytest.approx((np.repeat(a, objects) - np.repeat(b, objects)).mean())
    assert interval.low < interval.difference < interval.high
    assert paired_bootstrap(a, b, weights=np.full(30, 3.0)).low == pytest.approx(paired_bootstrap(a, b).low)


def test_many_sequences_are_resampled_in_batches():
    many = np.random.default_rng(2).normal(size=(2, 20_000))
    interval = paired_bootstrap(many[0], many[1], resamples=130)
    assert interval.low < interval.difference < interval.high


def test_unpaired_scores_and_bad_settings_are_refused():
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
