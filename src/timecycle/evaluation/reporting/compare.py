"""Compare two reports of the same data, paired by clip: which is better, by how much, and how certain that is.

How certain is measured by a paired bootstrap over sequences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float64

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.reporting.report import Report
from timecycle.evaluation.reporting.scores import COUNTED, in_print, is_number, lower_is_better, main_scores, score_name

_MIN_SEQUENCES = 5  # resampling fewer sequences says little about others
_MAX_COUNTED_DIFFERENCE = 0.02  # of all joints: beyond, two methods are not scored on the same joints
_EXTENT = ("sequences", "frames", "sha256")  # what differs in the data when only some sequences are evaluated

_SAMPLES_PER_BATCH = 1_000_000  # 8 MB


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One score of two reports on the clips both have."""

    score: str
    a: float
    b: float
    difference: float  # b minus a
    low: float  # of its 95 % interval
    high: float
    better: int  # clips on which b is better
    worse: int
    sequences: int

    @property
    def verdict(self) -> Literal["better", "worse", "unclear", "too few"]:
        """Whether b is better or worse than a, as far as this data can show."""
        if self.sequences < _MIN_SEQUENCES:
            return "too few"
        if self.low <= 0 <= self.high:
            return "unclear"
        return "better" if (self.difference > 0) != lower_is_better(self.score) else "worse"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences of report b from report a."""

    benchmark: str
    a: str
    b: str
    sequences: int
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]  # other differences, which may also explain a difference of scores

    def __repr__(self) -> str:
        return comparison_text(self)


def compare(a: Report, b: Report) -> Comparison:
    """Compare the main scores of both reports, paired over the clips both have.

    Differences are of means over clips, weighted by their number of objects where it is known, as DAVIS does.
    """
    shared = [name for name in a.per_sequence if name in b.per_sequence]
    _refuse_other_data(a, b, shared)
    scores = main_scores([a, b])
    if not scores:
        raise SettingsError(
            f"the reports of {a.encoder} and {b.encoder} share no score per sequence",
            remedy="evaluate both with the same version of the benchmark",
        )
    candidates = [_difference(score, a, b, shared) for score in scores]
    differences = tuple(difference for difference in candidates if difference)
    return Comparison(
        benchmark=a.benchmark,
        a=_distinct_name(a, b),
        b=_distinct_name(b, a),
        sequences=len(shared),
        differences=differences,
        warnings=(
            *_different_clips(a, b, shared),
            *_different_joints(a, b),
            *_different_means(a, b, differences),
            *_different_settings(a, b),
        ),
    )


def _distinct_name(one: Report, other: Report) -> str:
    """Return the encoder's name, with its checksum where both files have the same name, as those of runs do."""
    same = one.encoder == other.encoder and one.weights_sha256 != other.weights_sha256
    return f"{one.encoder} ({one.weights_sha256[:8]})" if same else one.encoder


def comparison_text(comparison: Comparison) -> str:
    """Describe a comparison in words, for a terminal."""
    lines = [
        f"{comparison.benchmark}: A is {comparison.a}, B is {comparison.b}",
        *(f"  {_sentence(difference)}" for difference in comparison.differences),
        "  In brackets: 95 % confidence interval of a paired bootstrap over sequences.",
        *(f"  Note: {warning}." for warning in comparison.warnings),
    ]
    return "\n".join(lines)


def _sentence(one: Difference) -> str:
    name = score_name(one.score)
    a, b, by, low, high = (in_print(one.score, value) for value in (one.a, one.b, one.difference, one.low, one.high))
    count = f"{one.sequences} sequence{'' if one.sequences == 1 else 's'}"
    tally = f"on {count} (better on {one.better}, worse on {one.worse})"
    measured = f"{name} {a:.1f} -> {b:.1f}:"
    if one.verdict in ("unclear", "too few"):
        verdict = "no difference that this data can show" if one.verdict == "unclear" else "too few sequences to tell"
        return f"{measured} {verdict}: {by:+.1f} [{low:+.1f}, {high:+.1f}] {tally}"
    # The interval has the sign of the sentence: "worse by 3.1 [1.0, 5.2]".
    near, far = sorted((abs(low), abs(high)))
    unit = "(lower is better)" if lower_is_better(one.score) else "points"
    return f"{measured} B is {one.verdict} by {abs(by):.1f} {name} {unit} [{near:.1f}, {far:.1f}] {tally}"


