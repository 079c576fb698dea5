"""Pictures: labels over frames, contact sheets, arrows and match lines. Arrays in, arrays out."""

import colorsys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Integer, UInt8
from PIL import Image, ImageDraw, ImageFont

from timecycle.errors import LabelError
from timecycle.files import atomic_write
from timecycle.labels import Coordinates, Keypoints, Labels, Masks, Parts, Texture
from timecycle.labels.palette import RGB, colour_of

Picture = UInt8[np.ndarray, "height width 3"]

_TINT = 0.5  # how much of a mask's colour covers the image
_LATTICE_PX = 32  # spacing of the lattice that shows where coordinates went
_GAP_PX, _LINE_PX = 8, 22  # between pictures, and for a line of caption
_MOST_NAMED = 24  # objects in a legend
_INK = (28, 30, 34)
_PAPER = (250, 250, 248)


def overlay(image: Picture, labels: Labels) -> Picture:
    """The frame with its labels drawn over it, each object in its own colour."""
    match labels:
        case Masks():
            return _tinted(image, labels.ids, outline=labels.ids)
        case Parts():
            return _tinted(image, labels.part, outline=labels.pairs)
        case Keypoints():
            return _dotted(image, labels)
        case Texture():
            alpha = labels.rgba[..., 3:] / np.float32(255) * 0.85
            return _mixed(image, labels.rgba[..., :3], alpha)
        case Coordinates():
            return _latticed(image, labels)
    raise LabelError(f"labels of kind {labels.kind!r} have no picture", remedy="draw them yourself, or convert them")


def outlined(picture: Picture, labels: Labels, name: str) -> Picture:
    """The picture with one object of its labels outlined, or a point ringed; as it is where that object is not."""
    if isinstance(labels, Keypoints):
        return _ringed(picture, labels, name)
    if isinstance(labels, Masks | Parts):
        inside = (labels.pairs if isinstance(labels, Parts) else labels.ids) == int(name)
        near = _widened(inside, max(2, round(min(inside.shape) / 160)))
        far = _widened(near, max(1, round(min(inside.shape) / 320)))
        marked = picture.copy()
        marked[far & ~inside] = 0
        marked[near & ~inside] = 255
        return marked
    return picture


def legend_of(labels: Labels) -> dict[str, RGB]:
    """The colour of every object that the labels show; textures and coordinates have colours of their own."""
    match labels:
        case Masks():
            return {str(i): colour_of(i) for i in np.unique(labels.ids).tolist() if i}
        case Parts():
            return {str(i): object_colour(Parts.kind, str(i)) for i in np.unique(labels.pairs).tolist() if i}
        case Keypoints():
            return {name: colour_of(1 + i) for i, name in enumerate(labels.names)}
    return {}


def object_colour(kind: str, name: str, place: int = 0) -> RGB:
    """The colour of an object by its name in the tables; a point's by its place among the points, from 0."""
    if kind == Masks.kind:
        return colour_of(int(name))
    return colour_of(Parts.part_of(int(name))) if kind == Parts.kind else colour_of(1 + place)


@dataclass(frozen=True, eq=False)
class Captioned:
    """A picture and the words under it; `framed` where a person annotated it."""

    picture: Picture
    caption: str
    framed: bool = False


def thumbnail(picture: Picture, *, width_px: int = 320) -> UInt8[np.ndarray, "h w 3"]:
    """A small copy, so that a sheet of large frames needs little memory while it is gathered."""
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
    """Small copies of the pictures in rows, each with its caption below, and what the colours mean below all."""
    tiles = [thumbnail(item.picture, width_px=width_px) for item in pictures]
    height_px = max(len(tile) for tile in tiles)
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    across, down = width_px + _GAP_PX, height_px + _LINE_PX + _GAP_PX
    across_px, down_px = _GAP_PX + columns * across, _GAP_PX + rows * down
    key = _legend(legend or {}, across_px)
    sheet = Image.new("RGB", (across_px, down_px + key.height), _PAPER)
    sheet.paste(key, (0, down_px))
    pen = ImageDraw.Draw(sheet)
    for place, (item, tile) in enumerate(zip(pictures, tiles, strict=True)):
        row, column = divmod(place, columns)
        x, y = _GAP_PX + column * across, _GAP_PX + row * down
        sheet.paste(Image.fromarray(tile), (x, y))
        if item.framed:
            pen.rectangle((x - 3, y - 3, x + width_px + 2, y + len(tile) + 2), outline=_INK, width=5)
        pen.text((x, y + height_px + 3), item.caption, font=_font(14), fill=_INK)
    return np.array(sheet)


