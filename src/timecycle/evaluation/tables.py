"""Markdown tables from reports: scores in percent, runs that differ in their seed alone as one row."""

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from timecycle.errors import SettingsError
from timecycle.evaluation.published import PublishedRow
from timecycle.evaluation.report import Report
from timecycle.evaluation.scores import in_print, lower_is_better, score_name

_METHODS = {
    "timecycle-v1": "timecycle-v1, ours, no labels",
    "identity": "identity (copy frame 1)",
    "rgb": "RGB, mean of 8x8 px",
    "sift": "dense SIFT",
    "dis-flow": "DIS optical flow, chained",
    "efficientnet-lite0-s8": "EfficientNet-Lite0, stride 8, supervised ImageNet",
    "efficientnet-lite0-s16": "EfficientNet-Lite0, stride 16, supervised ImageNet",
    "vgg16": "VGG-16 relu4_3, supervised ImageNet",
}
_SHORT = {
    "timecycle-v1": "timecycle-v1 (ours)",
    "identity": "identity",
    "rgb": "RGB",
    "dis-flow": "DIS flow",
    "efficientnet-lite0-s8": "EfficientNet-Lite0 s8",
    "efficientnet-lite0-s16": "EfficientNet-Lite0 s16",
    "vgg16": "VGG-16",
}
_UNKNOWN = "-"


def method_name(encoder: str, *, seeds: int = 1, short: bool = False) -> str:
    """What a reader calls a method; `short` where there is little room."""
    base, _, seed = encoder.partition("@")
    if base.startswith("random-"):
        name = f"random {_architecture(base.removeprefix('random-'))}"
        return f"{name} ({seeds} seeds)" if seeds > 1 else f"{name}, seed {seed}" if seed else name
    return (_SHORT.get(encoder) if short else None) or _METHODS.get(encoder, encoder)


@dataclass(frozen=True)
class Row:
    """The reports that stand in one row: one, or several that differ in their seed alone."""

    reports: tuple[Report, ...]
    note: str = ""  # what tells it from another row of the same method

    @property
    def first(self) -> Report:
        return self.reports[0]

    def name(self, *, short: bool = False) -> str:
        name = method_name(self.first.encoder, seeds=len(self.reports), short=short)
        return f"{name} ({self.note})" if self.note else name

    def mean(self, score: str) -> float:
        return statistics.fmean(report.scores[score] for report in self.reports)


def merge_seeds(reports: Iterable[Report]) -> list[Row]:
    """One row per method, weights, form and settings; random weights of several seeds are one method."""
    groups: dict[tuple[str, ...], list[Report]] = {}
    for report in reports:
        groups.setdefault(_identity(report), []).append(report)
    for group in groups.values():
        encoders = [report.encoder for report in group]
        twice = [name for name in encoders if encoders.count(name) > 1]
        if twice:
            raise SettingsError(
                f"there are {len(twice)} reports of {twice[0]} with the same settings on {group[0].benchmark}",
                remedy="keep one of them",
            )
    rows = [Row(tuple(sorted(group, key=lambda report: report.encoder))) for group in groups.values()]
    return [Row(row.reports, _note(row, rows)) for row in rows]


@dataclass(frozen=True)
class Column:
    """A heading and what stands under it."""

    heading: str
    cell: Callable[[Row], str]
    number: bool = True  # set flush right


METHOD = Column("method", lambda row: row.name(), number=False)


def score_column(score: str) -> Column:
    """A score: with several seeds their mean and sample standard deviation."""
    return Column(score_name(score), lambda row: _score_cell(row, score))


def setting_column(setting: str, heading: str) -> Column:
    """A setting of the propagation; `anywhere` for a window that does not exist."""
    return Column(heading, lambda row: _plain(row.first.config.get(setting, _UNKNOWN)))


def _seconds_cell(row: Row) -> str:
    if not row.first.config:  # predicted elsewhere: the time is that of scoring
        return _UNKNOWN
    seconds = statistics.fmean(report.seconds / max(report.frames_predicted, 1) for report in row.reports)
    return f"{seconds:.2f}" if seconds >= 0.01 else "< 0.01"


def _used(row: Row, setting: str, cell: Callable[[Any], str]) -> str:
    """A setting, where the method reads it: copying reads none, flow only the image's size."""
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


SECONDS_PER_FRAME = Column("s / frame", _seconds_cell)
IMAGE_SIZE = Column("image px", lambda row: _used(row, "image_size_px", lambda c: _plain(c["image_size_px"])))
REFERENCES = Column("references", lambda row: _used(row, "past_frames", lambda c: f"{c['past_frames']} + 1"))
WINDOW = Column("window px", lambda row: _used(row, "window_px", _window_cell))