def _difference(score: str, a: Report, b: Report, clips: Sequence[str]) -> Difference | None:
    pairs = [(a.per_sequence[clip], b.per_sequence[clip]) for clip in clips]
    # A clip on which nothing could be scored has no number to compare.
    pairs = [(x, y) for x, y in pairs if is_number(x.get(score)) and is_number(y.get(score))]
    if not pairs:
        return None
    scores_a, scores_b = (np.array([pair[side][score] for pair in pairs], dtype=np.float64) for side in (0, 1))
    has_objects = all(is_number(x.get("objects")) for x, _ in pairs)
    weights = np.array([x["objects"] if has_objects else 1 for x, _ in pairs], dtype=np.float64)
    interval = paired_bootstrap(scores_b, scores_a, weights=weights)
    gain = (scores_a - scores_b) if lower_is_better(score) else (scores_b - scores_a)
    return Difference(
        score=score,
        a=float(np.average(scores_a, weights=weights)),
        b=float(np.average(scores_b, weights=weights)),
        difference=interval.difference,
        low=interval.low,
        high=interval.high,
        better=int((gain > 0).sum()),
        worse=int((gain < 0).sum()),
        sequences=len(pairs),
    )


def _refuse_other_data(a: Report, b: Report, shared: Sequence[str]) -> None:
    if a.benchmark != b.benchmark:
        raise SettingsError(
            f"{a.encoder} was evaluated on {a.benchmark} and {b.encoder} on {b.benchmark}",
            remedy="compare reports of one benchmark",
        )
    if not shared:
        raise SettingsError(
            f"the reports of {a.encoder} and {b.encoder} have no sequence in common",
            remedy="evaluate both on the same sequences",
        )
    # With different sequences the checksums always differ; then each shared clip must at least have the same length.
    same_clips = a.per_sequence.keys() == b.per_sequence.keys()
    names = [name for name in {**a.data, **b.data} if same_clips or name not in _EXTENT]
    for name in names:
        if a.data.get(name) != b.data.get(name):
            raise SettingsError(
                f"the data differ: {name} is {a.data.get(name)} for {a.encoder} and {b.data.get(name)} for {b.encoder}",
                remedy="evaluate both on the same copy of the benchmark",
            )
    for clip in shared:
        lengths_a, lengths_b = (_lengths(report.per_sequence[clip]) for report in (a, b))
        different = [name for name in lengths_a if name in lengths_b and lengths_a[name] != lengths_b[name]]
        if different:
            what = "objects" if different[0] == "objects" else "frames"
            raise SettingsError(
                f"the data differ: {clip} has another number of {what} for {a.encoder} than for {b.encoder}",
                remedy="evaluate both on the same copy of the benchmark",
            )


def _lengths(clip: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of frames and objects of a clip, and the lengths of its lists of scores."""
    counts = {name: clip[name] for name in ("frames", "objects") if isinstance(clip.get(name), int)}
    return counts | {name: len(value) for name, value in clip.items() if isinstance(value, list)}


def _different_clips(a: Report, b: Report, shared: Sequence[str]) -> list[str]:
    counts = len(a.per_sequence), len(b.per_sequence)
    if counts == (len(shared), len(shared)):
        return []
    return [
        f"A has {counts[0]} sequences and B {counts[1]}; compared on the {len(shared)} of both, "
        "which have no checksums of their own"
    ]


def _different_joints(a: Report, b: Report) -> list[str]:
    """Warn where one method hides more joints: hidden joints are not scored, so the two scores cover other joints."""
    counted_a, counted_b = (report.scores.get(COUNTED) for report in (a, b))
    if counted_a is None or counted_b is None or abs(counted_a - counted_b) <= _MAX_COUNTED_DIFFERENCE:
        return []
    return [
        f"{100 * counted_a:.1f} % of the joints are counted for A and {100 * counted_b:.1f} % for B: "
        "compare the scores called hidden_wrong"
    ]


def _different_means(a: Report, b: Report, differences: Sequence[Difference]) -> list[str]:
    """Warn of scores that the benchmark does not average over sequences, such as PCK, which it pools over joints."""
    if a.per_sequence.keys() != b.per_sequence.keys():
        return []
    pooled = [
        score_name(one.score)
        for one in differences
        if any(abs(mean - report.scores[one.score]) > 1e-4 for mean, report in ((one.a, a), (one.b, b)))
    ]
    if not pooled:
        return []
    return [f"here sequences weigh the same, so {', '.join(pooled)} may differ from the benchmark's own average"]


def _different_settings(a: Report, b: Report) -> list[str]:
    if not a.config or not b.config:
        unknown = " and ".join(name for name, report in (("A", a), ("B", b)) if not report.config)
        return [f"the settings of {unknown} are not known"]
    different = [name for name in {**a.config, **b.config} if a.config.get(name) != b.config.get(name)]
    values = "; ".join(f"{name} {a.config.get(name)} and {b.config.get(name)}" for name in different)
    return [f"the settings differ too: {values}"] if different else []


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
