"""What plots of evaluations share: figures without pyplot, so that nothing global changes, colours, and small files.

The colours are those of Okabe and Ito, which most colour-blind readers can tell apart.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image, PngImagePlugin

from timecycle.extras import need
from timecycle.files import atomic_write

Drawing = UInt8[np.ndarray, "height width 3"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
INK = "#1c1e22"
MOST_BYTES = 150_000  # of a picture: small enough to be looked at in a browser and kept in a repository

_DPI = 100
_FAINT = "#d9d9d6"


def new_figure(width_px: int, height_px: int) -> Any:
    """An empty figure of so many pixels."""
    figure = need("matplotlib.figure", extra="eval").Figure(
        figsize=(width_px / _DPI, height_px / _DPI), dpi=_DPI, facecolor="white", layout="constrained"
    )
    need("matplotlib.backends.backend_agg", extra="eval").FigureCanvasAgg(figure)
    return figure


def pixels(figure: Any) -> Drawing:
    """The figure as an image."""
    figure.canvas.draw()
    return np.array(figure.canvas.buffer_rgba())[..., :3].copy()


def plain_axes(axes: Any, *, grid: str) -> None:
    """No frame, and faint lines across `grid`: x, y or both."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    axes.grid(axis=grid, color=_FAINT, linewidth=0.7, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=8.5, length=0)


def words(size: float) -> dict[str, Any]:
    """How words of a size are set."""
    return {"fontsize": size, "color": INK}


def stroke(place: int) -> tuple[str, Any]:
    """Colour and dashes of the so manyth line."""
    dashes: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
    return COLOURS[place % len(COLOURS)], dashes[place // len(COLOURS) % len(dashes)]


def label_ends(axes: Any, ends: Mapping[str, tuple[float, str]], *, gap: float) -> None:
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


def save_small(path: Path, drawing: Drawing, *, note: Mapping[str, str] | None = None) -> None:
    """Write a PNG with as many colours as fit into MOST_BYTES, and notes about where it comes from."""
    info = PngImagePlugin.PngInfo()
    for name, words in (note or {}).items():
        info.add_text(name, words)
    image = Image.fromarray(drawing)
    encoded = b""
    for colours in (256, 128, 96, 64, 48, 32, 16):
        buffer = io.BytesIO()
        # By coverage: chosen by frequency, the colours of a few small dots would be lost among those of the ground.
        few = image.quantize(colours, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(buffer, format="PNG", optimize=True, pnginfo=info)
        encoded = buffer.getvalue()
        if len(encoded) < MOST_BYTES:
            break
    with atomic_write(path) as file:
        file.write(encoded)
