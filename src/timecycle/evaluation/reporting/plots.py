"""Plots of an evaluation: the score of every sequence, scores over time, and the worst sequences."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from timecycle.errors import SettingsError, TimecycleError
from timecycle.evaluation.benchmark import Clip
from timecycle.evaluation.evaluate import FOLDER
from timecycle.evaluation.reporting.figure import (
    COLOURS,
    INK,
    RgbImage,
    label_ends,
    line_style,
    new_figure,
    plain_axes,
    render,
    save_small,
    text_style,
)
from timecycle.evaluation.reporting.report import Report
from timecycle.evaluation.reporting.scores import (
    Row,
    choose_score,
    in_print,
    is_number,
    lower_is_better,
    merge_seeds,
    score_name,
)
from timecycle.evaluation.reporting.worst import draw_worst, predicted_files
from timecycle.files import make_folder

log = logging.getLogger("timecycle")

_MAX_BARS = 60  # of one method; beyond, only the hardest sequences are shown
_MAX_COLUMNS = 4  # more panels side by side would leave no room for their bars
_MAX_BANDS = 3  # more bands would hide each other
_SAMPLES = 101  # of a clip, from its first to its last scored frame


def write_pictures(
    report: Report, folder: Path, *, clips: Sequence[Clip] = (), predictions: Path | None = None
) -> list[Path]:
    """Write bars.png, over_time.png and, where the clips are given and their labels are stored, worst.png.

    A picture without data is skipped. A picture that cannot be drawn, such as a plot without matplotlib, is logged: an
    evaluation that took hours does not fail for a picture. Returns the files written.
    """
    stored = predictions or folder / FOLDER
    pictures: dict[str, Callable[[], RgbImage | None]] = {
        "bars.png": lambda: draw_bars([report]),
        "over_time.png": lambda: draw_over_time([report]) if _per_frame(report, choose_score([report])) else None,
        "worst.png": lambda: draw_worst(report, clips, stored) if _any_stored(clips, stored) else None,
    }
    written: list[Path] = []
    problems: dict[str, None] = {}
    for name, draw in pictures.items():
        try:
            picture = draw()
            if picture is not None:
                save_small(make_folder(folder) / name, picture)
                written.append(folder / name)
        except (TimecycleError, OSError) as error:  # OSError: frames that were removed or damaged since
            problems[str(error)] = None
    if problems:
        log.warning("not all pictures were drawn: %s", "; ".join(problems))
    return written


def draw_bars(reports: Sequence[Report], *, score: str | None = None) -> RgbImage:
    """Draw a bar per sequence, easiest first; several methods side by side, best first."""
    score = score or choose_score(reports)
    rows = _best_first(reports, score)
    scores = [_per_sequence(row, score) for row in rows]
    names = _easiest_first(scores, score)
    hidden = len(names) - _MAX_BARS
    names = names[-_MAX_BARS:]
    grid_rows = -(-len(rows) // _MAX_COLUMNS)
    grid_columns = -(-len(rows) // grid_rows)  # as even as possible: six are two rows of three
    panel_px = 17 * len(names) + 78  # bars with their names; title and axis
    figure = new_figure(820 if len(rows) == 1 else 1000, grid_rows * panel_px)
    figure.get_layout_engine().set(wspace=0.05, hspace=0.04)
    grid = figure.subplots(grid_rows, grid_columns, squeeze=False, sharex=True, sharey=True)
    for index, axes in enumerate(grid.flat):
        if index < len(rows):
            _bar_panel(axes, names, scores[index], numbers=len(rows) == 1)
            mean = in_print(score, rows[index].mean(score))
            axes.axvline(mean, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=3)
            axes.set_title(f"{rows[index].name(short=True)}\n{score_name(score)} {mean:.1f}", **text_style(9.5))
        else:
            axes.set_visible(False)
    top = _top(score, scores)
    grid[0, 0].set_xlim(0, top * (1.09 if len(rows) == 1 else 1.0))
    grid[0, 0].set_ylim(len(names) - 0.4, -0.6)
    selection = f", the hardest {len(names)} of {len(names) + hidden} sequences" if hidden > 0 else ""
    for index in range(max(len(rows) - grid_columns, 0), len(rows)):  # the lowest panel of each column
        grid.flat[index].tick_params(labelbottom=True)
        grid.flat[index].set_xlabel(f"{_unit(score)}{selection}", **text_style(9))
    return render(figure)


def draw_over_time(reports: Sequence[Report], *, score: str | None = None) -> RgbImage:
    """Draw the mean score over sequences from the first to the last scored frame, with the interquartile band."""
    score = score or choose_score(reports)
    rows = _best_first(reports, score)
    curves = [_curves(row, score) for row in rows]
    percent = np.linspace(0, 100, _SAMPLES)
    figure = new_figure(820, 440)
    axes = figure.subplots()
    ends: dict[str, tuple[float, str]] = {}
    for index, (row, values) in enumerate(zip(rows, curves, strict=True)):
        colour, dashes = line_style(index)
        if len(rows) <= _MAX_BANDS:
            low, high = np.quantile(values, [0.25, 0.75], axis=0)
            axes.fill_between(percent, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(percent, values.mean(axis=0), color=colour, linestyle=dashes, linewidth=2)
        ends[row.name(short=True)] = float(values[:, -1].mean()), colour
    top = _top(score, [{"": float(values.max())} for values in curves])
    label_ends(axes, ends, gap=top * 0.05)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, top)
    axes.set_xlabel("time (% of the sequence)", **text_style(9))
    axes.set_ylabel(f"{_unit(score)}, mean of {curves[0].shape[0]} sequences", **text_style(9))
    if len(rows) <= _MAX_BANDS:
        axes.set_title("line: mean over sequences; band: middle half of the sequences", loc="left", **text_style(9))
    plain_axes(axes, grid="both")
    return render(figure)


def _bar_panel(axes: Any, names: Sequence[str], values: Mapping[str, float], *, numbers: bool) -> None:
    bars = [(index, values[name]) for index, name in enumerate(names) if name in values]
    axes.barh([index for index, _ in bars], [value for _, value in bars], height=0.72, color=COLOURS[0], zorder=2)
    axes.set_yticks(range(len(names)), names)
    if numbers:
        gap = max(value for _, value in bars) * 0.012
        for index, value in bars:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}  # so that no line crosses a number
            axes.text(value + gap, index, f"{value:.1f}", va="center", zorder=4, bbox=box, **text_style(8))
    plain_axes(axes, grid="x")
    axes.tick_params(axis="y", labelsize=8.5, length=0)


def _per_sequence(row: Row, score: str) -> dict[str, float]:
    """Return each sequence's score as printed, averaged over seeds."""
    by_clip: dict[str, list[float]] = {}
    for report in row.reports:
        for name, clip in report.per_sequence.items():
            if is_number(clip.get(score)):
                by_clip.setdefault(name, []).append(in_print(score, clip[score]))
    return {name: float(np.mean(values)) for name, values in by_clip.items()}


