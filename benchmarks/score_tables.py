"""Markdown tables of reports and of published results, with scores in percent."""

import dataclasses
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from published import PublishedRow
from timecycle.config import propagate_config
from timecycle.errors import SettingsError
from timecycle.evaluation.reporting.report import Report
from timecycle.evaluation.reporting.scores import Row, in_print, lower_is_better, merge_seeds, score_name

_UNKNOWN = "-"


@dataclass(frozen=True)
class Column:
    heading: str
    cell: Callable[[Row], str]
    is_number: bool = True  # aligned right


METHOD = Column("method", lambda row: row.name(), is_number=False)


def score_column(score: str) -> Column:
    """Make the column of a score; several seeds give their mean and sample standard deviation."""
    return Column(score_name(score), lambda row: _score_cell(row, score))


def setting_column(setting: str, heading: str) -> Column:
    """Make the column of a propagation setting; `anywhere` stands for no window."""
    return Column(heading, lambda row: _plain(row.first.config.get(setting, _UNKNOWN)))


def _seconds_cell(row: Row) -> str:
    if not row.first.config:  # predicted by another program: the time is that of scoring
        return _UNKNOWN
    seconds = statistics.fmean(report.seconds / max(report.frames_predicted, 1) for report in row.reports)
    return f"{seconds:.2f}" if seconds >= 0.01 else "< 0.01"


def _used(row: Row, setting: str, cell: Callable[[Any], str]) -> str:
    """Show a setting if the method reads it: copying reads none, optical flow only the image size."""
    report = row.first
    ignored = report.encoder == "identity" or (report.encoder == "dis-flow" and setting != "image_size_px")
    return _UNKNOWN if ignored or setting not in report.config else cell(report.config)


def _window_cell(config: Any) -> str:
    near, far = _plain(config["window_px"]), _plain(config.get("anchor_window_px", config["window_px"]))
    return near if near == far else f"{near}, first frame {far}"


def _plain(value: Any) -> str:
    if value is None:
        return "anywhere"
    return f"{value:g}" if isinstance(value, float) else str(value)


def inference_name(config: Mapping[str, Any]) -> str:
    """Return the preset of a report's settings; of similar ones, the nearest apart from sizes, and what differs.

    Settings that a report does not know did not exist when it was written: they are those of `plain`.
    """
    given = dataclasses.asdict(propagate_config("plain")) | dict(config)
    presets = {name: dataclasses.asdict(propagate_config(name)) for name in _INFERENCES}
    if given in presets.values():
        return next(name for name, settings in presets.items() if settings == given)
    differences = {
        name: [
            f"{setting}={_plain(value)}"
            for setting, value in given.items()
            if setting not in _SIZES and value != settings[setting]
        ]
        for name, settings in presets.items()
    }
    nearest = min(differences, key=lambda name: len(differences[name]))
    return ", ".join([nearest, *differences[nearest]])


_INFERENCES = ("plain", "default", "fast", "best")
_SIZES = ("image_size_px", "enlarge", "window_px", "anchor_window_px")  # they have columns of their own


SECONDS_PER_FRAME = Column("s / frame", _seconds_cell)
IMAGE_SIZE = Column("image px", lambda row: _used(row, "image_size_px", lambda c: _plain(c["image_size_px"])))
INFERENCE = Column("inference", lambda row: _used(row, "past_frames", inference_name), is_number=False)
WINDOW = Column("window px", lambda row: _used(row, "window_px", _window_cell))


def davis_table(reports: Sequence[Report]) -> str:
    """Make a table of DAVIS scores, best first, with cost and settings."""
    scores = [score_column(name) for name in ("JF", "J", "F", "J_recall", "J_decay")]
    columns = [METHOD, *scores, SECONDS_PER_FRAME, INFERENCE, IMAGE_SIZE, WINDOW]
    return score_table(reports, columns, order_by="JF")


