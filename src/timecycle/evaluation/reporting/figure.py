"""Shared parts of plots: figures without pyplot, which would change global state, colours, and small PNG files.

The colours are those of Okabe and Ito, which most colour-blind readers can tell apart.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image, PngImagePlugin

from timecycle.extras import import_extra
from timecycle.files import atomic_write

RgbImage = UInt8[np.ndarray, "height width 3"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
INK = "#1c1e22"
MAX_BYTES = 150_000  # of a picture: small enough for a browser and a repository

_DPI = 100
_FAINT = "#d9d9d6"


def new_figure(width_px: int, height_px: int) -> Any:
    """Make an empty figure of a size in pixels."""
    figure = import_extra("matplotlib.figure", extra="eval").Figure(
        figsize=(width_px / _DPI, height_px / _DPI), dpi=_DPI, facecolor="white", layout="constrained"
    )
    import_extra("matplotlib.backends.backend_agg", extra="eval").FigureCanvasAgg(figure)
    return figure


def render(figure: Any) -> RgbImage:
    """Render the figure as an image."""
    figure.canvas.draw()
    return np.array(figure.canvas.buffer_rgba())[..., :3].copy()


def plain_axes(axes: Any, *, grid: str) -> None:
    """Remove the frame, and draw faint grid lines: x, y or both."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    axes.grid(axis=grid, color=_FAINT, linewidth=0.7, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=8.5, length=0)


def text_style(size: float) -> dict[str, Any]:
    return {"fontsize": size, "color": INK}


def line_style(index: int) -> tuple[str, Any]:
    """Return colour and dashes of a line."""
    dashes: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
    return COLOURS[index % len(COLOURS)], dashes[index // len(COLOURS) % len(dashes)]


def label_ends(axes: Any, ends: Mapping[str, tuple[float, str]], *, gap: float) -> None:
    """Write names beside the ends of their lines, moved apart where lines end close together."""
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
            color=colour if colour != COLOURS[5] else "#2f86b5",  # sky blue is too pale for text
        )


def spread(positions: Sequence[float], *, gap: float) -> list[float]:
    """Move rising positions as little as possible, so that neighbours are at least `gap` apart."""
    groups: list[list[float]] = []  # positions that touch; each group is centred on its own mean
    for position in positions:
        groups.append([position])
        while len(groups) > 1 and _bottom(groups[-1], gap) < _bottom(groups[-2], gap) + gap * len(groups[-2]):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [_bottom(group, gap) + gap * step for group in groups for step in range(len(group))]


def _bottom(group: Sequence[float], gap: float) -> float:
    return float(np.mean(group)) - gap * (len(group) - 1) / 2


def save_small(path: Path, picture: RgbImage, *, note: Mapping[str, str] | None = None) -> None:
    """Write a PNG with as many colours as fit into MAX_BYTES, and notes about its source."""
    info = PngImagePlugin.PngInfo()
    for name, text in (note or {}).items():
        info.add_text(name, text)
    image = Image.fromarray(picture)
    encoded = b""
    for colours in (256, 128, 96, 64, 48, 32, 16):
        buffer = io.BytesIO()
        # By coverage: chosen by frequency, the colours of a few small dots would be lost to the background's.
        few = image.quantize(colours, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(buffer, format="PNG", optimize=True, pnginfo=info)
        encoded = buffer.getvalue()
        if len(encoded) < MAX_BYTES:
            break
    with atomic_write(path) as file:
        file.write(encoded)
