"""Ranking metrics of a confidence: AUROC, Spearman correlation and the risk-coverage curve."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64

from timecycle.errors import SettingsError

Values = Float[np.ndarray, " results"]


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The mean error (risk) of the most confident results, by the share of results kept (coverage)."""

    coverage: Float64[np.ndarray, " results"]
    risk: Float64[np.ndarray, " results"]

    @property
    def area(self) -> float:
        """The mean risk over all coverages: lower is better."""
        return float(self.risk.mean())


def auroc(confidence: Values, bad: Bool[np.ndarray, " results"]) -> float:
    """Return the probability that a good result has a higher confidence than a bad one; ties count half."""
    if bad.all() or not bad.any():
        raise SettingsError("all results are good, or all are bad", remedy="rank results of both kinds")
    order = ranks(confidence)
    good = int((~bad).sum())
    return float((order[~bad].sum() - good * (good + 1) / 2) / (good * int(bad.sum())))


def spearman(a: Values, b: Values) -> float:
    """Return the rank correlation; 0 where one of the two is constant."""
    first, second = ranks(a), ranks(b)
    spread = float(first.std() * second.std())
    return float(np.mean((first - first.mean()) * (second - second.mean())) / spread) if spread else 0.0


def risk_coverage(confidence: Values, error: Values) -> RiskCoverage:
    """Keep results from the most to the least confident; results of equal confidence share their mean error."""
    groups, group = np.unique(-confidence, return_inverse=True)
    mean = np.bincount(group, error) / np.bincount(group, minlength=len(groups))
    kept = np.sort(group)
    count = np.arange(1, len(confidence) + 1)
    return RiskCoverage(count / len(confidence), np.cumsum(mean[kept]) / count)


def ranks(values: Values) -> Float64[np.ndarray, " results"]:
    """Rank values from 1 for the lowest; equal values share the mean of their ranks."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count).astype(np.float64)
    shared: np.ndarray = (last - (count - 1) / 2)[group]
    return shared
