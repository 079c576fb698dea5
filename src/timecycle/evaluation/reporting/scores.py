"""Scores and methods by name: which are the main scores of a report, how they are printed, and rows of reports.

Runs that differ in their seed alone are one row of a table or one line of a plot.
"""

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from timecycle.errors import SettingsError
from timecycle.evaluation.reporting.report import Report

WITHOUT_COLOUR = "-without-colour"  # ends the name of an encoder whose descriptor leaves out the mean colour
COUNTED = "counted"  # not a score: the share of joints that a method predicts as visible

_METHODS = {
    "timecycle-v2": "timecycle-v2, ours, no labels",
    "timecycle-v1": "timecycle-v1, ours, no labels, not free",
    "identity": "identity (copy frame 1)",
    "rgb": "RGB, mean of 8x8 px",
    "sift": "dense SIFT",
    "dis-flow": "DIS optical flow, chained",
    "efficientnet-lite0-s8": "EfficientNet-Lite0, stride 8, supervised ImageNet",
    "efficientnet-lite0-s16": "EfficientNet-Lite0, stride 16, supervised ImageNet",
    "vgg16": "VGG-16 relu4_3, supervised ImageNet",
}
_SHORT = {
    "timecycle-v2": "timecycle-v2 (ours)",
    "timecycle-v1": "timecycle-v1 (ours, not free)",
    "identity": "identity",
    "rgb": "RGB",
    "dis-flow": "DIS flow",
    "efficientnet-lite0-s8": "EfficientNet-Lite0 s8",
    "efficientnet-lite0-s16": "EfficientNet-Lite0 s16",
    "vgg16": "VGG-16",
}


def lower_is_better(score: str) -> bool:
    """Tell errors from the other scores, which are shares of correct results."""
    return score.startswith("L1")


def score_name(score: str) -> str:
    """Return a score's name for readers."""
    if score.startswith("L1_"):
        gap, _, how = score.removeprefix("L1_").partition("_")
        return f"L1, {gap} frames{how and ', '}{how.replace('_', ' ')}"
    return "J&F" if score == "JF" else score.replace("_", " ")


def in_print(score: str, value: float) -> float:
    """Convert a score to the unit it is printed in: percent, except for colour errors."""
    return value if lower_is_better(score) else 100 * value


def main_scores(reports: Sequence[Report]) -> list[str]:
    """List the scores that every report has, overall and per sequence; a variant extends the name of another score."""
    names = list(reports[0].scores) if reports else []
    main = [name for name in names if name != COUNTED and not any(name.startswith(f"{other}_") for other in names)]
    return [name for name in main if all(_scored(name, report) for report in reports)]


def choose_score(reports: Sequence[Report]) -> str:
    """Choose the score that plots show: J where there is one, otherwise the benchmark's first."""
    scores = main_scores(reports)
    if not scores:
        raise SettingsError(
            "the reports share no score per sequence", remedy="give reports of one benchmark, at least one"
        )
    return "J" if "J" in scores else scores[0]


def is_number(value: Any) -> bool:
    """Tell finite numbers from missing scores: a clip on which nothing could be scored has None or NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _scored(name: str, report: Report) -> bool:
    return is_number(report.scores.get(name)) and any(
        is_number(clip.get(name)) for clip in report.per_sequence.values()
    )


def method_name(encoder: str, *, seeds: int = 1, short: bool = False) -> str:
    """Return a method's name for readers; `short` where there is little room."""
    base, _, seed = encoder.partition("@")
    if base.endswith(WITHOUT_COLOUR):
        whole = f"{base.removesuffix(WITHOUT_COLOUR)}{seed and '@'}{seed}"
        return f"{method_name(whole, seeds=seeds, short=short)}, without colour"
    if base.startswith("random-"):
        name = _random_weights(base.removeprefix("random-"))
        return f"{name} ({seeds} seeds)" if seeds > 1 else f"{name}, seed {seed}" if seed else name
    return (_SHORT.get(encoder) if short else None) or _METHODS.get(encoder, encoder)


@dataclass(frozen=True)
class Row:
    """The reports of one row: one, or several that differ in their seed alone."""

    reports: tuple[Report, ...]
    note: str = ""  # distinguishes it from another row of the same method

    @property
    def first(self) -> Report:
        return self.reports[0]

    def name(self, *, short: bool = False) -> str:
        name = method_name(self.first.encoder, seeds=len(self.reports), short=short)
        return f"{name} ({self.note})" if self.note else name

    def mean(self, score: str) -> float:
        return statistics.fmean(report.scores[score] for report in self.reports)


def merge_seeds(reports: Iterable[Report]) -> list[Row]:
    """Make one row per method, weights, description and settings; random weights of several seeds are one method."""
    groups: dict[tuple[str, ...], list[Report]] = {}
    for report in reports:
        groups.setdefault(_identity(report), []).append(report)
    for group in groups.values():
        encoders = [report.encoder for report in group]
        repeated = [name for name in encoders if encoders.count(name) > 1]
        if repeated:
            raise SettingsError(
                f"there are {len(repeated)} reports of {repeated[0]} with the same settings on {group[0].benchmark}",
                remedy="keep one of them",
            )
    rows = [Row(tuple(sorted(group, key=lambda report: report.encoder))) for group in groups.values()]
    return [Row(row.reports, _note(row, rows)) for row in rows]


def _identity(report: Report) -> tuple[str, ...]:
    """Return everything but the seed: method, weights, description, data and settings."""
    method = _method(report)
    weights = "" if method.startswith("random-") else report.weights_sha256  # every seed has weights of its own
    settings = (f"{name}={report.config[name]}" for name in sorted(report.config))
    return method, weights, report.description, report.benchmark, str(report.data.get("sha256")), *settings


def _method(report: Report) -> str:
    """Return the encoder's name without its seed."""
    return report.encoder.partition("@")[0] if report.encoder.startswith("random-") else report.encoder


def _note(row: Row, rows: Sequence[Row]) -> str:
    """Return the description or the weights where rows of one name differ in them: no column shows these."""
    same_name = [other.first for other in rows if _method(other.first) == _method(row.first)]
    if len({report.description for report in same_name}) > 1:
        return row.first.description
    if len({_identity(report)[1] for report in same_name}) > 1:
        return f"weights {row.first.weights_sha256[:7]}"
    return ""


def _random_weights(form: str) -> str:
    """Name random weights after their architecture, or after the encoder whose form they have."""
    architecture = re.fullmatch(r"resnet(\d+)", form)
    return f"random ResNet-{architecture[1]}" if architecture else f"random weights in the form of {form}"
