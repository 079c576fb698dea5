"""measurements.png: area, path and speed of every object, drawn from measurements.csv."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from timecycle.labels import Labels
from timecycle.labels.drawing import RGB, colour_of
from timecycle.render import INK, PAPER, draw_legend, font, save_picture

_PANEL_PX, _HEIGHT_PX = 460, 340
_LEFT_PX, _RIGHT_PX, _TOP_PX, _BOTTOM_PX = 74, 16, 34, 40
_GRID = (214, 214, 210)
_MAX_OBJECTS = 24  # more lines cannot be told apart

Point = tuple[float, float]


@dataclass(eq=False)
class _Panel:
    """A chart of one line per object; a line is broken where its object is missing."""

    title: str
    y_down: bool = False  # the axes are those of the image, with the same scale
    lines: dict[str, list[list[Point]]] = field(default_factory=dict)

    def add(self, name: str, point: Point, *, joined: bool) -> None:
        segments = self.lines.setdefault(name, [])
        if not segments or not joined:
            segments.append([])
        segments[-1].append(point)

    @property
    def points(self) -> Iterator[Point]:
        return (point for segments in self.lines.values() for segment in segments for point in segment)


def plot_measurements(path: Path, measurements_csv: Path, kind: type[Labels], names: Mapping[str, str]) -> None:
    """Plot area, path and speed over time, and distances of points where they were measured."""
    panels, objects = _read_panels(measurements_csv)
    colours = {name: _colour(kind, name, index) for index, name in enumerate(objects)}
    drawn = [_draw(panel, colours) for panel in panels]
    width = sum(picture.width for picture in drawn)
    legend = draw_legend({kind.display_name(name, names): colours[name] for name in objects}, width)
    sheet = Image.new("RGB", (width, _HEIGHT_PX + legend.height), PAPER)
    for i, picture in enumerate(drawn):
        sheet.paste(picture, (i * _PANEL_PX, 0))
    sheet.paste(legend, (0, _HEIGHT_PX))
    pixels: UInt8[np.ndarray, "height width 3"] = np.array(sheet)
    save_picture(path, pixels)


def _read_panels(measurements_csv: Path) -> tuple[list[_Panel], list[str]]:
    panels = {
        "area_px": _Panel("area, px, over time, s"),
        "path": _Panel("path, px", y_down=True),
        "speed_px_per_second": _Panel("speed, px/s, over time, s"),
        "distance_px": _Panel("distance, px, over time, s"),
    }
    last: dict[tuple[str, str], int] = {}  # frame of the last point of a line
    with measurements_csv.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or ()
        for row in reader:
            name, index, seconds = row["object"], int(row["index"]), float(row["time_seconds"])
            if row["x_px"]:
                row["path"] = row["y_px"]
            for column, panel in panels.items():
                if row.get(column):
                    x = float(row["x_px"]) if panel.y_down else seconds
                    panel.add(name, (x, float(row[column])), joined=last.get((column, name)) == index - 1)
                    last[column, name] = index
    shown = [panel for column, panel in panels.items() if column == "path" or column in columns]
    objects = list(dict.fromkeys(name for panel in shown for name in panel.lines))
    return shown, objects[:_MAX_OBJECTS]


def _colour(kind: type[Labels], name: str, index: int) -> RGB:
    # A pair of points has the colour of its position in the legend.
    return kind.object_colour(name, index) if not kind.numbered or name.isdecimal() else colour_of(1 + index)


def _draw(panel: _Panel, colours: Mapping[str, RGB]) -> Image.Image:
    picture = Image.new("RGB", (_PANEL_PX, _HEIGHT_PX), PAPER)
    pen = ImageDraw.Draw(picture)
    box = (_LEFT_PX, _TOP_PX, _PANEL_PX - _RIGHT_PX, _HEIGHT_PX - _BOTTOM_PX)
    pen.text((_LEFT_PX, 8), panel.title, font=font(15), fill=INK)
    points = list(panel.points)
    (x0, x1), (y0, y1) = _range([x for x, _ in points]), _range([y for _, y in points])
    if panel.y_down:
        per_px = max((x1 - x0) / (box[2] - box[0]), (y1 - y0) / (box[3] - box[1]))
        x0, x1 = _centred(x0, x1, per_px * (box[2] - box[0]))
        y1, y0 = _centred(y0, y1, per_px * (box[3] - box[1]))
    elif points:
        y0, y1 = min(0.0, y0), max(y1, 0.0)

    def to_px(point: Point) -> Point:
        x = box[0] + (point[0] - x0) / (x1 - x0) * (box[2] - box[0])
        return x, box[3] - (point[1] - y0) / (y1 - y0) * (box[3] - box[1])

    for tick in _ticks(x0, x1):
        x, _ = to_px((tick, y0))
        pen.line((x, box[1], x, box[3]), fill=_GRID)
        pen.text((x, box[3] + 6), f"{tick:g}", font=font(12), fill=INK, anchor="ma")
    for tick in _ticks(y0, y1):
        _, y = to_px((x0, tick))
        pen.line((box[0], y, box[2], y), fill=_GRID)
        pen.text((box[0] - 6, y), f"{tick:g}", font=font(12), fill=INK, anchor="rm")
    for name, segments in panel.lines.items():
        if name not in colours:
            continue
        for segment in segments:
            pixels = [to_px(point) for point in segment]
            for one, other in pairwise(pixels):
                pen.line((*one, *other), fill=colours[name], width=2)
            x, y = pixels[0]
            pen.ellipse((x - 2, y - 2, x + 2, y + 2), fill=colours[name])
    pen.rectangle(box, outline=INK)
    return picture


def _range(values: list[float]) -> tuple[float, float]:
    """Return the least and the largest value, apart from each other."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _centred(low: float, high: float, length: float) -> tuple[float, float]:
    middle = (low + high) / 2
    return middle - length / 2, middle + length / 2


def _ticks(start: float, end: float) -> list[float]:
    """Return about five round numbers between two ends, whichever is larger."""
    low, high = sorted((start, end))
    rough = (high - low) / 5
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [float(round(step * i, 12)) for i in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]
