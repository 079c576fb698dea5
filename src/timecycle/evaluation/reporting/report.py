"""report.json: the scores of an evaluation, with everything that is needed to check or reproduce them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from timecycle.errors import SettingsError
from timecycle.evaluation.benchmark import Scores
from timecycle.files import write_text
from timecycle.runs.provenance import commit

REPORT = "report.json"  # in the folder of an evaluation


@dataclass(frozen=True, kw_only=True)
class Report:
    """Scores with data, method, settings, commit and machine. Scores are fractions unless named otherwise."""

    benchmark: str
    encoder: str
    scores: Mapping[str, float]
    per_sequence: Mapping[str, Mapping[str, Any]]
    commit: str  # of the code that predicted
    scored_commit: str
    config: Mapping[str, Any]
    weights_sha256: str
    description: str
    data: Mapping[str, Any]
    machine: Mapping[str, Any]
    seconds: float  # spent predicting, over all clips
    frames_predicted: int  # in that time
    timecycle: str

    def __repr__(self) -> str:
        count = len(self.per_sequence)
        scores = ", ".join(f"{name} {score:.4f}" for name, score in self.scores.items())
        return f"Report({self.encoder} on {self.benchmark}, {count} sequence{'' if count == 1 else 's'}: {scores})"


def make_report(record: Mapping[str, Any], scores: Scores) -> Report:
    """Make a report from the record of stored predictions and their scores."""
    settings, clips = record["settings"], record["clips"]
    return Report(
        benchmark=settings["benchmark"]["name"],
        encoder=settings["encoder"],
        scores=scores.overall,
        per_sequence=scores.per_sequence,
        # Predictions may have been resumed after the program changed: then every commit is named.
        commit=", ".join(dict.fromkeys(clip["commit"] for clip in clips.values())),
        scored_commit=commit(),
        config=settings["config"],
        weights_sha256=settings["weights_sha256"],
        description=settings["description"],
        data=settings["benchmark"],
        machine=record["machine"],
        seconds=round(sum(clip["seconds"] for clip in clips.values()), 1),
        frames_predicted=sum(clip["frames"] for clip in clips.values()),
        timecycle=record["timecycle"],
    )


def write_report(path: Path, report: Report) -> None:
    write_text(path, json.dumps(asdict(report), indent=1, allow_nan=False) + "\n")


def read_report(path: Path) -> Report:
    """Read a report from its file, or from the folder of an evaluation."""
    path = path / REPORT if path.is_dir() else path
    try:
        return Report(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise SettingsError(
            f"{path} is not a report: {error}", remedy="give a report.json, or the folder `timecycle evaluate` wrote"
        ) from error