def davis_table(reports: Sequence[Report]) -> str:
    """The scores of DAVIS, best first, with what they cost and how they were made."""
    scores = [score_column(name) for name in ("JF", "J", "F", "J_recall", "J_decay")]
    columns = [METHOD, *scores, SECONDS_PER_FRAME, IMAGE_SIZE, REFERENCES, WINDOW]
    return score_table(reports, columns, order_by="JF")


def score_table(reports: Sequence[Report], columns: Sequence[Column], *, order_by: str | None = None) -> str:
    """One row per method and settings, best first by a score; without one in the order given."""
    _refuse_mixing(reports)
    rows = merge_seeds(reports)
    if order_by is not None:
        rows.sort(key=lambda row: row.mean(order_by), reverse=not lower_is_better(order_by))
    return markdown(columns, rows)


def published_table(rows: Sequence[PublishedRow], *, order_by: str | None = None) -> str:
    """Published rows of one protocol, as published; those that were not seen at their source are left out."""
    seen = [row for row in rows if row.checked]
    if len({row.protocol for row in seen}) != 1:
        given = sorted({row.protocol for row in seen}) or ["none"]
        raise SettingsError(
            f"a table of published results was asked for {len(given)} protocols: {', '.join(given)}",
            remedy="give the rows of one protocol: numbers of two cannot be compared",
        )
    names = list(dict.fromkeys(name for row in seen for name in row.scores))
    if {"J", "F"} <= set(names):
        names = ["JF", *(name for name in names if name != "JF")]
    if order_by is not None:
        worst = float("inf") if lower_is_better(order_by) else float("-inf")
        seen.sort(key=lambda row: _or(row.score(order_by), worst), reverse=not lower_is_better(order_by))
    body = [
        [
            row.method + (" (supervised)" if row.supervised and "supervised" not in row.method else ""),
            *(_UNKNOWN if (value := row.score(name)) is None else f"{value:.1f}" for name in names),
            row.inference,
            f"[{row.source.cite.partition(':')[0]} {row.source.cite[-4:]}]({row.source.url}), {row.place}",
        ]
        for row in seen
    ]
    heads = ["as published", *map(score_name, names), "inference", "source"]
    return grid(heads, body, right=range(1, len(names) + 1))


def provenance(reports: Sequence[Report]) -> str:
    """A line to stand under a table: the data, the program and the machine its numbers come from."""
    data = reports[0].data
    # A commit is shortened; what is said about it, such as that files had changed, is kept.
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


def markdown(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """Rows under headings, as a Markdown table."""
    body = [[column.cell(row) for column in columns] for row in rows]
    right = [place for place, column in enumerate(columns) if column.number]
    return grid([column.heading for column in columns], body, right=right)


def grid(heads: Sequence[str], body: Sequence[Sequence[str]], *, right: Iterable[int]) -> str:
    """Cells under headings, as a Markdown table; the columns in `right` are set flush right."""
    flush = set(right)
    rule = ["---:" if place in flush else "---" for place in range(len(heads))]
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
                    f"{reports[0].encoder} and {report.encoder} were evaluated on another {name}: {was} and {now}",
                    remedy="put reports of the same sequences into one table",
                )


def _identity(report: Report) -> tuple[str, ...]:
    """What must be the same for two reports to differ in their seed alone: method, weights, form, data, settings."""
    method = _method(report)
    weights = "" if method.startswith("random-") else report.weights_sha256  # other seeds are other weights
    settings = (f"{name}={report.config[name]}" for name in sorted(report.config))
    return method, weights, report.form, report.benchmark, str(report.data.get("sha256")), *settings


def _method(report: Report) -> str:
    """The encoder, without its seed."""
    return report.encoder.partition("@")[0] if report.encoder.startswith("random-") else report.encoder


def _note(row: Row, rows: Sequence[Row]) -> str:
    """The form or the weights, where rows of one name differ in them: no column shows these."""
    alike = [other.first for other in rows if _method(other.first) == _method(row.first)]
    if len({report.form for report in alike}) > 1:
        return row.first.form
    if len({_identity(report)[1] for report in alike}) > 1:
        return f"weights {row.first.weights_sha256[:7]}"
    return ""


def _architecture(name: str) -> str:
    return re.sub(r"^resnet(\d+)$", r"ResNet-\1", name)


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _or(value: float | None, other: float) -> float:
    return other if value is None else value