def _legend(legend: Mapping[str, RGB], width_px: int) -> Image.Image:
    """A square of each colour with its name, in lines of the given width; the first ones where there are many."""
    entries = list(legend.items())[:_MOST_NAMED]
    if len(legend) > _MOST_NAMED:
        entries.append((f"and {len(legend) - _MOST_NAMED} more", _PAPER))
    font, places, x, y = _font(14), [], _GAP_PX, 0
    for name, colour in entries:
        wide = _LINE_PX + round(font.getlength(name)) + 2 * _GAP_PX
        if x > _GAP_PX and x + wide > width_px:
            x, y = _GAP_PX, y + _LINE_PX
        places.append((x, y, name, colour))
        x += wide
    key = Image.new("RGB", (width_px, y + _LINE_PX + _GAP_PX if entries else 0), _PAPER)
    pen = ImageDraw.Draw(key)
    for left, top, name, colour in places:
        pen.rectangle((left, top + 2, left + 14, top + 16), fill=colour)
        pen.text((left + _LINE_PX, top), name, font=font, fill=_INK)
    return key


def arrows(
    image: Picture,
    flow: Float[np.ndarray, "height width 2"],
    *,
    sure: Bool[np.ndarray, "height width"] | None = None,
    spacing_px: int = 24,
) -> Picture:
    """The flow as arrows from where things are in A to where they are in B, coloured by direction; where it is not
    `sure` there is none."""
    faded = Image.fromarray(_mixed(image, np.full_like(image, 255), np.float32(0.45)))
    pen = ImageDraw.Draw(faded)
    height, width, _ = image.shape
    for y in range(spacing_px // 2, height, spacing_px):
        for x in range(spacing_px // 2, width, spacing_px):
            if sure is not None and not sure[y, x]:
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
    sure: Bool[np.ndarray, "rows columns"] | None = None,
    count: int = 40,
) -> UInt8[np.ndarray, "h w 3"]:
    """A beside B with lines between best matches, spread over A; only those that are `sure`, where that is known."""
    gap = 12
    height = max(a.shape[0], b.shape[0])
    canvas = Image.new("RGB", (a.shape[1] + gap + b.shape[1], height), _PAPER)
    canvas.paste(Image.fromarray(a), (0, 0))
    canvas.paste(Image.fromarray(b), (a.shape[1] + gap, 0))
    pen = ImageDraw.Draw(canvas)
    known = np.ones(starts.shape[:2], bool) if sure is None else sure
    starts, ends = starts.reshape(-1, 2), ends.reshape(-1, 2)
    for cell in _spread(starts, np.flatnonzero(known).tolist(), count):
        # By where a line begins: neighbours have neighbouring colours, so one that goes astray is seen.
        hue = _hue(0.9 * float(starts[cell, 0]) / a.shape[1])
        x0, y0 = starts[cell].tolist()
        x1, y1 = ends[cell].tolist()
        x1 += a.shape[1] + gap
        pen.line((x0, y0, x1, y1), fill=hue, width=1)
        for x, y in ((x0, y0), (x1, y1)):
            pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill=hue, outline=_PAPER)
    return np.array(canvas)


def save_picture(path: Path, picture: Picture) -> None:
    """Write a picture as PNG."""
    with atomic_write(path) as file:
        # On photographs no larger than with the most effort, and much faster.
        Image.fromarray(picture).save(file, format="PNG", compress_level=3)


def side_by_side(pictures: Sequence[Captioned]) -> UInt8[np.ndarray, "h w 3"]:
    """Pictures in one row at the height of the first, captions below."""
    height = pictures[0].picture.shape[0]
    widths = [max(round(p.picture.shape[1] * height / p.picture.shape[0]), 1) for p in pictures]
    size = (_GAP_PX + sum(width + _GAP_PX for width in widths), _GAP_PX + height + _LINE_PX)
    row = Image.new("RGB", size, _PAPER)
    pen, x = ImageDraw.Draw(row), _GAP_PX
    for item, width in zip(pictures, widths, strict=True):
        row.paste(Image.fromarray(item.picture).resize((width, height), Image.Resampling.BOX), (x, _GAP_PX))
        pen.text((x, _GAP_PX + height + 3), item.caption, font=_font(14), fill=_INK)
        x += width + _GAP_PX
    return np.array(row)


