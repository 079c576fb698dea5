"""Laws of the ranking metrics of benchmarks/ranking.py, and their agreement with scipy."""

import numpy as np
import pytest
from scipy import stats

from ranking import auroc, ranks, risk_coverage, spearman
from timecycle.errors import SettingsError


@pytest.fixture
def values() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    confidence = rng.integers(0, 30, 400) / 30  # with ties
    return confidence, (confidence + rng.standard_normal(400)).round(1)


def test_ranks_and_correlation_are_those_of_scipy(values):
    confidence, quality = values
    assert np.array_equal(ranks(confidence), stats.rankdata(confidence))
    assert spearman(confidence, quality) == pytest.approx(stats.spearmanr(confidence, quality).statistic)


def test_auroc_is_the_mann_whitney_statistic(values):
    confidence, quality = values
    bad = quality < 0
    expected = stats.mannwhitneyu(confidence[~bad], confidence[bad]).statistic / ((~bad).sum() * bad.sum())
    assert auroc(confidence, bad) == pytest.approx(expected)
    assert auroc(np.exp(confidence), bad) == pytest.approx(expected)  # only the order matters
    assert auroc(-confidence, bad) == pytest.approx(1 - expected)


def test_perfect_and_constant_confidence():
    quality = np.linspace(0, 1, 11)
    bad = quality < 0.5
    assert auroc(quality, bad) == 1.0
    assert auroc(np.zeros(11), bad) == 0.5
    assert spearman(np.zeros(11), quality) == 0.0


def test_risk_at_full_coverage_is_the_mean_error_and_ties_share_their_mean():
    error = np.array([0.0, 1.0, 0.5, 0.5])
    curve = risk_coverage(np.array([0.9, 0.1, 0.5, 0.5]), error)
    assert curve.risk.tolist() == pytest.approx([0, 0.25, 1 / 3, 0.5])
    assert risk_coverage(np.zeros(4), error).risk.tolist() == pytest.approx([0.5] * 4)
    assert curve.area < risk_coverage(np.zeros(4), error).area


def test_results_that_are_all_good_or_all_bad_are_refused():
    with pytest.raises(SettingsError, match="all results are good, or all are bad"):
        auroc(np.arange(3.0), np.zeros(3, bool))
