"""Keypoints: named points (x, y) with visibility; label maps have one channel per point."""

import csv
import io
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from timecycle.errors import LabelError
from timecycle.files import atomic_write, write_text
from timecycle.grid import Axis, Grid
from timecycle.labels.drawing import RGB, Picture, colour_of, draw_points, ring_point
from timecycle.labels.file import check_label_file
from timecycle.labels.label_map import Decide, Extent, LabelValues, upsample_argmax
from timecycle.labels.names import refuse_formula
from timecycle.labels.space import Labels, Objects, Points, Presence, counted

COLUMNS = ("frame", "name", "x", "y", "visible", "confidence")

_VISIBLE = ("", "1", "true", "yes", "1.0", "2")
_HIDDEN = ("0", "false", "no", "0.0")


@dataclass(frozen=True, eq=False)
class Keypoints(Labels):
    """Named points of one frame.

    A hidden point has a guessed position, or NaN for none. Propagated points have a confidence from 0 to 1, or NaN for
    a point of which nothing is known.
    """

    names: tuple[str, ...]
    xy: Float32[np.ndarray, "points 2"]
    visible: Bool[np.ndarray, " points"]
    confidence: Float32[np.ndarray, " points"] | None = None
    kind: ClassVar[str] = "keypoints"
    suffix: ClassVar[str] = ".csv"
    empty_remedy: ClassVar[str] = "place at least one visible point"

    def __post_init__(self) -> None:
        arrays = isinstance(self.xy, np.ndarray) and isinstance(self.visible, np.ndarray)
        if not arrays or self.xy.ndim != 2 or self.xy.shape[1] != 2 or self.visible.ndim != 1:
            raise LabelError(
                f"points were passed as {_described(self.xy)} with visibilities as {_described(self.visible)}",
                remedy="give names, an array of float32 (points, 2) and an array of bool (points)",
            )
        if not len(self.names) == len(self.xy) == len(self.visible):
            raise LabelError(
                f"there are {len(self.names)} names, {len(self.xy)} positions and {len(self.visible)} visibilities",
                remedy="give one of each for every point",
            )
        if len(set(self.names)) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise LabelError(f"the point {twice!r} is given twice", remedy="name every point of a frame once")
        for name in self.names:
            refuse_formula(name)

    @classmethod
    def read(cls, path: str | Path) -> "Keypoints":
        """Read the points of a CSV that holds one frame."""
        frames = read_keypoints(path)
        if len(frames) != 1:
            raise LabelError(
                f"{path} has points on {len(frames)} frames where one was expected",
                remedy="give the file itself as LABELS: each row's `frame` says which frame it belongs to",
            )
        (points,) = frames.values()
        return cls(points.names, points.xy, points.visible, points.confidence)

    def with_confidence(self, values: Mapping[str, float], *, unseen: Container[str]) -> "Keypoints":
        confidence = np.array([values.get(name, np.nan) for name in self.names], np.float32)
        visible = np.array([bool(v) and n not in unseen for n, v in zip(self.names, self.visible, strict=True)], bool)
        return replace(self, visible=visible, confidence=confidence)

    def write(self, path: str | Path) -> None:
        """Write a CSV with one row per point; the frame's number is taken from the file's name."""
        path = Path(path)
        frame = int(path.stem) if path.stem.isdecimal() else 0
        write_text(path, keypoints_csv({frame: self}))

    @classmethod
    def write_table(cls, path: Path, label_files: Mapping[int, Path]) -> None:
        with atomic_write(path) as file:
            for index, (number, label_file) in enumerate(label_files.items()):
                text = keypoints_csv({number: cls.read(label_file)})
                file.write((text if index == 0 else text.partition("\n")[2]).encode())

    def __repr__(self) -> str:
        return f"Keypoints({counted(self.names, 'point')}; {int(self.visible.sum())} visible)"

    def size(self) -> None:
        return None

    def is_empty(self) -> bool:
        return not self.visible.any()

    def moved(self, move: Callable[[Points], Points]) -> "Keypoints":
        return replace(self, xy=move(self.xy))

    def annotated_objects(self) -> Objects:
        return frozenset(self.names)

    def _restricted_to(self, objects: frozenset[str]) -> "Keypoints":
        kept = [i for i, name in enumerate(self.names) if name in objects]
        return Keypoints(tuple(self.names[i] for i in kept), self.xy[kept], self.visible[kept])

    def merged_with(self, annotation: "Keypoints") -> "Keypoints":
        others = annotation._restricted_to(frozenset(annotation.names) - frozenset(self.names))
        return Keypoints(
            self.names + others.names,
            np.concatenate([self.xy, others.xy]),
            np.concatenate([self.visible, others.visible]),
        )

    def is_same(self, other: "Keypoints") -> bool:
        return self.names == other.names and np.array_equal(self.xy, other.xy, equal_nan=True)

    def accuracy(self, name: str, ground_truth: "Keypoints", *, tolerance_px: float) -> float | None:
        if name not in self.names or name not in ground_truth.names:
            return None
        i, j = self.names.index(name), ground_truth.names.index(name)
        if not ground_truth.visible[j]:
            return 0.0 if self.visible[i] else None
        distance_px = np.hypot(*(self.xy[i] - ground_truth.xy[j]))  # NaN without a position, which is not right
        return float(distance_px <= tolerance_px)

    def overlay(self, image: Picture) -> Picture:
        return draw_points(image, self.xy, self.visible)

    def outline(self, image: Picture, name: str) -> Picture:
        if name not in self.names:
            return image
        x, y = self.xy[self.names.index(name)].tolist()
        return ring_point(image, x, y) if np.isfinite((x, y)).all() else image

    def legend(self) -> dict[str, RGB]:
        return {name: colour_of(1 + i) for i, name in enumerate(self.names)}

    @classmethod
    def space(cls, annotations: Sequence["Keypoints"]) -> "KeypointSpace":
        return KeypointSpace(tuple(dict.fromkeys(name for points in annotations for name in points.names)))


