"""DeepLabCut's tables of keypoints, CSV and HDF5: annotations (CollectedData) and predictions.

Header rows say scorer, perhaps individuals, body parts, and x, y and perhaps likelihood. Rows of annotations are called
after images (labeled-data/VIDEO/img0012.png), those of predictions after frames. Likelihood is our confidence.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from timecycle.errors import LabelError
from timecycle.files import atomic_text, frame_number
from timecycle.formats import deeplabcut_h5
from timecycle.formats.format import Format
from timecycle.formats.skeletons import Skeletons
from timecycle.formats.video_labels import VideoFacts, VideoLabels, points_of
from timecycle.labels import Keypoints
from timecycle.labels.file import note

_MAX_BYTES = 1 << 30
_SCORER = "timecycle"
_HEADERS = ("scorer", "individuals", "bodyparts", "coords")
_REMEDY = "give a table as DeepLabCut writes it, with the header rows scorer, bodyparts and coords"

Row = tuple[Sequence[str], Sequence[float]]  # what the row is called, and its numbers


@dataclass(frozen=True)
class Columns:
    """The header of a table: the point and the coordinate (x, y or likelihood) of every column."""

    points: tuple[str, ...]
    coordinates: tuple[str, ...]

    @classmethod
    def of(cls, levels: dict[str, Sequence[str]], path: Path) -> "Columns":
        """Make columns of the header rows, by their names."""
        if not {"bodyparts", "coords"} <= levels.keys():
            raise LabelError(f"{path} is not a table of DeepLabCut", remedy=_REMEDY)
        names = levels["bodyparts"]
        if "individuals" in levels:
            names = [f"{one}/{part}" for one, part in zip(levels["individuals"], names, strict=True)]
        wrong = sorted(set(levels["coords"]) - {"x", "y", "likelihood"})
        if wrong or not names:
            raise LabelError(f"{path} has columns of {', '.join(wrong)[:80] or 'nothing'}", remedy=_REMEDY)
        if len(set(zip(names, levels["coords"], strict=True))) != len(names):
            raise LabelError(f"{path} has two columns for one coordinate of a point", remedy=_REMEDY)
        return cls(tuple(names), tuple(levels["coords"]))

    def keypoints(self, numbers: Sequence[float], place: str) -> Keypoints:
        """Return the points of a row; those without a position are not annotated, and left out."""
        values: dict[str, dict[str, float]] = {}
        for name, coordinate, number in zip(self.points, self.coordinates, numbers, strict=True):
            values.setdefault(name, {})[coordinate] = number
        there = {
            name: one
            for name, one in values.items()
            if abs(one.get("x", np.nan)) < 1e9 and abs(one.get("y", np.nan)) < 1e9  # False for NaN
        }
        likelihood = np.array([one.get("likelihood", np.nan) for one in there.values()], np.float32)
        if (likelihood < 0).any() or (likelihood > 1).any():
            raise LabelError(f"{place} has a likelihood that is not between 0 and 1", remedy=_REMEDY)
        return Keypoints(
            tuple(there),
            np.array([(one["x"], one["y"]) for one in there.values()], np.float32).reshape(-1, 2),
            np.array([one.get("likelihood", 1.0) != 0 for one in there.values()], bool),
            None if np.isnan(likelihood).all() else likelihood,
        )


def read(path: Path, video: VideoFacts) -> VideoLabels:
    """Read the points of all frames; of annotations of several videos, those of the video in question."""
    if path.stat().st_size > _MAX_BYTES:
        raise LabelError(f"{path} is larger than {_MAX_BYTES >> 30} GiB", remedy="split it by video")
    if path.suffix.lower() == ".csv":
        columns, rows = _read_csv(path)
    else:
        levels, rows = deeplabcut_h5.read(path)
        columns = Columns.of(levels, path)
    labels: dict[int, Keypoints] = {}
    for name, numbers in _of_video(rows, path, video):
        number = frame_number(Path(name[-1]))
        if number is None:
            raise LabelError(f"{path} has a row {name[-1][:80]!r} without a frame number", remedy=_REMEDY)
        index = video.index(number)
        if index in labels:
            raise LabelError(f"{path} has two rows of frame {number}", remedy="give the labels of one video")
        points = columns.keypoints(numbers, f"the row {'/'.join(name)[:80]!r} of {path}")
        if points.names:
            labels[index] = points
    return VideoLabels(kind=Keypoints, labels=dict(sorted(labels.items())), video=VideoFacts(name=str(path)))


def _read_csv(path: Path) -> tuple[Columns, Iterable[Row]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            levels: dict[str, list[str]] = {}
            while "coords" not in levels and len(levels) < len(_HEADERS):
                row = next(reader, [])
                if not row or row[0] not in _HEADERS:
                    raise LabelError(f"{path} is not a table of DeepLabCut", remedy=_REMEDY)
                levels[row[0]] = row
            # Rows are called by one column or, in newer versions, by three: labeled-data, video, image.
            first = next((i for i, one in enumerate(levels["coords"]) if one in ("x", "y", "likelihood")), 1)
            columns = Columns.of({name: row[first:] for name, row in levels.items()}, path)
            rows = [
                (deeplabcut_h5.path_parts(row[:first]), [float(cell or "nan") for cell in row[first:]])
                for row in reader
                if any(row)
            ]
    except (OSError, ValueError, csv.Error) as error:
        raise LabelError(f"{path} cannot be read: {str(error)[:200]}", remedy=_REMEDY) from error
    if any(len(numbers) != len(columns.points) for _, numbers in rows):
        raise LabelError(f"{path} has rows of another length than its header", remedy=_REMEDY)
    return columns, rows


def _of_video(rows: Iterable[Row], path: Path, video: VideoFacts) -> list[Row]:
    """Return the rows of one video: all, or those whose folder is called like it."""
    rows = [row for row in rows if row[0]]
    folders = list(dict.fromkeys(name[-2] for name, _ in rows if len(name) > 1))
    if len(folders) < 2:
        return rows
    chosen = Path(video.name).stem
    if chosen not in folders:
        raise LabelError(
            f"{path} has images of {len(folders)} videos: {', '.join(folders[:6])[:200]}",
            remedy="say which video it is: --video VIDEO, called like one of these folders",
        )
    note(f"{path}: the rows of {chosen} are read, of {len(folders)} videos")
    return [row for row in rows if len(row[0]) > 1 and row[0][-2] == chosen]


# Writing


def write(labels: VideoLabels, path: Path) -> None:
    """Write predictions where there is a confidence, otherwise annotations."""
    skeletons = Skeletons.of(labels.labels)
    predicted = any(points_of(one).confidence is not None for one in labels.labels.values())
    coordinates = ("x", "y", "likelihood") if predicted else ("x", "y")
    columns = [
        (_SCORER, *((individual,) if individual else ()), part, coordinate)
        for individual in skeletons.individuals
        for part in skeletons.parts
        for coordinate in coordinates
    ]
    names = ["scorer", *(["individuals"] if skeletons.individuals != ("",) else []), "bodyparts", "coords"]
    if path.suffix.lower() == ".csv":
        with atomic_text(path) as text:
            table = csv.writer(text, lineterminator="\n")
            for i, name in enumerate(names):
                table.writerow((name, *(column[i] for column in columns)))
            for index, cells in _rows(labels, skeletons, coordinates):
                row = ["" if np.isnan(cell) else str(cell) for cell in cells]
                table.writerow((_called(labels, index, predicted=predicted), *row))
        return
    rows = list(_rows(labels, skeletons, coordinates))
    called = [_called(labels, index, predicted=predicted) for index, _ in rows]
    deeplabcut_h5.write(path, names, columns, called, np.array([cells for _, cells in rows], np.float64))


def _called(labels: VideoLabels, index: int, *, predicted: bool) -> str | int:
    """Return what the row of a frame is called: its number, or the path of its image."""
    if predicted:
        return labels.video.number(index)
    return f"labeled-data/{Path(labels.video.name).stem}/img{labels.video.number(index):05d}.png"


def _rows(
    labels: VideoLabels, skeletons: Skeletons, coordinates: Sequence[str]
) -> Iterator[tuple[int, list[np.float32]]]:
    """Yield the numbers of every frame; hidden points have a likelihood of 0 or, in annotations, no position."""
    nothing = np.float32(np.nan)
    for index, one in labels.labels.items():
        split = skeletons.split(points_of(one))
        cells: list[np.float32] = []
        for individual in skeletons.individuals:
            points = split.get(individual)
            for i in range(len(skeletons.parts)):
                hidden = points is not None and not points.visible[i]
                if points is None or np.isnan(points.xy[i]).any() or (hidden and len(coordinates) == 2):
                    cells += [nothing] * len(coordinates)
                    continue
                cells += [points.xy[i, 0], points.xy[i, 1]]
                if len(coordinates) == 3:
                    confidence = nothing if points.confidence is None else points.confidence[i]
                    cells.append(np.float32(0) if hidden else confidence)
        yield index, cells


def _recognises(path: Path) -> bool:
    if path.suffix.lower() != ".csv":
        return deeplabcut_h5.recognises(path)
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return file.readline(20).startswith("scorer,")


FORMAT = Format(
    name="deeplabcut",
    title="DeepLabCut tables",
    suffixes=(".csv", ".h5"),
    kinds=("keypoints",),
    loses="of hidden points the confidence, in annotations their position too; size, rate and number of frames",
    read=read,
    write=write,
    recognises=_recognises,
    extra="deeplabcut",
    modules_by_suffix={".h5": "tables"},
)
