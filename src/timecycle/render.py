"""Draw pictures: contact sheets, flow arrows and match lines. Label kinds draw their own overlays."""

import colorsys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image, ImageDraw, ImageFont

from timecycle.files import atomic_write
from timecycle.labels import drawing
from timecycle.labels.drawing import RGB

Picture = drawing.Picture

_GAP_PX, _LINE_PX = 8, 22  # between pictures, and for a line of caption
_MAX_LEGEND = 24  # objects in a legend
INK = (28, 30, 34)
PAPER = (250, 250, 248)


@dataclass(frozen=True, eq=False)
class Captioned:
    """A picture with a caption; `framed` draws a border around it, for annotated frames."""

    picture: Picture
    caption: str
    framed: bool = False


def thumbnail(picture: Picture, *, width_px: int = 320) -> UInt8[np.ndarray, "h w 3"]:
    """Return a small copy, so that collecting a sheet of large frames needs little memory."""
    height, width, _ = picture.shape
    size = (width_px, max(round(height * width_px / width), 1))
    return np.array(Image.fromarray(picture).resize(size, Image.Resampling.BOX))


def contact_sheet(
    pictures: Sequence[Captioned],
    *,
    columns: int = 4,
    width_px: int = 320,
    legend: Mapping[str, RGB] | None = None,
) -> UInt8[np.ndarray, "h w 3"]:
    """Arrange small copies of pictures in rows, with captions below each and a legend of the colours below all."""
    tiles = [thumbnail(item.picture, width_px=width_px) for item in pictures]
    height_px = max(len(tile) for tile in tiles)
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    step_x, step_y = width_px + _GAP_PX, height_px + _LINE_PX + _GAP_PX
    sheet_width, tiles_height = _GAP_PX + columns * step_x, _GAP_PX + rows * step_y
    key = draw_legend(legend or {}, sheet_width)
    sheet = Image.new("RGB", (sheet_width, tiles_height + key.height), PAPER)
    sheet.paste(key, (0, tiles_height))
    pen = ImageDraw.Draw(sheet)
    for i, (item, tile) in enumerate(zip(pictures, tiles, strict=True)):
        row, column = divmod(i, columns)
        x, y = _GAP_PX + column * step_x, _GAP_PX + row * step_y
        sheet.paste(Image.fromarray(tile), (x, y))
        if item.framed:
            pen.rectangle((x - 3, y - 3, x + width_px + 2, y + len(tile) + 2), outline=INK, width=5)
        pen.text((x, y + height_px + 3), item.caption, font=font(14), fill=INK)
    return np.array(sheet)


def draw_legend(legend: Mapping[str, RGB], width_px: int) -> Image.Image:
    """Draw a square of each colour with its name, in lines of the given width; long legends are cut."""
    entries = list(legend.items())[:_MAX_LEGEND]
    if len(legend) > _MAX_LEGEND:
        entries.append((f"and {len(legend) - _MAX_LEGEND} more", PAPER))
    letters, positioned, x, y = font(14), [], _GAP_PX, 0
    for name, colour in entries:
        entry_width = _LINE_PX + round(letters.getlength(name)) + 2 * _GAP_PX
        if x > _GAP_PX and x + entry_width > width_px:
            x, y = _GAP_PX, y + _LINE_PX
        positioned.append((x, y, name, colour))
        x += entry_width
    key = Image.new("RGB", (width_px, y + _LINE_PX + _GAP_PX if entries else 0), PAPER)
    pen = ImageDraw.Draw(key)
    for left, top, name, colour in positioned:
        pen.rectangle((left, top + 2, left + 14, top + 16), fill=colour)
        pen.text((left + _LINE_PX, top), name, font=letters, fill=INK)
    return key


