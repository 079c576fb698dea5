"""Read and check the JSON files of COCO and YouTube-VIS, which share their tables of videos and categories."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from timecycle.errors import LabelError
from timecycle.formats.video_labels import MAX_FRAMES, VideoFacts, VideoLabels, usable_names
from timecycle.labels.file import note
from timecycle.labels.masks import Masks

_MAX_BYTES = 1 << 30
_MAX_ID = 65535
_ID_KEYS = ("id", "image_id", "video_id", "category_id")  # by which rows of other tables are looked up
_REMEDY = "export the labels again, or check that the file is whole"

Table = Sequence[Mapping[str, Any]]


def read_json(path: Path, *tables: str) -> dict[str, Table]:
    """Read the named tables, lists of objects, of a JSON file; a missing table is empty."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise LabelError(f"{path} is larger than {_MAX_BYTES >> 30} GiB", remedy="split it by video")
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise LabelError(f"{path} cannot be read: {str(error)[:200]}", remedy=_REMEDY) from error
    if not isinstance(content, dict):
        raise LabelError(f"{path} is not a file of annotations", remedy=_REMEDY)
    found = {name: content.get(name) or [] for name in tables}
    for name, table in found.items():
        if not isinstance(table, list) or not all(isinstance(row, dict) for row in table):
            raise LabelError(f"{path} has no list of {name}", remedy=_REMEDY)
        for row in table:
            wrong = next((key for key in _ID_KEYS if isinstance(row.get(key), list | dict)), None)
            if wrong is not None:
                raise LabelError(f"{path} has {str(row[wrong])[:40]} for {wrong} in {name}", remedy=_REMEDY)
    return found


def starts_with_tables(path: Path, *names: str) -> bool:
    """Return whether a JSON file has these tables, from its beginning and its end: tables may come in any order."""
    with path.open("rb") as file:
        ends = file.read(1 << 16)
        file.seek(max(file.seek(0, 2) - (1 << 16), 0))
        ends += file.read()
    return ends.lstrip()[:1] == b"{" and all(f'"{name}"'.encode() in ends for name in names)


def number(row: Mapping[str, Any], key: str, place: str, *, least: float = 0, most: float = 1e12) -> float:
    """Return a number of a row; refuse other values."""
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise LabelError(f"{place} has {str(value)[:40]!r} for {key}", remedy=_REMEDY)
    return value


def whole(row: Mapping[str, Any], key: str, place: str, *, least: int = 0, most: int = 10**12) -> int:
    """Return a whole number of a row; refuse other values."""
    value = number(row, key, place, least=least, most=most)
    if value != int(value):
        raise LabelError(f"{place} has {value} for {key}, which is not a whole number", remedy=_REMEDY)
    return int(value)


def is_score(value: Any) -> TypeGuard[float]:
    """Return whether a value can be a confidence: a number from 0 to 1."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def image_size(row: Mapping[str, Any], place: str) -> tuple[int, int]:
    """Return (height, width) of an image or video."""
    return whole(row, "height", place, least=1, most=1 << 16), whole(row, "width", place, least=1, most=1 << 16)


def single_video(path: Path, videos: Table) -> Mapping[str, Any]:
    """Return the one video of a file, or nothing for a file without; refuse several, which are several runs here."""
    if len(videos) > 1:
        raise LabelError(f"{path} has {len(videos)} videos", remedy="split it: one file for each video")
    return videos[0] if videos else {}


def video_facts(path: Path, video: Mapping[str, Any], size: tuple[int, int] | None) -> VideoFacts:
    """Return what a row of a table of videos says of the video."""
    place = f"{path}: the video"
    frames = whole(video, "length", place, most=MAX_FRAMES) if video.get("length") is not None else None
    fps = number(video, "fps", place, least=1e-6, most=1e6) if video.get("fps") is not None else None
    return VideoFacts(name=str(path), frames=frames, size=size, fps=fps)


def object_ids(path: Path, tracks: Iterable[Any]) -> dict[Any, int]:
    """Return an object id for each track id: the same number where possible, otherwise numbered in order."""
    unique = list(dict.fromkeys(tracks))
    if all(type(track) is int and 1 <= track <= _MAX_ID for track in unique):
        return {track: track for track in unique}
    if len(unique) > _MAX_ID:
        raise LabelError(f"{path} has {len(unique)} objects", remedy=f"give at most {_MAX_ID}")
    note(f"{path}: the ids of its tracks cannot be object ids; objects are numbered from 1 in the order of the file")
    return {track: i for i, track in enumerate(unique, 1)}


def object_names(path: Path, categories: Table, category_of: Mapping[int, Any]) -> dict[str, str]:
    """Name each object after its category where no other object is of that category."""
    names = {row.get("id"): row.get("name") for row in categories if isinstance(row.get("name"), str)}
    count = Counter(category_of.values())
    found = {
        str(identity): str(names[category])
        for identity, category in category_of.items()
        if category in names and count[category] == 1 and names[category] != default_name(identity)
    }
    return usable_names(found, path)


def default_name(identity: int | str) -> str:
    """Return the name of the category of an object that has no name."""
    return f"object {identity}"


def write_categories(labels: VideoLabels, objects: Sequence[int]) -> list[dict[str, Any]]:
    """Return a table with one category for each object."""
    return [{"id": one, "name": labels.names.get(str(one), default_name(one))} for one in objects]


def masks_of(size: tuple[int, int], regions: Iterable[tuple[int, Callable[[], np.ndarray]]], place: str) -> Masks:
    """Return masks of regions by object id; where they overlap, the later one wins, with a note."""
    ids = np.zeros(size, np.uint16)
    overlapping = 0
    for identity, region_of in regions:
        region = region_of()
        overlapping += int(np.count_nonzero(ids[region]))
        ids[region] = identity
    if overlapping:
        note(f"{place}: {overlapping} pixels belong to several objects; the last one in the file has them")
    return Masks(ids)


def box_of(region: np.ndarray) -> list[int]:
    """Return [left, top, width, height] of a region."""
    y, x = np.flatnonzero(region.any(axis=1)), np.flatnonzero(region.any(axis=0))
    return [int(x[0]), int(y[0]), int(x[-1] - x[0]) + 1, int(y[-1] - y[0]) + 1]
