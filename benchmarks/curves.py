"""What two objectives did while they learned, from the records of benchmarks/learn.py."""

from collections.abc import Mapping, Sequence
from typing import Any

from timecycle.evaluation.figure import COLOURS, Drawing, new_figure, pixels, plain_axes, words

Record = Mapping[str, Any]  # of training_NAME.json

_MINUTES = 30  # the whole width: what both were given

# Of each panel: its title, and of which objective which figures are drawn under which name.
_PANELS: Sequence[tuple[str, Sequence[tuple[str, str, str]]]] = (
    (
        "walks: cross-entropy (5.5: lost)",
        (("walks", "still", "two views of a frame"), ("walks", "walk", "out and back, lengths 1 to 3")),
    ),
    (
        "cycles: cross-entropy and pose gain",
        (
            ("cycles", "still", "a patch in its own frame"),
            ("cycles", "pose_gain", "pose gain (0: guessing the centre)"),
        ),
    ),
    (
        "held-out clips: cells found",
        (
            ("walks", "held_out_warp_accuracy", "walks, known warp"),
            ("walks", "held_out_cycle_accuracy", "walks, there and back"),
            ("cycles", "held_out_warp_accuracy", "cycles, known warp"),
            ("cycles", "held_out_cycle_accuracy", "cycles, there and back"),
        ),
    ),
)


def draw_curves(records: Mapping[str, Record]) -> Drawing:
    """Three panels beside each other; `records` by the name of the run."""
    figure = new_figure(1080, 330)
    for axes, (title, lines) in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
        for place, (run, name, label) in enumerate(lines):
            record = records[run]
            points = [point for point in record["measured"]["curve"] if name in point]
            minutes = [_MINUTES * point["step"] / record["settings"]["steps"] for point in points]
            axes.plot(minutes, [point[name] for point in points], color=COLOURS[place], linewidth=1.8, label=label)
        axes.set_title(title, loc="left", **words(8.5))
        axes.set_xlim(0, _MINUTES)
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        axes.set_xlabel("minutes on two cores", **words(8.5))
        axes.legend(frameon=False, fontsize=8)
        plain_axes(axes, grid="both")
    return pixels(figure)