@dataclass(frozen=True)
class KeypointSpace:
    """Channel c is the point names[c]; channels do not compete."""

    names: tuple[str, ...]
    exclusive: ClassVar[bool] = False
    stretchable: ClassVar[bool] = True
    divisible: ClassVar[bool] = False

    @property
    def channels(self) -> int:
        return len(self.names)

    def annotated_channels(self, labels: Keypoints) -> Bool[Tensor, " channels"]:
        return torch.tensor([name in labels.names for name in self.names], dtype=torch.bool)

    def encode(self, labels: Keypoints, grid: Grid) -> LabelValues:
        """Share each point among the four cells around it, so that their centre of mass is the point."""
        values = torch.zeros(grid.y.cells, grid.x.cells, self.channels)
        for name, (x, y), visible in zip(labels.names, labels.xy, labels.visible, strict=True):
            inside = -0.5 <= x < grid.x.pixels - 0.5 and -0.5 <= y < grid.y.pixels - 0.5  # False for NaN
            if visible and inside:
                values[..., self.names.index(name)] = torch.outer(_tent(grid.y, float(y)), _tent(grid.x, float(x)))
        return values

    def decode(self, values: LabelValues, grid: Grid, decide: Decide = upsample_argmax) -> Keypoints:
        """Place each point at the centre of mass of the 3x3 cells around its peak; a point without weight is hidden."""
        rows, columns, channels = values.shape
        peaks = values.reshape(rows * columns, channels).argmax(dim=0)
        xy = np.full((channels, 2), np.nan, np.float32)
        visible = np.zeros(channels, bool)
        for channel, peak in enumerate(peaks.tolist()):
            row, column = divmod(peak, columns)
            top, left = max(row - 1, 0), max(column - 1, 0)
            window = values[top : row + 2, left : column + 2, channel].double()
            weight = window.sum()
            visible[channel] = bool(weight > 0)
            if visible[channel]:
                y = (window.sum(dim=1) @ torch.arange(window.shape[0], dtype=torch.float64)) / weight + top
                x = (window.sum(dim=0) @ torch.arange(window.shape[1], dtype=torch.float64)) / weight + left
                # Rounded for short files: a hundredth of a pixel is far below the precision of a cell.
                xy[channel] = round(float(grid.x.pixel_of(x)), 2), round(float(grid.y.pixel_of(y)), 2)
        return Keypoints(self.names, xy, visible)

    @property
    def objects(self) -> tuple[str, ...]:
        return self.names

    def extent(self, values: LabelValues) -> Extent:
        return values

    def presence(self, labels: Keypoints) -> tuple[Presence | None, ...]:
        visible = dict(zip(labels.names, labels.visible.tolist(), strict=True))
        return tuple(("visible" if visible[name] else "occluded") if name in visible else None for name in self.names)

    def restore_annotated(self, annotation: Keypoints, decoded: Keypoints) -> Keypoints:
        xy, visible = decoded.xy.copy(), decoded.visible.copy()
        for i, name in enumerate(annotation.names):
            channel = self.names.index(name)
            xy[channel], visible[channel] = annotation.xy[i], annotation.visible[i]
        return Keypoints(self.names, xy, visible)

    def extended(self, labels: Keypoints) -> "KeypointSpace":
        return KeypointSpace(tuple(dict.fromkeys(self.names + labels.names)))