def score_table(reports: Sequence[Report], columns: Sequence[Column], *, order_by: str | None = None) -> str:
    """Make a table with one row per method and settings, best first by a score, or in the order given."""
    _refuse_mixing(reports)
    rows = merge_seeds(reports)
    if order_by is not None:
        rows.sort(key=lambda row: row.mean(order_by), reverse=not lower_is_better(order_by))
    body = [[column.cell(row) for column in columns] for row in rows]
    numbers = [index for index, column in enumerate(columns) if column.is_number]
    return markdown([column.heading for column in columns], body, right=numbers)


def published_table(rows: Sequence[PublishedRow], *, order_by: str | None = None) -> str:
    """Make a table of one protocol's published rows; rows that were not checked at their source are left out."""
    checked = [row for row in rows if row.checked]
    if len({row.protocol for row in checked}) != 1:
        given = sorted({row.protocol for row in checked}) or ["none"]
        raise SettingsError(
            f"a table of published results was asked for {len(given)} protocols: {', '.join(given)}",
            remedy="give the rows of one protocol: numbers of two cannot be compared",
        )
    names = list(dict.fromkeys(name for row in checked for name in row.scores))
    if {"J", "F"} <= set(names):
        names = ["JF", *(name for name in names if name != "JF")]
    if order_by is not None:
        worst = float("inf") if lower_is_better(order_by) else float("-inf")
        checked.sort(key=lambda row: _or(row.score(order_by), worst), reverse=not lower_is_better(order_by))
    body = [
        [
            row.method + (" (supervised)" if row.supervised and "supervised" not in row.method else ""),
            *(_UNKNOWN if (value := row.score(name)) is None else f"{value:.1f}" for name in names),
            row.inference,
            f"[{row.source.cite.partition(':')[0]} {row.source.cite[-4:]}]({row.source.url}), {row.place}",
        ]
        for row in checked
    ]
    heads = ["as published", *map(score_name, names), "inference", "source"]
    return markdown(heads, body, right=range(1, len(names) + 1))


def provenance(reports: Sequence[Report]) -> str:
    """Name the data, the code and the machine of a table's numbers in one line."""
    data = reports[0].data
    # A commit is shortened; a remark such as "with changes" is kept.
    commits = dict.fromkeys(
        re.sub(r"^([0-9a-f]{7})[0-9a-f]+", r"\1", part) for report in reports for part in report.commit.split(", ")
    )
    machines = dict.fromkeys(
        f"{report.machine.get('processor', 'unknown processor')}, {_count(report.machine.get('threads', 1), 'thread')}"
        for report in reports
    )
    return (
        f"{_count(data['sequences'], 'sequence')}, {_count(data['frames'], 'frame')}; "
        f"commit {', '.join(commits)}; {'; '.join(machines)}."
    )


def markdown(heads: Sequence[str], body: Sequence[Sequence[str]], *, right: Iterable[int]) -> str:
    """Format cells under headings as a Markdown table; the columns in `right` are aligned right."""
    aligned_right = set(right)
    rule = ["---:" if index in aligned_right else "---" for index in range(len(heads))]
    lines = [heads, rule, *([cell.replace("|", "\\|") for cell in cells] for cells in body)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _score_cell(row: Row, score: str) -> str:
    values = [in_print(score, report.scores[score]) for report in row.reports if score in report.scores]
    if len(values) < len(row.reports):
        return _UNKNOWN
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread}"


def _refuse_mixing(reports: Sequence[Report]) -> None:
    if not reports:
        raise SettingsError("a table was asked for without reports", remedy="give at least one report")
    for report in reports[1:]:
        for name, was, now in (
            ("benchmark", reports[0].benchmark, report.benchmark),
            ("data", reports[0].data.get("sha256"), report.data.get("sha256")),
        ):
            if was != now:
                raise SettingsError(
                    f"{reports[0].encoder} and {report.encoder} were evaluated on different {name}: {was} and {now}",
                    remedy="put reports of the same sequences into one table",
                )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _or(value: float | None, other: float) -> float:
    return other if value is None else value
