"""measurements.csv: where every object is on every frame, how large it is and how fast it moves.

While frames are written, what their pixels say (the geometry) goes to a table in the work folder. At the end it is
joined with frames.csv and objects.csv, which have times, confidence and states. A correction measures only the frames
that it propagated again, takes the geometry of the others from measurements.csv, and joins again: a speed depends on
two frames.
"""

import csv
import heapq
import io
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from timecycle.errors import OutputError, SettingsError, first_line
from timecycle.files import atomic_text
from timecycle.labels import Keypoints, Labels, Masks
from timecycle.labels.geometry import Region, measure_regions
from timecycle.labels.masks import IdLabels
from timecycle.propagation.video import LabelledFrame
from timecycle.runs.tables import FrameRow, ObjectRow, read_frames, read_objects
from timecycle.video import Video

_POINT = ("x_px", "y_px")
_REGION = (
    *("area_px", "x_px", "y_px", "left_px", "top_px", "width_px", "height_px"),
    *("major_axis_px", "minor_axis_px", "angle_degrees", "mean_intensity"),
)
_DIGITS = {"angle_degrees": 2, "mean_intensity": 2}  # of others 4
_UNIT = r"[A-Za-zµμ]{1,12}"
_SCALE_REMEDY = "give pixels per unit: --scale 4.2, or with the unit's name --scale 4.2px/mm"

Geometry = dict[str, dict[str, str]]  # columns of the geometry by object, as written
GeometryByFrame = Iterable[tuple[int, Geometry]]  # by frame index, in order


@dataclass(frozen=True)
class Scale:
    """How many pixels make up one unit of length."""

    px_per_unit: float
    unit: str = "unit"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.px_per_unit) and self.px_per_unit > 0) or not re.fullmatch(_UNIT, self.unit):
            raise SettingsError(f"the scale is {self.px_per_unit:g} px/{self.unit[:40]}", remedy=_SCALE_REMEDY)


def parse_scale(text: str) -> Scale:
    """Parse a scale such as "4.2" or "4.2px/mm"."""
    match = re.fullmatch(rf"\s*([0-9.eE+-]+)\s*(?:(?:px)?\s*/\s*({_UNIT}))?\s*", text)
    try:
        number = float(match[1]) if match else math.nan
    except ValueError:
        number = math.nan
    if match is None or math.isnan(number):
        raise SettingsError(f"{text[:40]!r} is not a scale", remedy=_SCALE_REMEDY)
    return Scale(number, match[2] or "unit")


def as_scale(scale: float | str | None) -> Scale | None:
    """Return the scale that a caller gave as a number or as text, or None where none was given."""
    return None if scale is None else parse_scale(str(scale))


@dataclass(frozen=True)
class MeasurementConfig:
    """What is measured beside positions in pixels: lengths in a unit, and distances between pairs of points."""

    scale: Scale | None = None
    pairs: tuple[tuple[str, str], ...] = ()

    def recorded(self) -> dict[str, Any]:
        """Return the settings for run.json; empty without any."""
        scale = {"px_per_unit": self.scale.px_per_unit, "unit": self.scale.unit} if self.scale else {}
        return scale | ({"pairs": [list(pair) for pair in self.pairs]} if self.pairs else {})

    @classmethod
    def of_record(cls, outputs: Mapping[str, Any]) -> "MeasurementConfig":
        """Read the settings of a run from its record; raises SettingsError where it is damaged."""
        scale = outputs.get("px_per_unit")
        pairs = outputs.get("pairs") or []
        if not (scale is None or isinstance(scale, int | float)) or not _is_pairs(pairs):
            raise SettingsError("run.json has a wrong scale or wrong pairs", remedy="use an undamaged copy")
        return cls(
            None if scale is None else Scale(float(scale), str(outputs.get("unit", "unit"))),
            tuple((pair[0], pair[1]) for pair in pairs),
        )

    def check(self, kind: type[Labels], objects: Sequence[str]) -> None:
        """Refuse pairs of labels that are no points, or of points that are not there."""
        if self.pairs and not issubclass(kind, Keypoints):
            raise SettingsError(f"pairs were given for {kind.kind}", remedy="leave out --pairs: it is for keypoints")
        unknown = [name for pair in self.pairs for name in pair if name not in objects]
        if unknown:
            raise SettingsError(
                f"there is no point {unknown[0][:80]!r} to measure a distance to",
                remedy=f"name two of the points: {', '.join(objects[:12])}",
            )


