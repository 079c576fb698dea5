"""What confidence and corrections are worth, drawn from trust_default.json and corrections.json."""

from collections.abc import Mapping, Sequence
from typing import Any

from timecycle.evaluation.figure import COLOURS, Drawing, new_figure, pixels, plain_axes, words


def draw_risk(record: Mapping[str, Any], ways: Sequence[tuple[str, str]]) -> Drawing:
    """The mean error of the surest frames, by how many of them are kept; `ways` are names and their words."""
    figure = new_figure(860, 420)
    axes = figure.subplots()
    curves = record["measured"]["risk_coverage"]
    for place, (name, label) in enumerate(ways):
        shares, errors = zip(*curves[name], strict=True)
        axes.plot(shares, errors, color=COLOURS[place], linewidth=2.2 if place == 0 else 1.4, label=label)
    whole = 1 - record["measured"]["mean_j"]
    axes.axhline(whole, color="0.75", linewidth=1.2, label="no order")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.25 * whole)
    axes.set_xlabel("share of the frames that is kept, the surest first", **words(9))
    axes.set_ylabel("their mean error, 1 - J", **words(9))
    axes.legend(frameon=False, fontsize=8.5, loc="lower right")
    plain_axes(axes, grid="both")
    return pixels(figure)


def draw_corrections(record: Mapping[str, Any]) -> Drawing:
    """J&F by the number of corrected frames, for every way of choosing them."""
    figure = new_figure(760, 400)
    axes = figure.subplots()
    for place, (name, values) in enumerate(record["measured"]["scores"]["JF_by_corrections"].items()):
        heights = [100 * value for value in values]
        axes.plot(heights, color=COLOURS[place], linewidth=2.2 if place == 0 else 1.4, marker="o", ms=4, label=name)
    axes.set_xticks(range(len(heights)))
    axes.set_xlabel("corrected frames", **words(9))
    axes.set_ylabel("J&F, 20 sequences at 240p", **words(9))
    axes.legend(frameon=False, fontsize=8.5, loc="lower right")
    plain_axes(axes, grid="both")
    return pixels(figure)
