"""Two reports of the same data, clip by clip: which is better, by how much, and whether this data can tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from timecycle.errors import SettingsError
from timecycle.evaluation.metrics.bootstrap import paired_bootstrap
from timecycle.evaluation.report import Report
from timecycle.evaluation.scores import COUNTED, in_print, is_number, lower_is_better, main_scores, score_name

_FEWEST = 5  # of fewer sequences, resampling says little about others
_COUNTED_APART = 0.02  # of all joints: methods that leave that many more out are not scored on the same ones
_EXTENT = ("sequences", "frames", "sha256")  # of the data, which a part of the sequences changes too


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
        """What the data says of b."""
        if self.sequences < _FEWEST:
            return "too few"
        if self.low <= 0 <= self.high:
            return "unclear"
        return "better" if (self.difference > 0) != lower_is_better(self.score) else "worse"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How b differs from a."""

    benchmark: str
    a: str
    b: str
    sequences: int
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]  # what else differs, so that the method alone does not explain the difference


def compare(a: Report, b: Report) -> Comparison:
    """The main scores of both reports, paired over the clips both have.

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
    found = [_difference(score, a, b, shared) for score in scores]
    differences = tuple(difference for difference in found if difference)
    return Comparison(
        benchmark=a.benchmark,
        a=_called(a, b),
        b=_called(b, a),
        sequences=len(shared),
        differences=differences,
        warnings=(
            *_other_clips(a, b, shared),
            *_other_joints(a, b),
            *_other_means(a, b, differences),
            *_other_settings(a, b),
        ),
    )


def _called(one: Report, other: Report) -> str:
    """The encoder's name, with its checksum where both files are called the same, as every run's are."""
    same = one.encoder == other.encoder and one.weights_sha256 != other.weights_sha256
    return f"{one.encoder} ({one.weights_sha256[:8]})" if same else one.encoder


def text(comparison: Comparison) -> str:
    """A comparison in words, for a terminal."""
    lines = [
        f"{comparison.benchmark}: A is {comparison.a}, B is {comparison.b}",
        *(f"  {_sentence(difference)}" for difference in comparison.differences),
        "  In brackets: 95 % interval of a paired bootstrap over sequences.",
        *(f"  Note: {warning}." for warning in comparison.warnings),
    ]
    return "\n".join(lines)


def _sentence(found: Difference) -> str:
    name = score_name(found.score)
    a, b, by, low, high = (
        in_print(found.score, value) for value in (found.a, found.b, found.difference, found.low, found.high)
    )
    count = f"{found.sequences} sequence{'' if found.sequences == 1 else 's'}"
    tally = f"on {count} (better on {found.better}, worse on {found.worse})"
    measured = f"{name} {a:.1f} -> {b:.1f}:"
    if found.verdict in ("unclear", "too few"):
        said = "no difference that this data can show" if found.verdict == "unclear" else "too few sequences to tell"
        return f"{measured} {said}: {by:+.1f} [{low:+.1f}, {high:+.1f}] {tally}"
    # An interval is told in the direction of the sentence: "worse by 3.1 [1.0, 5.2]".
    near, far = sorted((abs(low), abs(high)))
    unit = "(lower is better)" if lower_is_better(found.score) else "points"
    return f"{measured} B is {found.verdict} by {abs(by):.1f} {name} {unit} [{near:.1f}, {far:.1f}] {tally}"


def _difference(score: str, a: Report, b: Report, clips: Sequence[str]) -> Difference | None:
    pairs = [(a.per_sequence[clip], b.per_sequence[clip]) for clip in clips]
    # A clip on which nothing could be scored has no number to compare.
    pairs = [(x, y) for x, y in pairs if is_number(x.get(score)) and is_number(y.get(score))]
    if not pairs:
        return None
    of_a, of_b = (np.array([pair[side][score] for pair in pairs], dtype=np.float64) for side in (0, 1))
    counted = all(is_number(x.get("objects")) for x, _ in pairs)
    weights = np.array([x["objects"] if counted else 1 for x, _ in pairs], dtype=np.float64)
    interval = paired_bootstrap(of_b, of_a, weights=weights)
    gain = (of_a - of_b) if lower_is_better(score) else (of_b - of_a)
    return Difference(
        score=score,
        a=float(np.average(of_a, weights=weights)),
        b=float(np.average(of_b, weights=weights)),
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
    # With other sequences the checksum of the whole differs anyway; then each shared clip must at least be as long.
    same_clips = a.per_sequence.keys() == b.per_sequence.keys()
    names = [name for name in {**a.data, **b.data} if same_clips or name not in _EXTENT]
    for name in names:
        if a.data.get(name) != b.data.get(name):
            raise SettingsError(
                f"the data differ: {name} is {a.data.get(name)} for {a.encoder} and {b.data.get(name)} for {b.encoder}",
                remedy="evaluate both on the same copy of the benchmark",
            )
    for clip in shared:
        of_a, of_b = (_lengths(report.per_sequence[clip]) for report in (a, b))
        different = [name for name in of_a if name in of_b and of_a[name] != of_b[name]]
        if different:
            what = "objects" if different[0] == "objects" else "frames"
            raise SettingsError(
                f"the data differ: {clip} has another number of {what} for {a.encoder} than for {b.encoder}",
                remedy="evaluate both on the same copy of the benchmark",
            )


def _lengths(clip: Mapping[str, Any]) -> dict[str, int]:
    """What a clip has a number of: frames and objects as they are said, and the scores of each list."""
    said = {name: clip[name] for name in ("frames", "objects") if isinstance(clip.get(name), int)}
    return said | {name: len(value) for name, value in clip.items() if isinstance(value, list)}


def _other_clips(a: Report, b: Report, shared: Sequence[str]) -> list[str]:
    counts = len(a.per_sequence), len(b.per_sequence)
    if counts == (len(shared), len(shared)):
        return []
    return [
        f"A has {counts[0]} sequences and B {counts[1]}; compared on the {len(shared)} of both, "
        "whose checksums are not known one by one"
    ]


def _other_joints(a: Report, b: Report) -> list[str]:
    """Joints that one method hides are not scored, so its number is not of the same joints as the other's."""
    of_a, of_b = (report.scores.get(COUNTED) for report in (a, b))
    if of_a is None or of_b is None or abs(of_a - of_b) <= _COUNTED_APART:
        return []
    return [
        f"{100 * of_a:.1f} % of the joints are counted for A and {100 * of_b:.1f} % for B: "
        "compare the scores called hidden_wrong"
    ]


def _other_means(a: Report, b: Report, differences: Sequence[Difference]) -> list[str]:
    """Scores that a benchmark pools otherwise than by the mean over sequences, as PCK over joints."""
    if a.per_sequence.keys() != b.per_sequence.keys():
        return []
    pooled = [
        score_name(found.score)
        for found in differences
        if any(abs(mean - report.scores[found.score]) > 1e-4 for mean, report in ((found.a, a), (found.b, b)))
    ]
    if not pooled:
        return []
    return [f"here sequences weigh alike, so {', '.join(pooled)} may differ from the benchmark's own average"]


def _other_settings(a: Report, b: Report) -> list[str]:
    if not a.config or not b.config:
        unknown = " and ".join(name for name, report in (("A", a), ("B", b)) if not report.config)
        return [f"the settings of {unknown} are not known"]
    different = [name for name in {**a.config, **b.config} if a.config.get(name) != b.config.get(name)]
    values = "; ".join(f"{name} {a.config.get(name)} and {b.config.get(name)}" for name in different)
    return [f"the settings differ too: {values}"] if different else []
