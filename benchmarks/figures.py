"""Plots of benchmark records for the docs: learning curves, cost, confidence, corrections and training time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timecycle.evaluation.reporting.figure import (
    COLOURS,
    RgbImage,
    label_ends,
    new_figure,
    plain_axes,
    render,
    text_style,
)

Record = Mapping[str, Any]  # the content of a file in benchmarks/results

_MINUTES = 30  # of training, the whole width of a learning curve

# Of each panel: its title, and the run, the figure and the label of each line.
_LEARNING_PANELS: Sequence[tuple[str, Sequence[tuple[str, str, str]]]] = (
    (
        "walks: cross-entropy (5.5: chance)",
        (("walks", "same_frame", "two views of one frame"), ("walks", "walk", "random walks of length 1 to 3")),
    ),
    (
        "cycles: cross-entropy and pose gain",
        (
            ("cycles", "same_frame", "same-frame cycle"),
            ("cycles", "pose_gain", "pose gain (0: always the centre)"),
        ),
    ),
    (
        "held-out clips: share of cells matched correctly",
        (
            ("walks", "held_out_warp_accuracy", "walks, known warp"),
            ("walks", "held_out_cycle_accuracy", "walks, forward-backward"),
            ("cycles", "held_out_warp_accuracy", "cycles, known warp"),
            ("cycles", "held_out_cycle_accuracy", "cycles, forward-backward"),
        ),
    ),
)

# Of each panel: the curve, its title, and the label of its x axis.
_GROWTH_PANELS = (
    ("pixels", "image size", "pixels, in units of 854x480"),
    ("references", "reference frames", "references"),
    ("objects", "objects", "objects"),
)


@dataclass(frozen=True)
class Stage:
    """A training stage: hours since the start of training, and scores on eight sequences at 240p."""

    description: str
    steps: int
    hours: float
    scores: Mapping[str, float]


def draw_learning_curves(records: Mapping[str, Record]) -> RgbImage:
    """Draw losses and held-out figures of both objectives; `records` by the name of the run."""
    figure = new_figure(1080, 330)
    for axes, (title, lines) in zip(figure.subplots(1, len(_LEARNING_PANELS)), _LEARNING_PANELS, strict=True):
        for index, (run, name, label) in enumerate(lines):
            record = records[run]
            points = [point for point in record["measured"]["curve"] if name in point]
            minutes = [_MINUTES * point["step"] / record["settings"]["steps"] for point in points]
            axes.plot(minutes, [point[name] for point in points], color=COLOURS[index], linewidth=1.8, label=label)
        axes.set_title(title, loc="left", **text_style(8.5))
        axes.set_xlim(0, _MINUTES)
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        axes.set_xlabel("minutes on two cores", **text_style(8.5))
        axes.legend(frameon=False, fontsize=8)
        plain_axes(axes, grid="both")
    return render(figure)


def draw_growth(record: Record) -> RgbImage:
    """Draw time over pixels, references and objects, each with the line of proportional growth."""
    figure = new_figure(1080, 320)
    for axes, (name, title, x_label) in zip(figure.subplots(1, len(_GROWTH_PANELS)), _GROWTH_PANELS, strict=True):
        _plot_measured(axes, record["measured"]["curves"][name])
        _label(axes, title, x_label, "time / bare encoder at 480p")
    return render(figure)


def draw_corpus(records: Mapping[str, Record]) -> RgbImage:
    """Draw packing time over videos, the cost of a sample over shards, and bulk throughput over workers."""
    packed, index, bulk = (records[name]["measured"] for name in ("pack", "index", "bulk"))
    figure = new_figure(1080, 320)
    videos, shards, workers = figure.subplots(1, 3)
    _plot_measured(videos, [(one["videos"], one["seconds"]) for one in packed["growth"]])
    _label(videos, "packing, two processes", "videos", "seconds")
    samples = [(one["shards"], one["next_start_microseconds_per_sample"]) for one in index["growth"]]
    _plot_measured(shards, samples)
    _label(shards, "looking up the next clip", "shards", "microseconds per clip")
    rates = [(count, bulk["videos"] / bulk["labelling_seconds"][name]) for count, name in ((1, "one"), (2, "two"))]
    _plot_measured(workers, rates, through_first=True)
    _label(workers, "bulk on Ray, one thread each", "workers", "videos per second")
    workers.set_xticks([0, 1, 2])
    return render(figure)


def draw_hours(encoder: str, stages: Sequence[Stage], controls: Mapping[str, float]) -> RgbImage:
    """Draw J&F over hours of training of an encoder, with the J&F of the controls as horizontal lines."""
    figure = new_figure(860, 420)
    axes = figure.subplots()
    last = stages[-1].hours
    ends = {}
    for index, (name, value) in enumerate(controls.items(), 1):
        colour = COLOURS[index % len(COLOURS)]
        axes.plot([0, 100], [100 * value] * 2, color=colour, linewidth=1.2, linestyle=(0, (5, 2)))
        ends[name] = (100 * value, colour)
    percent = [100 * stage.hours / last for stage in stages]
    scores = [100 * stage.scores["JF"] for stage in stages]
    axes.plot(percent, scores, color=COLOURS[0], linewidth=2.2, marker="o", markersize=5)
    ends[encoder] = (scores[-1], COLOURS[0])
    axes.set_xlim(0, 100)
    hours = range(int(last) + 1)
    axes.set_xticks([100 * hour / last for hour in hours], [str(hour) for hour in hours])
    axes.set_xlabel("hours of training on two cores", **text_style(9))
    axes.set_ylabel("J&F, eight sequences at 240p", **text_style(9))
    plain_axes(axes, grid="y")
    low, high = axes.get_ylim()
    label_ends(axes, ends, gap=(high - low) / 18)
    return render(figure)


def draw_risk_coverage(record: Record, estimates: Sequence[tuple[str, str]]) -> RgbImage:
    """Draw the risk-coverage curves of confidence estimates, given by their names and labels."""
    figure = new_figure(860, 420)
    axes = figure.subplots()
    curves = record["measured"]["risk_coverage"]
    for index, (name, label) in enumerate(estimates):
        coverage, risk = zip(*curves[name], strict=True)
        axes.plot(coverage, risk, color=COLOURS[index], linewidth=2.2 if index == 0 else 1.4, label=label)
    mean_error = 1 - record["measured"]["mean_j"]
    axes.axhline(mean_error, color="0.75", linewidth=1.2, label="random order")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.25 * mean_error)
    axes.set_xlabel("coverage: share of the frames kept, most confident first", **text_style(9))
    axes.set_ylabel("risk: their mean error, 1 - J", **text_style(9))
    axes.legend(frameon=False, fontsize=8.5, loc="lower right")
    plain_axes(axes, grid="both")
    return render(figure)


def draw_corrections(record: Record) -> RgbImage:
    """Draw J&F over the number of corrected frames, for every way of choosing them."""
    figure = new_figure(760, 400)
    axes = figure.subplots()
    for index, (name, values) in enumerate(record["measured"]["scores"]["JF_by_corrections"].items()):
        scores = [100 * value for value in values]
        axes.plot(scores, color=COLOURS[index], linewidth=2.2 if index == 0 else 1.4, marker="o", ms=4, label=name)
    axes.set_xticks(range(len(scores)))
    axes.set_xlabel("corrected frames", **text_style(9))
    axes.set_ylabel("J&F, 20 sequences at 240p", **text_style(9))
    axes.legend(frameon=False, fontsize=8.5, loc="lower right")
    plain_axes(axes, grid="both")
    return render(figure)


def exponent(points: Sequence[Sequence[float]]) -> float:
    """Fit the power of the amount that the time grows with: 1 is linear."""
    amounts, times = np.log(np.array(points)).T
    return float(np.polyfit(amounts, times, 1)[0])


def _plot_measured(axes: Any, points: Sequence[tuple[float, float]], *, through_first: bool = False) -> None:
    """Plot points, and the line of proportional growth through the last of them, or the first."""
    amounts, values = zip(*points, strict=True)
    slope = values[0] / amounts[0] if through_first else values[-1] / amounts[-1]
    axes.plot([0, amounts[-1]], [0, slope * amounts[-1]], color="0.75", linewidth=1.2, label="proportional")
    axes.plot(amounts, values, color=COLOURS[0], linewidth=1.8, marker="o", markersize=4, label="measured")
    axes.set_xlim(0, amounts[-1] * 1.04)
    axes.set_ylim(0, max(*values, slope * amounts[-1]) * 1.15)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _label(axes: Any, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(title, loc="left", **text_style(8.5))
    axes.set_xlabel(x_label, **text_style(8.5))
    axes.set_ylabel(y_label, **text_style(8.5))
    plain_axes(axes, grid="both")
