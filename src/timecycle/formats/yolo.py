"""YOLO text files as of Ultralytics: a folder with data.yaml and labels/00000.txt, one line per object.

    class x y x y ... track                     segmentation: one polygon
    class cx cy w h x y visible ... track       pose

Coordinates are fractions of the image, measured from the corner of the first pixel. A polygon cannot have holes or
parts, so they are joined by lines that enclose nothing. The number of coordinates tells whether a track id follows.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from timecycle.concurrency import write_behind
from timecycle.errors import LabelError
from timecycle.files import frame_number, make_folder, natural_order, write_text
from timecycle.formats.format import Format
from timecycle.formats.json_file import default_name, masks_of
from timecycle.formats.polygons import fill, outline
from timecycle.formats.skeletons import Skeletons, join_instances
from timecycle.formats.video_labels import LazyLabels, VideoFacts, VideoLabels, ids_of, points_of, size_of, usable_names
from timecycle.labels import Keypoints, Masks

_MAX_BYTES = 64 << 20  # of a text file of one frame
_SETTINGS = "data.yaml"
_REMEDY = "export the labels again"


def read(path: Path, video: VideoFacts) -> VideoLabels:
    """Read polygons as masks, or poses as keypoints where data.yaml has `kpt_shape`; frames when they are asked for."""
    if video.size is None:
        raise LabelError(
            f"{path} has fractions of the image, whose size it does not say",
            remedy="say which video it is: --video VIDEO",
        )
    files: dict[int, Path] = {}
    for file in sorted(_label_files(path), key=natural_order):
        number = frame_number(file)
        if number is None or (index := video.index(number)) in files:
            raise LabelError(f"{file} has no frame number of its own", remedy="name label files by frame: 00012.txt")
        files[index] = file
    if not files:
        raise LabelError(f"{path} has no label files", remedy="give the folder with labels/*.txt")
    settings = _read_settings(path)
    facts = VideoFacts(name=str(path))
    if settings.get("kpt_shape"):
        names, dimensions = _point_names(settings, path)
        several = len(_individuals(files, len(names), dimensions)) > 1
        points = partial(_read_points, files, video.size, names, dimensions, several)
        return VideoLabels(kind=Keypoints, labels=LazyLabels(list(files), points), video=facts)
    classes = {str(number + 1): name for number, name in settings.get("names", {}).items()}
    tracks = _tracks(files)
    named = {str(track): classes[str(number + 1)] for track, number in tracks.items() if str(number + 1) in classes}
    unique = {track: name for track, name in named.items() if list(named.values()).count(name) == 1}
    return VideoLabels(
        kind=Masks,
        labels=LazyLabels(list(files), partial(_read_masks, files, video.size)),
        video=facts,
        names=usable_names({track: name for track, name in unique.items() if name != default_name(track)}, path),
    )


def _label_files(path: Path) -> list[Path]:
    folder = path / "labels" if (path / "labels").is_dir() else path
    return [file for file in folder.glob("*.txt") if file.name != "classes.txt"]


def _lines(file: Path) -> Iterator[tuple[str, list[float]]]:
    """Yield the numbers of every line, with its place."""
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise LabelError(f"{file} is larger than {_MAX_BYTES >> 20} MiB", remedy=_REMEDY)
        lines = file.read_text(encoding="ascii").splitlines()
        for i, line in enumerate(lines, 1):
            numbers = [float(word) for word in line.split()]
            if not numbers:
                continue
            if not all(abs(number) < 1e6 for number in numbers) or numbers[0] != int(numbers[0]) or numbers[0] < 0:
                raise ValueError(f"line {i} does not begin with a class, or has numbers out of range")
            yield f"line {i} of {file}", numbers
    except (OSError, ValueError) as error:
        raise LabelError(f"{file} cannot be read: {str(error)[:200]}", remedy=_REMEDY) from error


def _segment(place: str, numbers: list[float]) -> tuple[int, np.ndarray]:
    """Return the object id and the vertices of a line; without a track id, the class tells objects apart."""
    tracked = len(numbers) % 2 == 0
    vertices = np.array(numbers[1:-1] if tracked else numbers[1:]).reshape(-1, 2)
    if len(vertices) < 3:
        raise LabelError(f"{place} has no polygon of three vertices", remedy="give segmentation labels, not boxes")
    track = numbers[-1] if tracked else numbers[0] + 1
    if track != int(track) or not 1 <= track <= 65535:
        raise LabelError(f"{place} has the track id {track:g}", remedy="number tracks between 1 and 65535")
    return int(track), vertices


def _tracks(files: Mapping[int, Path]) -> dict[int, int]:
    """Return the class of every track; refuse several objects of one class on a frame without track ids."""
    classes: dict[int, int] = {}
    for file in files.values():
        there = set()
        for place, numbers in _lines(file):
            track, _ = _segment(place, numbers)
            if track in there:
                raise _second_object(place)
            there.add(track)
            classes.setdefault(track, int(numbers[0]))
    return classes


def _second_object(place: str) -> LabelError:
    return LabelError(
        f"{place} is a second object of its class or track on its frame",
        remedy="export with track ids, as the last number of every line",
    )


def _read_masks(files: Mapping[int, Path], size: tuple[int, int], index: int) -> Masks:
    height, width = size
    segments = [_segment(place, numbers) for place, numbers in _lines(files[index])]
    # Vertices lie on corners of pixels, which six digits give back once they are rounded.
    scaled = [(track, np.round(vertices * (width, height), 2)) for track, vertices in segments]
    return masks_of(size, ((track, partial(fill, one, size)) for track, one in scaled), str(files[index]))


def _poses(file: Path, points: int, dimensions: int) -> dict[str, list[float]]:
    """Return the numbers of the points of each individual: a track or, in lines without one, their order."""
    poses: dict[str, list[float]] = {}
    for i, (place, numbers) in enumerate(_lines(file), 1):
        values, more = numbers[5 : 5 + dimensions * points], numbers[5 + dimensions * points :]
        if len(values) != dimensions * points or len(more) > 1:
            raise LabelError(f"{place} does not have {points} points", remedy="check kpt_shape in data.yaml")
        individual = str(int(more[0])) if more else str(i)
        if individual in poses:
            raise _second_object(place)
        poses[individual] = values
    return poses


def _individuals(files: Mapping[int, Path], points: int, dimensions: int) -> set[str]:
    return {individual for file in files.values() for individual in _poses(file, points, dimensions)}


def _read_points(
    files: Mapping[int, Path],
    size: tuple[int, int],
    names: tuple[str, ...],
    dimensions: int,
    several: bool,
    index: int,
) -> Keypoints:
    """Return the points of a frame; of `several` individuals in the video, names begin with theirs on every frame."""
    height, width = size
    instances = {}
    for individual, values in _poses(files[index], len(names), dimensions).items():
        table = np.array(values).reshape(-1, dimensions)
        visibility = table[:, 2] if dimensions == 3 else np.full(len(table), 2.0)
        xy = np.where(visibility[:, None] > 0, np.round(table[:, :2] * (width, height) - 0.5, 4), np.nan)
        instances[individual] = Keypoints(names, xy.astype(np.float32), visibility > 1)
    return join_instances(instances, several=several)


# data.yaml: only what is needed of YAML, which JSON is a part of


def _read_settings(path: Path) -> dict[str, Any]:
    """Read `names`, `kpt_shape` and `kpt_names`, written in lines as here, or as one list."""
    file = path / _SETTINGS
    if not file.is_file() or file.stat().st_size > _MAX_BYTES:
        return {}
    settings: dict[str, Any] = {}
    key = ""
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        if top := re.fullmatch(r"(\w+):\s*(.*?)\s*(?:#.*)?", line):
            key = top[1]
            value = _value(top[2])
            settings[key] = dict(enumerate(value)) if isinstance(value, list) and key == "names" else value or {}
        elif (item := re.fullmatch(r"\s+(\d{1,6}):\s*(.*?)\s*", line)) and isinstance(settings.get(key), dict):
            settings[key][int(item[1])] = _value(item[2])
        elif (item := re.fullmatch(r"\s*-\s+(.*?)\s*", line)) and isinstance(settings.get(key), dict):
            settings[key][len(settings[key])] = _value(item[1])
    names = settings.get("names", {})
    if not isinstance(names, dict):
        raise LabelError(f"{file} has the names {str(names)[:40]}", remedy="write names: [dog, cat]")
    settings["names"] = {number: str(name) for number, name in names.items()}
    return settings


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if text.startswith("[") and text.endswith("]"):
            return [part.strip().strip("'\"") for part in text[1:-1].split(",")]
        return text.strip("'\"")


def _point_names(settings: Mapping[str, Any], path: Path) -> tuple[tuple[str, ...], int]:
    shape = settings["kpt_shape"]
    shape = list(shape.values()) if isinstance(shape, dict) else shape
    is_shape = isinstance(shape, list) and len(shape) == 2 and all(type(one) is int for one in shape)
    if not is_shape or not 1 <= shape[0] <= 10_000 or shape[1] not in (2, 3):
        raise LabelError(f"{path / _SETTINGS} has the kpt_shape {str(shape)[:40]}", remedy="write kpt_shape: [17, 3]")
    given = settings.get("kpt_names")
    names = given.get(0) if isinstance(given, dict) else None
    if not isinstance(names, list) or len(set(map(str, names))) != shape[0]:
        names = [f"point {i}" for i in range(1, shape[0] + 1)]
    return tuple(map(str, names)), shape[1]


# Writing


def write(labels: VideoLabels, path: Path) -> None:
    """Write one text file for every frame with labels, empty for a frame without objects."""
    size = size_of(labels)
    make_folder(path / "labels")
    if issubclass(labels.kind, Keypoints):
        skeletons = Skeletons.of(labels.labels)
        names = {0: "object"}
        more = f"kpt_shape: [{len(skeletons.parts)}, 3]\nkpt_names:\n  0: {_json(list(skeletons.parts))}\n"
        lines = ((index, _pose_lines(skeletons, points_of(one), size)) for index, one in labels.labels.items())
    else:
        classes = _classes(labels)
        names = {number: labels.names.get(str(i), default_name(i)) for i, number in classes.items()}
        more = ""
        lines = ((index, _segments(ids_of(one), classes)) for index, one in labels.labels.items())
    files = ((f"{labels.video.number(index):05d}.txt", "".join(f"{line}\n" for line in of)) for index, of in lines)
    write_behind(lambda file: write_text(path / "labels" / file[0], file[1]), files)
    listed = "".join(f"  {number}: {_json(name)}\n" for number, name in names.items())
    write_text(path / _SETTINGS, f"path: .\ntrain: images\nval: images\nnames:\n{listed}{more}")


def _classes(labels: VideoLabels) -> dict[int, int]:
    """Number the objects from 0: every object is a class of its own."""
    objects: set[int] = set()
    for one in labels.labels.values():
        objects |= set(np.unique(ids_of(one)).tolist())
    return {identity: number for number, identity in enumerate(sorted(objects - {0}))}


def _segments(ids: np.ndarray, classes: Mapping[int, int]) -> Iterator[str]:
    height, width = ids.shape
    for identity in np.unique(ids[ids > 0]).tolist():
        vertices = outline(ids == identity) / (width, height)
        yield " ".join((str(classes[identity]), *(f"{value:.6f}" for value in vertices.ravel()), str(identity)))


def _pose_lines(skeletons: Skeletons, points: Keypoints, size: tuple[int, int]) -> Iterator[str]:
    height, width = size
    tracks = {individual: i for i, individual in enumerate(skeletons.individuals, 1)}
    for individual, one in skeletons.split(points).items():
        there = np.isfinite(one.xy).all(axis=1)
        fractions = np.where(there[:, None], (one.xy.astype(np.float64) + 0.5) / (width, height), 0)
        visibility = np.where(there, np.where(one.visible, 2, 1), 0)
        low, high = (
            (fractions[there].min(axis=0), fractions[there].max(axis=0)) if there.any() else (np.zeros(2), np.zeros(2))
        )
        box = (*((low + high) / 2).tolist(), *(high - low).tolist())
        values = [f"{x:.8f} {y:.8f} {v}" for (x, y), v in zip(fractions.tolist(), visibility.tolist(), strict=True)]
        yield " ".join(("0", *(f"{value:.6f}" for value in box), *values, str(tracks[individual])))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


FORMAT = Format(
    name="yolo",
    title="YOLO segment and pose text files (Ultralytics), with track ids",
    suffixes=(),
    kinds=("masks", "parts", "keypoints"),
    loses="confidence, states, size, rate and number of frames; names of individuals (they are numbered)",
    read=read,
    write=write,
    recognises=lambda path: bool(_label_files(path)),
)
