"""What more costs: pixels, references and objects, by benchmarks/speed.py; videos, shards and workers, by corpus.py."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from timecycle.evaluation.figure import COLOURS, Drawing, new_figure, pixels, plain_axes, words

# Of each panel: the curve, its title, and what is counted along it.
_PANELS = (
    ("pixels", "image size", "pixels, in units of 854x480"),
    ("references", "frames that vote", "references"),
    ("objects", "objects", "objects"),
)


def draw_growth(record: Mapping[str, Any]) -> Drawing:
    """Three panels: measured points, and the line through nothing and the last of them."""
    figure = new_figure(1080, 320)
    for axes, (name, title, along) in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
        points = record["measured"]["curves"][name]
        _measured(axes, points)
        _name(axes, title, along, "time / bare encoder at 480p")
    return pixels(figure)


def draw_corpus(records: Mapping[str, Mapping[str, Any]]) -> Drawing:
    """Three panels: packing by videos, asking for a sample by shards, bulk by workers."""
    packed, index, bulk = (records[name]["measured"] for name in ("pack", "index", "bulk"))
    figure = new_figure(1080, 320)
    videos, shards, workers = figure.subplots(1, 3)
    _measured(videos, [(one["videos"], one["seconds"]) for one in packed["growth"]])
    _name(videos, "packing, two processes", "videos", "seconds")
    asked = [(one["shards"], one["milliseconds_per_sample"]) for one in index["growth"]]
    shards.loglog(*zip(*asked, strict=True), color=COLOURS[0], linewidth=1.8, marker="o", markersize=4)
    _name(shards, "which clip comes next", "shards", "milliseconds per clip")
    rates = [(count, bulk["videos"] / bulk["labelling_seconds"][name]) for count, name in ((1, "one"), (2, "two"))]
    _measured(workers, rates, first=True)
    _name(workers, "bulk on Ray, one thread each", "workers", "videos per second")
    workers.set_xticks([0, 1, 2])
    return pixels(figure)


def _measured(axes: Any, points: Sequence[tuple[float, float]], *, first: bool = False) -> None:
    """Points, and the line through nothing and the last of them, or the first."""
    amounts, values = zip(*points, strict=True)
    slope = values[0] / amounts[0] if first else values[-1] / amounts[-1]
    axes.plot([0, amounts[-1]], [0, slope * amounts[-1]], color="0.75", linewidth=1.2, label="proportional")
    axes.plot(amounts, values, color=COLOURS[0], linewidth=1.8, marker="o", markersize=4, label="measured")
    axes.set_xlim(0, amounts[-1] * 1.04)
    axes.set_ylim(0, max(*values, slope * amounts[-1]) * 1.15)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _name(axes: Any, title: str, along: str, up: str) -> None:
    axes.set_title(title, loc="left", **words(8.5))
    axes.set_xlabel(along, **words(8.5))
    axes.set_ylabel(up, **words(8.5))
    plain_axes(axes, grid="both")


def exponent(points: Sequence[Sequence[float]]) -> float:
    """The power of the amount that the time grows with: the slope of the line through the logarithms. 1 is linear."""
    amounts, times = np.log(np.array(points)).T
    return float(np.polyfit(amounts, times, 1)[0])
