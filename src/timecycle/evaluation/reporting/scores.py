"""Scores by name: which are the main scores of a report, and how each is named and printed."""

import math
from collections.abc import Sequence
from typing import Any

from timecycle.errors import SettingsError
from timecycle.evaluation.reporting.report import Report

COUNTED = "counted"  # not a score: the share of joints that a method predicts as visible


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