def arrows(
    image: Picture,
    flow: Float[np.ndarray, "height width 2"],
    *,
    reliable: Bool[np.ndarray, "height width"] | None = None,
    spacing_px: int = 24,
) -> Picture:
    """Draw optical flow as arrows from pixels of A to their positions in B, coloured by direction.

    With `reliable`, only pixels marked in it have an arrow.
    """
    faded = Image.fromarray(drawing.mix(image, np.full_like(image, 255), np.float32(0.45)))
    pen = ImageDraw.Draw(faded)
    height, width, _ = image.shape
    for y in range(spacing_px // 2, height, spacing_px):
        for x in range(spacing_px // 2, width, spacing_px):
            if reliable is not None and not reliable[y, x]:
                continue
            dx, dy = flow[y, x]
            _arrow(pen, (x, y), (x + float(dx), y + float(dy)), _direction_colour(float(dx), float(dy)))
    return np.array(faded)


def match_lines(
    a: UInt8[np.ndarray, "ha wa 3"],
    b: UInt8[np.ndarray, "hb wb 3"],
    starts: Float[np.ndarray, "rows columns 2"],
    ends: Float[np.ndarray, "rows columns 2"],
    *,
    reliable: Bool[np.ndarray, "rows columns"] | None = None,
    count: int = 40,
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw A beside B with lines between `count` matched cells spread over A.

    With `reliable`, only cells marked in it are drawn.
    """
    gap = 12
    height = max(a.shape[0], b.shape[0])
    canvas = Image.new("RGB", (a.shape[1] + gap + b.shape[1], height), PAPER)
    canvas.paste(Image.fromarray(a), (0, 0))
    canvas.paste(Image.fromarray(b), (a.shape[1] + gap, 0))
    pen = ImageDraw.Draw(canvas)
    drawn = np.ones(starts.shape[:2], bool) if reliable is None else reliable
    starts, ends = starts.reshape(-1, 2), ends.reshape(-1, 2)
    for cell in _spread(starts, np.flatnonzero(drawn).tolist(), count):
        # Coloured by start position: neighbours have similar colours, so that a wrong match stands out.
        hue = _hue(0.9 * float(starts[cell, 0]) / a.shape[1])
        x0, y0 = starts[cell].tolist()
        x1, y1 = ends[cell].tolist()
        x1 += a.shape[1] + gap
        pen.line((x0, y0, x1, y1), fill=hue, width=1)
        for x, y in ((x0, y0), (x1, y1)):
            pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill=hue, outline=PAPER)
    return np.array(canvas)


def save_picture(path: Path, picture: Picture) -> None:
    """Write a picture as PNG."""
    with atomic_write(path) as file:
        # For photographs level 3 is as small as the highest level, and much faster.
        Image.fromarray(picture).save(file, format="PNG", compress_level=3)


def side_by_side(pictures: Sequence[Captioned]) -> UInt8[np.ndarray, "h w 3"]:
    """Arrange pictures in one row at the height of the first, with captions below."""
    height = pictures[0].picture.shape[0]
    widths = [max(round(p.picture.shape[1] * height / p.picture.shape[0]), 1) for p in pictures]
    size = (_GAP_PX + sum(width + _GAP_PX for width in widths), _GAP_PX + height + _LINE_PX)
    row = Image.new("RGB", size, PAPER)
    pen, x = ImageDraw.Draw(row), _GAP_PX
    for item, width in zip(pictures, widths, strict=True):
        row.paste(Image.fromarray(item.picture).resize((width, height), Image.Resampling.BOX), (x, _GAP_PX))
        pen.text((x, _GAP_PX + height + 3), item.caption, font=font(14), fill=INK)
        x += width + _GAP_PX
    return np.array(row)


def _spread(xy: Float[np.ndarray, "cells 2"], cells: Sequence[int], count: int) -> list[int]:
    """Choose cells by farthest-point sampling, beginning with the one nearest to their mean."""
    if not cells:
        return []
    points = xy[list(cells)].astype(np.float64)
    chosen = [int(np.abs(points - points.mean(axis=0)).sum(axis=1).argmin())]
    distance = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < min(count, len(cells)):
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return [cells[i] for i in chosen]


def _arrow(
    pen: ImageDraw.ImageDraw, start: tuple[float, float], end: tuple[float, float], ink: tuple[int, int, int]
) -> None:
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = float(np.hypot(dx, dy))
    if length < 1:
        pen.ellipse((start[0] - 1, start[1] - 1, start[0] + 1, start[1] + 1), fill=ink)
        return
    pen.line((*start, *end), fill=ink, width=2)
    head = min(6.0, length / 2)
    ux, uy = dx / length * head, dy / length * head
    left = (end[0] - ux - uy / 2, end[1] - uy + ux / 2)
    right = (end[0] - ux + uy / 2, end[1] - uy - ux / 2)
    pen.polygon([end, left, right], fill=ink)


def _direction_colour(dx: float, dy: float) -> tuple[int, int, int]:
    return _hue(float(np.arctan2(dy, dx)) / (2 * np.pi) % 1)


def _hue(turn: float) -> tuple[int, int, int]:
    red, green, blue = colorsys.hsv_to_rgb(turn % 1, 0.85, 0.92)
    return round(red * 255), round(green * 255), round(blue * 255)


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return the font of all pictures."""
    return ImageFont.load_default(size)