def _tinted(
    image: Picture, ids: Integer[np.ndarray, "height width"], *, outline: Integer[np.ndarray, "height width"]
) -> Picture:
    present = np.unique(ids)
    table = np.zeros((int(present[-1]) + 1, 3), np.uint8)
    for identity in present[present > 0]:
        table[identity] = colour_of(int(identity))
    painted = table[ids]
    inside = ids > 0
    tinted = _mixed(image, painted, (inside * np.float32(_TINT))[..., None])
    edge = _edges(outline) & inside
    tinted[edge] = np.minimum(painted[edge].astype(np.int16) + 70, 255).astype(np.uint8)
    return tinted


def _edges(ids: Integer[np.ndarray, "height width"]) -> Bool[np.ndarray, "height width"]:
    edge = np.zeros(ids.shape, bool)
    edge[:, 1:] |= ids[:, 1:] != ids[:, :-1]
    edge[:, :-1] |= ids[:, 1:] != ids[:, :-1]
    edge[1:] |= ids[1:] != ids[:-1]
    edge[:-1] |= ids[1:] != ids[:-1]
    return edge


def _dotted(image: Picture, points: Keypoints) -> Picture:
    canvas = Image.fromarray(image)
    pen = ImageDraw.Draw(canvas)
    radius = max(3, round(min(image.shape[:2]) / 70))
    for i, ((x, y), visible) in enumerate(zip(points.xy.tolist(), points.visible, strict=True)):
        box, colour = (x - radius, y - radius, x + radius, y + radius), colour_of(1 + i)
        if visible:
            pen.ellipse(box, fill=colour, outline=(255, 255, 255), width=1)
        elif np.isfinite((x, y)).all():  # a guess at a point that is not seen
            pen.ellipse(box, outline=colour, width=1)
    return np.array(canvas)


def _ringed(picture: Picture, points: Keypoints, name: str) -> Picture:
    place = points.names.index(name) if name in points.names else None
    if place is None or not np.isfinite(points.xy[place]).all():
        return picture
    canvas = Image.fromarray(picture)
    pen = ImageDraw.Draw(canvas)
    x, y = points.xy[place].tolist()
    radius = max(8, round(min(picture.shape[:2]) / 25))
    for wider, ink in ((1, (0, 0, 0)), (0, (255, 255, 255))):
        edge = radius + wider
        pen.ellipse((x - edge, y - edge, x + edge, y + edge), outline=ink, width=2 + 2 * wider)
    return np.array(canvas)


def _widened(inside: Bool[np.ndarray, "height width"], by_px: int) -> Bool[np.ndarray, "height width"]:
    """The region and everything up to so many pixels around it, along rows and columns."""
    wide = inside.copy()
    for _ in range(by_px):
        grown = wide.copy()
        grown[1:] |= wide[:-1]
        grown[:-1] |= wide[1:]
        grown[:, 1:] |= wide[:, :-1]
        grown[:, :-1] |= wide[:, 1:]
        wide = grown
    return wide


def _latticed(image: Picture, labels: Coordinates) -> Picture:
    """Colour tells where a pixel came from; a lattice drawn on the labelled frame shows how it was bent."""
    height, width, _ = image.shape
    place = labels.xy / np.array([width, height], np.float32)
    hue = np.stack([place[..., 0], place[..., 1], 1 - place[..., 0]], axis=-1).clip(0, 1) * 255
    tinted = _mixed(image, hue.astype(np.uint8), np.float32(0.4))
    line = (np.abs((labels.xy + _LATTICE_PX / 2) % _LATTICE_PX - _LATTICE_PX / 2) < 1).any(axis=-1)
    tinted[line] = 255
    return tinted


def _mixed(image: Picture, paint: Picture, alpha: Float[np.ndarray, "..."] | np.float32) -> Picture:
    mixed = image.astype(np.float32)
    mixed += (paint.astype(np.float32) - mixed) * alpha
    return np.rint(mixed).astype(np.uint8)


def _spread(places: Float[np.ndarray, "cells 2"], cells: Sequence[int], count: int) -> list[int]:
    """So many of the cells, each the farthest from those chosen before; the first is the one in their middle."""
    if not cells:
        return []
    at = places[list(cells)].astype(np.float64)
    chosen = [int(np.abs(at - at.mean(axis=0)).sum(axis=1).argmin())]
    away = np.linalg.norm(at - at[chosen[0]], axis=1)
    while len(chosen) < min(count, len(cells)):
        chosen.append(int(away.argmax()))
        away = np.minimum(away, np.linalg.norm(at - at[chosen[-1]], axis=1))
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


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
