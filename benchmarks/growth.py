"""What more pixels, references and objects cost, from the record of benchmarks/speed.py."""

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
        amounts, ratios = [point[0] for point in points], [point[1] for point in points]
        axes.plot([0, amounts[-1]], [0, ratios[-1]], color="0.75", linewidth=1.2, label="proportional")
        axes.plot(amounts, ratios, color=COLOURS[0], linewidth=1.8, marker="o", markersize=4, label="measured")
        axes.set_title(title, loc="left", **words(8.5))
        axes.set_xlim(0, amounts[-1] * 1.04)
        axes.set_ylim(0, max(ratios) * 1.15)
        axes.set_xlabel(along, **words(8.5))
        axes.set_ylabel("time / bare encoder at 480p", **words(8.5))
        axes.legend(frameon=False, fontsize=8, loc="lower right")
        plain_axes(axes, grid="both")
    return pixels(figure)


def exponent(points: Sequence[Sequence[float]]) -> float:
    """The power of the amount that the time grows with: the slope of the line through the logarithms. 1 is linear."""
    amounts, times = np.log(np.array(points)).T
    return float(np.polyfit(amounts, times, 1)[0])
