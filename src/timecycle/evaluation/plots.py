"""Pictures of an evaluation: every sequence's score, scores over time, and the sequences that went worst.

Drawn without pyplot, so that nothing global changes; colours are those of Okabe and Ito, which most colour-blind
readers can tell apart.
"""

import io
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, UInt8
from PIL import Image, PngImagePlugin

from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.benchmark import Clip
from timecycle.evaluation.predictions import FOLDER
from timecycle.evaluation.report import Report
from timecycle.evaluation.tables import Row, in_print, is_number, lower_is_better, main_scores, merge_seeds, score_name
from timecycle.extras import need
from timecycle.files import atomic_write, make_folder
from timecycle.render import Captioned, contact_sheet, overlay, thumbnail

log = logging.getLogger("timecycle")

Drawing = UInt8[np.ndarray, "height width 3"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
MOST_BYTES = 150_000  # of a picture: small enough to be looked at in a browser and kept in a repository

_DPI = 100
_INK, _FAINT = "#1c1e22", "#d9d9d6"
_MOST_BARS = 60  # of one method: the hardest sequences are shown
_PANELS = 4  # side by side: more would leave no room for their bars
_MOST_BANDS = 3  # beyond, bands hide each other
_MOMENTS = 101  # of a clip, from its first to its last scored frame
_SHOWN = (0.25, 0.5, 0.75, 1.0)  # of a clip, in the picture of the worst


def write_pictures(
    report: Report, folder: Path, *, clips: Sequence[Clip] = (), predictions: Path | None = None
) -> list[Path]:
    """Write bars.png, over_time.png and, where the clips are given and their labels were stored, worst.png.

    What there is nothing to draw of is left out, and without matplotlib the plots are: an evaluation that took hours
    does not fail for a picture. Returns the files written.
    """
    make_folder(folder)
    drawn: dict[str, Drawing] = {}
    try:
        drawn["bars.png"] = draw_bars([report])
        if _per_frame(report, choose_score([report])):
            drawn["over_time.png"] = draw_over_time([report])
    except SettingsError as error:
        log.warning("no plots: %s", error)
    predictions = predictions or folder / FOLDER
    if any(_predicted(clip, predictions / clip.name) for clip in clips):
        drawn["worst.png"] = draw_worst(report, clips, predictions)
    for name, drawing in drawn.items():
        save_small(folder / name, drawing)
    return [folder / name for name in drawn]


def draw_bars(reports: Sequence[Report], *, score: str | None = None) -> Drawing:
    """A bar per sequence, easiest first; several methods side by side, best first."""
    score = score or choose_score(reports)
    rows = _best_first(reports, score)
    scores = [_per_sequence(row, score) for row in rows]
    names = _easiest_first(scores, score)
    left = len(names) - _MOST_BARS
    names = names[-_MOST_BARS:]
    across = min(len(rows), _PANELS)
    down = -(-len(rows) // across)
    panel_px = 17 * len(names) + 78  # bars with their names; heading and axis
    figure = _figure(820 if len(rows) == 1 else 1000, down * panel_px)
    figure.get_layout_engine().set(wspace=0.05, hspace=0.04)
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for place, axes in enumerate(grid.flat):
        if place < len(rows):
            _bar_panel(axes, names, scores[place], numbers=len(rows) == 1)
            mean = in_print(score, rows[place].mean(score))
            axes.axvline(mean, color=_INK, linewidth=1, linestyle=(0, (4, 3)), zorder=3)
            axes.set_title(f"{rows[place].name(short=True)}\n{score_name(score)} {mean:.1f}", **_words(9.5))
        else:
            axes.set_visible(False)
    top = _top(score, scores)
    grid[0, 0].set_xlim(0, top * (1.09 if len(rows) == 1 else 1.0))
    grid[0, 0].set_ylim(len(names) - 0.4, -0.6)
    part = f", the hardest {len(names)} of {len(names) + left} sequences" if left > 0 else ""
    for place in range(max(len(rows) - across, 0), len(rows)):  # below these there is no panel
        grid.flat[place].tick_params(labelbottom=True)
        grid.flat[place].set_xlabel(f"{_unit(score)}{part}", **_words(9))
    return _pixels(figure)


def draw_over_time(reports: Sequence[Report], *, score: str | None = None) -> Drawing:
    """The mean score over sequences from the first to the last scored frame; a band holds half of the sequences."""
    score = score or choose_score(reports)
    rows = _best_first(reports, score)
    curves = [_curves(row, score) for row in rows]
    share = np.linspace(0, 100, _MOMENTS)
    figure = _figure(820, 440)
    axes = figure.subplots()
    ends: dict[str, tuple[float, str]] = {}
    for place, (row, values) in enumerate(zip(rows, curves, strict=True)):
        colour, dashes = _stroke(place)
        if len(rows) <= _MOST_BANDS:
            low, high = np.quantile(values, [0.25, 0.75], axis=0)
            axes.fill_between(share, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(share, values.mean(axis=0), color=colour, linestyle=dashes, linewidth=2)
        ends[row.name(short=True)] = float(values[:, -1].mean()), colour
    top = _top(score, [{"": float(values.max())} for values in curves])
    _label_ends(axes, ends, gap=top * 0.05)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, top)
    axes.set_xlabel("part of the sequence (%)", **_words(9))
    axes.set_ylabel(f"{_unit(score)}, mean of {curves[0].shape[0]} sequences", **_words(9))
    if len(rows) <= _MOST_BANDS:
        axes.set_title("line: mean of the sequences; band: the middle half of them", loc="left", **_words(9))
    _plain_axes(axes, grid="both")
    return _pixels(figure)


def draw_worst(
    report: Report, clips: Sequence[Clip], predictions: Path, *, count: int = 4, width_px: int = 180
) -> Drawing:
    """The sequences with the worst scores, a row each: four moments with the predicted labels over them."""
    score = choose_score([report])
    values = {name: clip[score] for name, clip in report.per_sequence.items() if is_number(clip.get(score))}
    worst = sorted(values, key=lambda name: values[name], reverse=lower_is_better(score))[:count]
    found = {clip.name: clip for clip in clips}
    missing = [name for name in worst if name not in found]
    if missing:
        raise SettingsError(
            f"the report has the sequence {missing[0]} but the clips given have not",
            remedy="give the clips of the benchmark that was evaluated",
        )
    tiles = []
    for name in worst:
        caption = f"{name}, {score_name(score)} {in_print(score, values[name]):.1f}"
        tiles += _moments(found[name], predictions / name, caption, width_px=width_px)
    return contact_sheet(tiles, columns=len(_SHOWN), width_px=width_px)


def choose_score(reports: Sequence[Report]) -> str:
    """The score pictures show: J where there is one, otherwise the benchmark's first."""
    scores = main_scores(reports)
    if not scores:
        raise SettingsError(
            "the reports share no score per sequence", remedy="draw reports of one benchmark, at least one"
        )
    return "J" if "J" in scores else scores[0]


def save_small(path: Path, drawing: Drawing, *, note: Mapping[str, str] | None = None) -> None:
    """Write a PNG with as many colours as fit into MOST_BYTES, and notes about where it comes from."""
    info = PngImagePlugin.PngInfo()
    for name, words in (note or {}).items():
        info.add_text(name, words)
    image = Image.fromarray(drawing)
    encoded = b""
    for colours in (256, 128, 96, 64, 48, 32, 16):
        buffer = io.BytesIO()
        few = image.quantize(colours, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(buffer, format="PNG", optimize=True, pnginfo=info)
        encoded = buffer.getvalue()
        if len(encoded) < MOST_BYTES:
            break
    with atomic_write(path) as file:
        file.write(encoded)


def _bar_panel(axes: Any, names: Sequence[str], values: Mapping[str, float], *, numbers: bool) -> None:
    known = [(place, values[name]) for place, name in enumerate(names) if name in values]
    axes.barh([place for place, _ in known], [value for _, value in known], height=0.72, color=COLOURS[0], zorder=2)
    axes.set_yticks(range(len(names)), names)
    if numbers:
        edge = max(value for _, value in known) * 0.012
        for place, value in known:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}  # so that no line runs through a number
            axes.text(value + edge, place, f"{value:.1f}", va="center", zorder=4, bbox=box, **_words(8))
    _plain_axes(axes, grid="x")
    axes.tick_params(axis="y", labelsize=8.5, length=0)


def _moments(clip: Clip, folder: Path, caption: str, *, width_px: int) -> list[Captioned]:
    labels, files = type(clip.given()), _predicted(clip, folder)
    if not files:
        raise LabelError(f"{folder} has no labels of {clip.name}", remedy="predict the sequence again")
    shots = []
    for part in _SHOWN:
        wanted = clip.first + part * (len(clip.frames) - 1 - clip.first)
        # Masks of other programs may lack the last frame, which is not scored.
        index = min(files, key=lambda frame: abs(frame - wanted))
        with Image.open(clip.frames[index]) as image:
            frame = np.array(image.convert("RGB"))
        shot = thumbnail(overlay(frame, labels.read(files[index])), width_px=width_px)
        shots.append(Captioned(shot, caption if part == _SHOWN[0] else f"frame {index} ({100 * part:.0f} %)"))
    return shots


def _predicted(clip: Clip, folder: Path) -> dict[int, Path]:
    """The files of predicted labels by frame; a benchmark may store other things than labels."""
    files = {path.stem: path for path in folder.glob("[0-9]*.*")} if folder.is_dir() else {}
    names = {index: f"{index:05d}" for index in range(clip.first, len(clip.frames))}
    return {index: files[name] for index, name in names.items() if name in files}


def _per_sequence(row: Row, score: str) -> dict[str, float]:
    """Each sequence's score as printed, averaged over seeds."""
    everyone: dict[str, list[float]] = {}
    for report in row.reports:
        for name, clip in report.per_sequence.items():
            if is_number(clip.get(score)):
                everyone.setdefault(name, []).append(in_print(score, clip[score]))
    return {name: float(np.mean(values)) for name, values in everyone.items()}


def _curves(row: Row, score: str) -> Float64[np.ndarray, "sequences moments"]:
    """Each sequence's score over its own time, averaged over seeds."""
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


def resample(values: Float64[np.ndarray, " frames"]) -> Float64[np.ndarray, " moments"]:
    """A clip's scores at equally many moments of any clip, linearly between frames; unscored frames are skipped."""
    scored = np.flatnonzero(np.isfinite(values))
    moments = np.linspace(0, len(values) - 1, _MOMENTS)
    return np.asarray(np.interp(moments, scored, values[scored]))


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
    """The end of the axis: 100 %, so that bars of two pictures can be compared, or a little above an error."""
    return 1.05 * max(value for values in scores for value in values.values()) if lower_is_better(score) else 100.0


def _stroke(place: int) -> tuple[str, Any]:
    dashes: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
    return COLOURS[place % len(COLOURS)], dashes[place // len(COLOURS) % len(dashes)]


def _label_ends(axes: Any, ends: Mapping[str, tuple[float, str]], *, gap: float) -> None:
    """Names beside the ends of their lines, moved apart where lines end close together."""
    names = sorted(ends, key=lambda name: ends[name][0])
    heights = spread([ends[name][0] for name in names], gap=gap)
    for name, height in zip(names, heights, strict=True):
        end, colour = ends[name]
        axes.annotate(
            name,
            xy=(100, end),
            xytext=(102.5, height),
            annotation_clip=False,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 1, "relpos": (0, 0.5), "shrinkB": 0},
            fontsize=9,
            color=colour if colour != COLOURS[5] else "#2f86b5",  # sky blue is too pale for letters
        )


def spread(places: Sequence[float], *, gap: float) -> list[float]:
    """Rising places moved as little as possible so that none is nearer than `gap` to the next."""
    groups: list[list[float]] = []  # places that touch, each group centred on the mean of its own
    for place in places:
        groups.append([place])
        while len(groups) > 1 and _bottom(groups[-1], gap) < _bottom(groups[-2], gap) + gap * len(groups[-2]):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [_bottom(group, gap) + gap * step for group in groups for step in range(len(group))]


def _bottom(group: Sequence[float], gap: float) -> float:
    return float(np.mean(group)) - gap * (len(group) - 1) / 2


def _figure(width_px: int, height_px: int) -> Any:
    figure = need("matplotlib.figure", extra="eval").Figure(
        figsize=(width_px / _DPI, height_px / _DPI), dpi=_DPI, facecolor="white", layout="constrained"
    )
    need("matplotlib.backends.backend_agg", extra="eval").FigureCanvasAgg(figure)
    return figure


def _pixels(figure: Any) -> Drawing:
    figure.canvas.draw()
    return np.array(figure.canvas.buffer_rgba())[..., :3].copy()


def _plain_axes(axes: Any, *, grid: str) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    axes.grid(axis=grid, color=_FAINT, linewidth=0.7, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, labelsize=8.5, length=0)


def _words(size: float) -> dict[str, Any]:
    return {"fontsize": size, "color": _INK}
