"""Scores by name: which of a report's are its main ones, and how each is called and printed."""

import math
from collections.abc import Sequence
from typing import Any

from timecycle.errors import SettingsError
from timecycle.evaluation.report import Report

COUNTED = "counted"  # no score but what scores are of: the share of joints that a method does not hide


def lower_is_better(score: str) -> bool:
    """True for errors; everything else is a share of what is right."""
    return score.startswith("L1")


def score_name(score: str) -> str:
    """A score's name as it is written in print."""
    if score.startswith("L1_"):
        gap, _, how = score.removeprefix("L1_").partition("_")
        return f"L1, {gap} frames{how and ', '}{how.replace('_', ' ')}"
    return "J&F" if score == "JF" else score.replace("_", " ")


def in_print(score: str, value: float) -> float:
    """A score in the unit it is printed in: percent, except for errors in units of colour."""
    return value if lower_is_better(score) else 100 * value


def main_scores(reports: Sequence[Report]) -> list[str]:
    """The scores every report has, overall and per sequence; one whose name continues another's is a side of it."""
    names = list(reports[0].scores) if reports else []
    main = [name for name in names if name != COUNTED and not any(name.startswith(f"{other}_") for other in names)]
    return [name for name in main if all(_scored(name, report) for report in reports)]


def choose_score(reports: Sequence[Report]) -> str:
    """The score pictures show: J where there is one, otherwise the benchmark's first."""
    scores = main_scores(reports)
    if not scores:
        raise SettingsError(
            "the reports share no score per sequence", remedy="give reports of one benchmark, at least one"
        )
    return "J" if "J" in scores else scores[0]


def is_number(value: Any) -> bool:
    """True for a finite number: a clip on which nothing could be scored has none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _scored(name: str, report: Report) -> bool:
    return is_number(report.scores.get(name)) and any(
        is_number(clip.get(name)) for clip in report.per_sequence.values()
    )
