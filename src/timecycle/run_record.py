"""An output folder read with care: it may have come from anyone, and may be damaged.

Nothing in it is followed elsewhere, and what run.json says is held against what a run writes.
"""

import json
import math
import os
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from timecycle.errors import OutputError, SettingsError, first_line
from timecycle.labels import KINDS
from timecycle.model.inference import Device
from timecycle.model.registry import PrecisionChoice
from timecycle.outputs import FILES, PASSES, REVIEW_FILES, LabelFiles
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.settings import PropagateConfig

RECORD = "run.json"
FOLDERS = ("labels", "confidence", "history", "review", ".work", ".correction", PASSES)
_MOST_BYTES = 256 << 20  # a record has a checksum for every annotated frame
_AGAIN = "carry the labels again with --overwrite, or take a copy of the folder that is whole"

Settings = TypeVar("Settings", PropagateConfig, TrustConfig)


def refuse_links(folder: Path) -> None:
    """Refuse a folder in which a name that a run uses stands for something elsewhere, or for no file at all.

    What is written through a link would replace a file of the user's, and a pipe would be waited for without end.
    """
    names = (RECORD, ".lock", *FILES, *REVIEW_FILES, *FOLDERS)
    strange = next((path for name in names for path in _strange(folder / name)), None)
    if strange is not None:
        raise OutputError(
            f"{strange} is a {'link' if strange.is_symlink() else 'pipe or device'}, not a file of the run",
            remedy="take a copy of the folder without it; do not trust a folder that came so",
        )


def _strange(path: Path) -> Iterator[Path]:
    """What is neither a file nor a folder, there and below."""
    if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
        yield path
    elif path.is_dir():
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _strange(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)


def read_record(folder: Path) -> dict[str, Any]:
    """run.json of a run, finished or not, whose every value is of its kind."""
    path = folder / RECORD
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is too large")
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict) or "timecycle" not in record:
            raise ValueError("no run wrote it")
    except FileNotFoundError:
        raise OutputError(
            f"{folder} holds no run", remedy="give the folder that `timecycle propagate ... -o FOLDER` wrote"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise OutputError(f"{path} cannot be read: {first_line(error)}", remedy=_AGAIN) from error
    for name, is_right in _PARTS.items():
        if not is_right(record.get(name)):
            raise OutputError(f"{path} has a wrong value for {name}", remedy=_AGAIN)
    frames = record["video"]["frames"]
    if not all(index < frames for index in record["labels"]["frames"]):
        raise OutputError(f"{path} has annotated frames that the video lacks", remedy=_AGAIN)
    read_settings(record, "config", PropagateConfig)
    if record.get("trust"):
        read_settings(record, "trust", TrustConfig)
    return record


def read_settings(record: Mapping[str, Any], name: str, kind: type[Settings]) -> Settings:
    """Settings as a record has them."""
    try:
        hints, known = typing.get_type_hints(kind), {field.name for field in fields(kind)}
        for setting, value in record[name].items():
            if setting not in known or not _is(value, hints[setting]):
                raise TypeError(f"{setting} is {value!r}")
        return kind(**record[name])
    except (TypeError, SettingsError) as error:
        raise OutputError(f"{RECORD} has wrong settings: {first_line(error)}", remedy=_AGAIN) from error


def _is(value: Any, hint: Any) -> bool:
    """Whether a value that came through JSON is of a kind."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return any(_is(value, option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return hint is type(None) if value is None else isinstance(value, hint)


def _table(**kinds: Any) -> Callable[[Any], bool]:
    """Whether something is a table with values of these kinds, and perhaps others."""
    return lambda value: isinstance(value, dict) and all(_is(value.get(name), kind) for name, kind in kinds.items())


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _is_labels(value: Any) -> bool:
    return (
        _table(kind=str, sha256=str, frames=list, sha256_by_frame=dict | None, objects_by_frame=dict | None)(value)
        and value["kind"] in KINDS
        and value["frames"]
        and all(_is(index, int) and index >= 0 for index in value["frames"])
        and _texts(value.get("sha256_by_frame") or {})
        and all(
            names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names))
            for names in (value.get("objects_by_frame") or {}).values()
        )
    )


def _is_video(value: Any) -> bool:
    sizes = ("frames", "width_px", "height_px")
    return _table(name=str, sha256=str, **dict.fromkeys(sizes, int))(value) and all(value[name] > 0 for name in sizes)


def _is_colours(value: Any) -> bool:
    """Object ids by colour, as #rrggbb."""
    return isinstance(value, dict) and all(
        re.fullmatch("#[0-9a-f]{6}", code) and _is(identity, int) and 1 <= identity <= 65535
        for code, identity in value.items()
    )


_origin = _table(video=str, fps=float | None, encoder=str, device=Device, precision=PrecisionChoice)
_outputs = _table(label_files=LabelFiles)

_PARTS: dict[str, Callable[[Any], bool]] = {
    "status": lambda value: value in ("running", "finished"),
    "video": _is_video,
    "labels": _is_labels,
    "encoder": _table(name=str, sha256=str, form=str),
    "config": lambda value: isinstance(value, dict),
    "trust": lambda value: value is None or isinstance(value, dict),
    "names": lambda value: value is None or _texts(value),
    "colours": lambda value: value is None or _is_colours(value),
    "outputs": lambda value: value is None or _outputs(value),
    "origin": lambda value: value is None or _origin(value),
    "corrections": lambda value: value is None or (_is(value, int) and value >= 0),
    "seconds": lambda value: value is None or _is(value, float),
}