def _curves(row: Row, score: str) -> Float64[np.ndarray, "sequences samples"]:
    """Return each sequence's score over its own time, averaged over seeds."""
    by_clip: dict[str, list[np.ndarray]] = {}
    for report in row.reports:
        for name, values in _per_frame(report, score).items():
            by_clip.setdefault(name, []).append(resample(np.array(values, dtype=np.float64)))
    if not by_clip:
        raise SettingsError(
            f"the report of {row.first.encoder} has no {score_name(score)} per frame",
            remedy="draw a benchmark that scores every frame, such as DAVIS",
        )
    return np.array([in_print(score, 1) * np.mean(seeds, axis=0) for seeds in by_clip.values()])


def resample(values: Float64[np.ndarray, " frames"]) -> Float64[np.ndarray, " samples"]:
    """Interpolate a clip's scores linearly at a fixed number of times; unscored frames are skipped."""
    scored = np.flatnonzero(np.isfinite(values))
    times = np.linspace(0, len(values) - 1, _SAMPLES)
    return np.asarray(np.interp(times, scored, values[scored]))


def _per_frame(report: Report, score: str) -> dict[str, list[float]]:
    frames = {name: clip.get(f"{score}_per_frame") for name, clip in report.per_sequence.items()}
    return {name: values for name, values in frames.items() if values and any(map(is_number, values))}


def _best_first(reports: Sequence[Report], score: str) -> list[Row]:
    return sorted(merge_seeds(reports), key=lambda row: row.mean(score), reverse=not lower_is_better(score))


def _easiest_first(scores: Sequence[Mapping[str, float]], score: str) -> list[str]:
    names = dict.fromkeys(name for values in scores for name in values)
    means = {name: np.mean([values[name] for values in scores if name in values]) for name in names}
    return sorted(names, key=lambda name: means[name], reverse=not lower_is_better(score))


def _unit(score: str) -> str:
    return f"{score_name(score)} (lower is better)" if lower_is_better(score) else f"{score_name(score)} (%)"


def _top(score: str, scores: Sequence[Mapping[str, float]]) -> float:
    """Return the end of the axis: 100 %, so that two pictures can be compared, or a little above the largest error."""
    return 1.05 * max(value for values in scores for value in values.values()) if lower_is_better(score) else 100.0


def _any_stored(clips: Sequence[Clip], predictions: Path) -> bool:
    return any(predicted_files(clip, predictions / clip.name) for clip in clips)