def parse_pairs(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse words such as "nose:tail" into pairs of points."""
    pairs = []
    for word in words:
        first, _, second = word.partition(":")
        if not first or not second or first == second:
            raise SettingsError(f"{word[:80]!r} is not a pair of points", remedy="write --pairs nose:tail ear:tail")
        pairs.append((first, second))
    return tuple(dict.fromkeys(pairs))


def is_measured(kind: type[Labels]) -> bool:
    """Return whether labels of this kind have objects that can be measured: masks, parts and keypoints."""
    return issubclass(kind, IdLabels | Keypoints)


# Geometry


def geometry_of(labelled: LabelledFrame, video: Video) -> Geometry:
    """Measure the objects of a frame; a hidden point has no position. Intensities are those of the video's file."""
    labels = labelled.labels
    if isinstance(labels, Keypoints):
        points = zip(labels.names, labels.xy.tolist(), labels.visible.tolist(), strict=True)
        return {name: _cells(_POINT, dict(zip(_POINT, xy, strict=True)) if seen else {}) for name, xy, seen in points}
    if not isinstance(labels, IdLabels):
        return {}
    ids = labels.ids if isinstance(labels, Masks) else labels.object_ids
    values = video.values(labelled.index)
    regions = measure_regions(ids, labelled.image if values is None else values)
    is_float = values is not None and values.dtype.kind == "f"
    return {
        str(identity): _cells(_REGION, _values(region))
        | ({"mean_intensity": _float_cell(region.mean_intensity)} if is_float else {})
        for identity, region in regions.items()
    }


def geometry_columns(kind: type[Labels]) -> str:
    """Return the first line of a table of geometry."""
    return ",".join(("index", "object", *_names(kind))) + "\n"


def geometry_rows(index: int, geometry: Geometry) -> str:
    """Return the rows of a frame in a table of geometry."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows((index, name, *cells.values()) for name, cells in geometry.items())
    return text.getvalue()


def read_geometry(path: Path, kind: type[Labels]) -> Iterator[tuple[int, Geometry]]:
    """Read the geometry frame by frame, from its own table or from measurements.csv; refuse what is not a number."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for index, rows in groupby(csv.DictReader(file), key=lambda row: int(row["index"])):
                cells = {row["object"]: {name: row[name] for name in _names(kind)} for row in rows}
                for text in (text for of_object in cells.values() for text in of_object.values()):
                    float(text or 0)
                # Objects that are not on the frame have no position, and distances of points have none.
                yield index, {name: of_object for name, of_object in cells.items() if of_object["x_px"]}
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise OutputError(
            f"{path} cannot be read: {first_line(error)}",
            remedy=f"remove {path.name}: the run is complete without it, and corrections no longer write it",
        ) from error


def replace_geometry(
    old: GeometryByFrame, new: GeometryByFrame, frames: Container[int]
) -> Iterator[tuple[int, Geometry]]:
    """Merge geometry by frame: that of `frames` is new, that of all others old."""
    kept = (one for one in old if one[0] not in frames)
    return heapq.merge(kept, new, key=lambda one: one[0])


def _names(kind: type[Labels]) -> tuple[str, ...]:
    return _POINT if issubclass(kind, Keypoints) else _REGION


def _values(region: Region) -> dict[str, float | None]:
    return {name: getattr(region, name) for name in _REGION}


def _cells(names: Sequence[str], values: Mapping[str, float | None]) -> dict[str, str]:
    return {name: _cell(values.get(name), _DIGITS.get(name, 4)) for name in names}


def _float_cell(value: float) -> str:
    """Write a value of a floating-point image, whose range is not known: six digits, wherever they begin."""
    return f"{value:.6g}" if math.isfinite(value) else ""


def _cell(value: float | None, digits: int = 4) -> str:
    if value is None or not math.isfinite(value):
        return ""
    return str(value) if isinstance(value, int) else f"{value:.{digits}f}"


# The joined table


@dataclass(frozen=True, eq=False)
class MeasurementRow:
    """A row of measurements.csv: one object, or the distance of two points, on one frame."""

    frame: FrameRow
    object: str
    cells: Mapping[str, str]
    speed_px_per_second: float | None = None
    distance_px: float | None = None
    known: ObjectRow | None = None

    @property
    def source(self) -> str:
        """Where the labels of the object come from on this frame."""
        if self.known is None or self.known.annotated:
            return self.frame.source
        return "propagated" if self.frame.annotated else self.frame.source


def write_measurements(
    path: Path,
    geometry: GeometryByFrame,
    frames_csv: Path,
    objects_csv: Path,
    *,
    kind: type[Labels],
    names: Mapping[str, str],
    config: MeasurementConfig,
) -> None:
    """Join the geometry with the tables of a run and write measurements.csv."""
    objects = read_objects(objects_csv) if objects_csv.is_file() else {}
    rows = measurement_rows(geometry, read_frames(frames_csv), objects, config.pairs)
    with atomic_text(path) as text:
        table = csv.writer(text, lineterminator="\n")
        table.writerow(measurement_columns(kind, config))
        for row in rows:
            table.writerow(_row_cells(row, kind, names, config))


def measurement_columns(kind: type[Labels], config: MeasurementConfig) -> list[str]:
    """Return the columns of measurements.csv."""
    columns = ["index", "frame_number", "time_seconds", "object", "name", *_names(kind), "speed_px_per_second"]
    columns += ["distance_px"] if config.pairs else []
    columns += ["confidence", "source", "state"]
    return columns + [name for name, _, _ in _scaled_columns(columns, config.scale)]


def measurement_rows(
    geometry: GeometryByFrame,
    frames: Sequence[FrameRow],
    objects: Mapping[int, Mapping[str, ObjectRow]],
    pairs: Sequence[tuple[str, str]] = (),
) -> Iterator[MeasurementRow]:
    """Yield one row per object and frame: of objects on the frame, and of others whose confidence is known.

    A speed compares with the frame before; it is None where the object is not on both.
    """
    before: dict[str, tuple[float, float]] = {}
    stream = iter(geometry)
    upcoming = next(stream, None)
    for frame in frames:
        measured, known = Geometry(), objects.get(frame.index, {})
        if upcoming is not None and upcoming[0] == frame.index:
            measured, upcoming = upcoming[1], next(stream, None)
        positions = {name: at for name, cells in measured.items() if (at := _position(cells)) is not None}
        seconds = frame.time_seconds - frames[frame.index - 1].time_seconds if frame.index else 0.0
        for name in dict.fromkeys([*known, *measured]):
            speed = None
            if name in positions and name in before and seconds > 0:
                speed = math.dist(positions[name], before[name]) / seconds
            yield MeasurementRow(frame, name, measured.get(name, {}), speed, known=known.get(name))
        for first, second in pairs:
            if first in positions and second in positions:
                distance = math.dist(positions[first], positions[second])
                yield MeasurementRow(frame, f"{first}:{second}", {}, distance_px=distance)
        before = positions


def _position(cells: Mapping[str, str]) -> tuple[float, float] | None:
    return (float(cells["x_px"]), float(cells["y_px"])) if cells["x_px"] and cells["y_px"] else None


def _row_cells(
    row: MeasurementRow, kind: type[Labels], names: Mapping[str, str], config: MeasurementConfig
) -> list[str]:
    cells = {name: row.cells.get(name, "") for name in _names(kind)}
    if "area_px" in cells and not row.cells:
        cells["area_px"] = "0"
    confidence = "" if row.known is None else f"{row.known.confidence:.4f}"
    values = {
        "index": str(row.frame.index),
        "frame_number": str(row.frame.number),
        "time_seconds": f"{row.frame.time_seconds:.6f}",
        "object": row.object,
        "name": names.get(row.object, ""),
        **cells,
        "speed_px_per_second": _cell(row.speed_px_per_second),
        **({"distance_px": _cell(row.distance_px)} if config.pairs else {}),
        "confidence": confidence,
        "source": row.source,
        "state": "" if row.known is None else row.known.state,
    }
    scaled = _scaled_columns(values, config.scale)
    return [*values.values(), *(_cell(float(values[name]) / per) if values[name] else "" for _, name, per in scaled)]


def _scaled_columns(columns: Iterable[str], scale: Scale | None) -> list[tuple[str, str, float]]:
    """Return the columns in the unit of the scale: their names, the columns in pixels, and what to divide those by."""
    if scale is None:
        return []
    per = scale.px_per_unit
    areas = [(name.replace("_px", f"_{scale.unit}2"), name, per * per) for name in columns if name == "area_px"]
    lengths = [
        (name.replace("_px", f"_{scale.unit}"), name, per)
        for name in columns
        if "_px" in name and name not in ("area_px", "left_px", "top_px", "width_px", "height_px")
    ]
    return areas + lengths


def _is_pairs(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(name, str) for name in pair) for pair in value
    )
