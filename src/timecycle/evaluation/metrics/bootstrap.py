"""Whether one method is better than another, or was lucky with the sequences: a paired bootstrap."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from timecycle.errors import LabelError, SettingsError

_DRAWS_AT_ONCE = 1_000_000  # numbers drawn together: 8 MB


@dataclass(frozen=True)
class Interval:
    """How much better a is than b, and between what bounds that would fall for other sequences of the same kind."""

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
    """Percentile interval of mean(a) - mean(b) when sequences are drawn again with replacement, in pairs.

    Both methods are scored on the sequences drawn, so what makes a sequence hard for both cancels out. Sequences are
    drawn and not objects or frames, which are not independent within one. With weights, such as the number of
    objects of each sequence, the means are weighted: then the difference is that of the means over objects.
    The same seed gives the same interval.
    """
    weight = np.ones(len(a)) if weights is None else weights.astype(np.float64)
    _demand(a, b, weight)
    if resamples < 1 or not 0 < confidence < 1:
        raise SettingsError(
            f"a bootstrap of {resamples} resamples with confidence {confidence:g}",
            remedy="give at least 1 resample, and a confidence between 0 and 1",
        )
    gain = weight * (a.astype(np.float64) - b)
    random = np.random.default_rng(seed)
    means = [_drawn(gain, weight, count, random) for count in _portions(resamples, max(1, _DRAWS_AT_ONCE // len(a)))]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Interval(float(gain.sum() / weight.sum()), float(low), float(high))


def _drawn(
    gain: Float64[np.ndarray, " n"], weight: Float64[np.ndarray, " n"], count: int, random: np.random.Generator
) -> Float64[np.ndarray, " count"]:
    """The mean gain of each of `count` resamples."""
    index = random.integers(len(gain), size=(count, len(gain)))
    return np.asarray(gain[index].sum(axis=1) / weight[index].sum(axis=1))


def _portions(total: int, most: int) -> list[int]:
    return [min(most, total - done) for done in range(0, total, most)]


def _demand(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " m"], weight: Float64[np.ndarray, " k"]) -> None:
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
