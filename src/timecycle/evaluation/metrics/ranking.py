"""How well a number tells good results from bad ones, whatever its scale."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64

from timecycle.errors import SettingsError

Values = Float[np.ndarray, " results"]


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The mean error of the most trusted results, for every share of them that is kept."""

    coverage: Float64[np.ndarray, " results"]
    risk: Float64[np.ndarray, " results"]

    @property
    def area(self) -> float:
        """The mean risk over all shares: lower is better."""
        return float(self.risk.mean())


def auroc(trust: Values, bad: Bool[np.ndarray, " results"]) -> float:
    """The chance that a good result is trusted more than a bad one; ties count half."""
    if bad.all() or not bad.any():
        raise SettingsError("all results are good, or all are bad", remedy="rank results of both kinds")
    order = ranks(trust)
    good = int((~bad).sum())
    return float((order[~bad].sum() - good * (good + 1) / 2) / (good * int(bad.sum())))


def spearman(a: Values, b: Values) -> float:
    """The correlation of ranks; 0 where one of the two never changes."""
    first, second = ranks(a), ranks(b)
    spread = float(first.std() * second.std())
    return float(np.mean((first - first.mean()) * (second - second.mean())) / spread) if spread else 0.0


def risk_coverage(trust: Values, error: Values) -> RiskCoverage:
    """Results are kept from the most to the least trusted; equally trusted ones share their mean error."""
    groups, place = np.unique(-trust, return_inverse=True)
    mean = np.bincount(place, error) / np.bincount(place, minlength=len(groups))
    kept = np.sort(place)
    count = np.arange(1, len(trust) + 1)
    return RiskCoverage(count / len(trust), np.cumsum(mean[kept]) / count)


def ranks(values: Values) -> Float64[np.ndarray, " results"]:
    """From 1 for the lowest; equal values share the mean of their ranks."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count).astype(np.float64)
    shared: np.ndarray = (last - (count - 1) / 2)[place]
    return shared
