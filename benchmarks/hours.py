"""What hours of training bring: J&F of the shipped encoder after every stage of benchmarks/learn.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from timecycle.evaluation.figure import COLOURS, Drawing, label_ends, new_figure, pixels, plain_axes, words


@dataclass(frozen=True)
class Stage:
    """A point of the curve: hours since the beginning, and scores on the eight sequences at 240p."""

    words: str
    steps: int
    hours: float
    scores: Mapping[str, float]


def draw_hours(stages: Sequence[Stage], controls: Mapping[str, float]) -> Drawing:
    """The curve, and the controls' J&F as lines across it."""
    figure = new_figure(860, 420)
    axes = figure.subplots()
    last = stages[-1].hours
    ends = {}
    for place, (name, value) in enumerate(controls.items(), 1):
        colour = COLOURS[place % len(COLOURS)]
        axes.plot([0, 100], [100 * value] * 2, color=colour, linewidth=1.2, linestyle=(0, (5, 2)))
        ends[name] = (100 * value, colour)
    along = [100 * stage.hours / last for stage in stages]
    heights = [100 * stage.scores["JF"] for stage in stages]
    axes.plot(along, heights, color=COLOURS[0], linewidth=2.2, marker="o", markersize=5)
    ends["this encoder"] = (heights[-1], COLOURS[0])
    axes.set_xlim(0, 100)
    marks = range(int(last) + 1)
    axes.set_xticks([100 * hour / last for hour in marks], [str(hour) for hour in marks])
    axes.set_xlabel("hours of training on two cores", **words(9))
    axes.set_ylabel("J&F, eight sequences at 240p", **words(9))
    plain_axes(axes, grid="y")
    low, high = axes.get_ylim()
    label_ends(axes, ends, gap=(high - low) / 18)
    return pixels(figure)