def read_keypoints(path: str | Path) -> dict[int, Keypoints]:
    """Read the points of every frame from a CSV: columns frame, name, x, y and optionally visible and confidence."""
    path = Path(path)
    check_label_file(path)
    try:
        reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig")))
        rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LabelError(
            f"cannot read {path}: {error}", remedy="give a CSV with the columns frame,name,x,y,visible"
        ) from error
    missing = [c for c in COLUMNS[:4] if c not in (reader.fieldnames or ())]
    if missing or not rows:
        raise LabelError(
            f"{path} has no column {missing[0]!r}" if rows else f"{path} has no rows",
            remedy="write a first line frame,name,x,y,visible and one row per point below it",
        )
    frames: dict[int, list[_Point]] = {}
    for line, row in rows:
        point = {column: (row.get(column) or "").strip() for column in COLUMNS}
        for column, readable in _READABLE.items():
            if not readable(point[column]):
                raise LabelError(
                    f"line {line} of {path} is not a point: its {column} is {point[column]!r}",
                    remedy="write a whole frame number, a name, x and y in pixels, and 1 or 0 for visible",
                )
        x, y = (float(point[axis] or "nan") for axis in ("x", "y"))
        has_position = abs(x) <= _FARTHEST_PX and abs(y) <= _FARTHEST_PX  # False for NaN
        visible = point["visible"].lower() not in _HIDDEN and has_position
        confidence = float(point["confidence"] or "nan")
        frames.setdefault(int(point["frame"]), []).append(_Point(point["name"], x, y, visible, confidence))
    return {frame: _points(path, frame, points) for frame, points in sorted(frames.items())}


def keypoints_csv(frames: dict[int, Keypoints]) -> str:
    """Return the CSV of many frames; x and y have as few digits as are exact, and are empty without a position."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for frame, points in frames.items():
        for i, (name, (x, y)) in enumerate(zip(points.names, points.xy, strict=True)):
            position = (str(x), str(y)) if np.isfinite((x, y)).all() else ("", "")
            confidence = "" if points.confidence is None else _short(points.confidence[i])
            writer.writerow((frame, name, *position, int(points.visible[i]), confidence))
    return text.getvalue()


def _described(value: object) -> str:
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def _short(confidence: np.float32) -> str:
    return "" if np.isnan(confidence) else str(confidence)


_FARTHEST_PX = 1e9  # points farther out count as hidden; nearer ones are exact enough in float32
_LONGEST_NUMBER = 12  # digits: 2^31 frames have ten


def _is_number(text: str) -> bool:
    try:
        float(text or "nan")
    except ValueError:
        return False
    return True


_READABLE: dict[str, Callable[[str], bool]] = {
    "frame": lambda text: text.isdecimal() and len(text) <= _LONGEST_NUMBER,
    "name": bool,
    "x": _is_number,
    "y": _is_number,
    "visible": lambda text: text.lower() in _VISIBLE + _HIDDEN,
    "confidence": _is_number,
}


class _Point(NamedTuple):
    """One row of a CSV."""

    name: str
    x: float
    y: float
    visible: bool
    confidence: float


def _points(path: Path, frame: int, points: Sequence[_Point]) -> Keypoints:
    names = tuple(point.name for point in points)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise LabelError(f"{path} has {twice!r} twice on frame {frame}", remedy="name every point of a frame once")
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, and their points hidden
        xy = np.array([(point.x, point.y) for point in points]).astype(np.float32)
        confidence = np.array([point.confidence for point in points]).astype(np.float32)
    visible = np.array([point.visible for point in points], bool)
    return Keypoints(names, xy, visible, None if np.isnan(confidence).all() else confidence)


def _tent(axis: Axis, pixel: float) -> Float[Tensor, " cells"]:
    """Share a pixel between the two cells around it, by nearness."""
    cell = axis.cell_of(torch.tensor(pixel, dtype=torch.float64)).clamp(0, axis.cells - 1)
    return (1 - (torch.arange(axis.cells) - cell).abs()).clamp_min(0).float()
