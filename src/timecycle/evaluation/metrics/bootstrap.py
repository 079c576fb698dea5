"""Paired bootstrap over sequences: how certain it is that one method is better than another."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from timecycle.errors import LabelError, SettingsError

_SAMPLES_PER_BATCH = 1_000_000  # 8 MB


@dataclass(frozen=True)
class Interval:
    """The difference of two methods, with its confidence interval over sequences."""

    difference: float  # mean of a minus mean of b
    low: float
    high: float


def paired_bootstrap(
    a: Float[np.ndarray, " sequences"],
    b: Float[np.ndarray, "_"],
    *,
    resamples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
    weights: Float[np.ndarray, "_"] | None = None,
) -> Interval:
    """Return the percentile interval of mean(a) - mean(b) when sequences are resampled with replacement, in pairs.

    Both methods are scored on the same resampled sequences, so the difficulty of a sequence cancels out. Sequences are
    resampled rather than objects or frames, which are not independent within a sequence. With weights, such as the
    number of objects of each sequence, the difference is that of the means over objects. The same seed gives the same
    interval.
    """
    weight = np.ones(len(a)) if weights is None else weights.astype(np.float64)
    _check_pairs(a, b, weight)
    if resamples < 1 or not 0 < confidence < 1:
        raise SettingsError(
            f"a bootstrap of {resamples} resamples with confidence {confidence:g}",
            remedy="give at least 1 resample, and a confidence between 0 and 1",
        )
    gain = weight * (a.astype(np.float64) - b)
    random = np.random.default_rng(seed)
    batches = _batches(resamples, max(1, _SAMPLES_PER_BATCH // len(a)))
    means = [_resampled_means(gain, weight, count, random) for count in batches]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Interval(float(gain.sum() / weight.sum()), float(low), float(high))


def _resampled_means(
    gain: Float64[np.ndarray, " n"], weight: Float64[np.ndarray, " n"], count: int, random: np.random.Generator
) -> Float64[np.ndarray, " count"]:
    """Return the mean gain of each of `count` resamples."""
    index = random.integers(len(gain), size=(count, len(gain)))
    return np.asarray(gain[index].sum(axis=1) / weight[index].sum(axis=1))


def _batches(total: int, size: int) -> list[int]:
    return [min(size, total - done) for done in range(0, total, size)]


def _check_pairs(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " m"], weight: Float64[np.ndarray, " k"]) -> None:
    if not len(a) or len(a) != len(b) or len(a) != len(weight):
        raise LabelError(
            f"{len(a)} and {len(b)} scores with {len(weight)} weights are not pairs",
            remedy="score both methods on the same sequences, at least one",
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all() and np.isfinite(weight).all() and (weight > 0).all()):
        raise LabelError(
            "a score is not a finite number, or a weight is not above 0",
            remedy="leave out sequences without a score, from both methods",
        )
