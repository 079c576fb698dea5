"""The record of a run, run.json: what it says of the annotations, and how it is validated when it is read.

An output folder may come from anyone and may be damaged, so every value is checked before it is used.
"""

import dataclasses
import hashlib
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.device import Device
from timecycle.errors import OutputError, SettingsError, first_line
from timecycle.formats.registry import FORMATS
from timecycle.labels import KINDS, Labels
from timecycle.labels.space import Objects
from timecycle.model.registry import PrecisionChoice
from timecycle.propagation.settings import PropagateConfig
from timecycle.runs.measurements import MeasurementConfig
from timecycle.runs.outputs import LabelFiles

FORMAT = 2  # of run.json and the folder around it
_MAX_BYTES = 256 << 20  # a record has a checksum for every annotated frame
_REMEDY = "propagate again with --overwrite, or use an undamaged copy of the folder"
_GIVE_A_RUN = "give the folder that `timecycle propagate ... -o FOLDER` wrote"

Settings = TypeVar("Settings", PropagateConfig, ConfidenceConfig)


def read_record(path: Path) -> dict[str, Any]:
    """Read the record of a run, finished or not, and validate every value."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError("it is too large")
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OutputError(f"{path.parent} holds no run", remedy=_GIVE_A_RUN) from None
    except (OSError, ValueError, RecursionError) as error:
        raise OutputError(f"{path} cannot be read: {first_line(error)}", remedy=_REMEDY) from error
    if not isinstance(record, dict) or "timecycle" not in record:
        raise OutputError(f"{path} is not the record of a run", remedy=f"{_GIVE_A_RUN}, or an empty one for a new run")
    if record.get("format") != FORMAT:
        raise OutputError(
            f"{path} was written by another version of timecycle",
            remedy="propagate again with --overwrite, or use the version of timecycle that wrote it",
        )
    for key, is_valid in _VALID.items():
        if not is_valid(record.get(key)):
            raise OutputError(f"{path} has a wrong value for {key}", remedy=_REMEDY)
    frames = record["video"]["frames"]
    if not all(index < frames for index in record["labels"]["frames"]):
        raise OutputError(f"{path} has annotated frames that the video lacks", remedy=_REMEDY)
    read_settings(record, "config", PropagateConfig)
    if record["confidence"]:
        read_settings(record, "confidence", ConfidenceConfig)
    return record


def read_settings(record: Mapping[str, Any], key: str, settings: type[Settings]) -> Settings:
    """Build settings from a section of a record."""
    try:
        hints, known = typing.get_type_hints(settings), {field.name for field in dataclasses.fields(settings)}
        for name, value in record[key].items():
            if name not in known or not _is(value, hints[name]):
                raise TypeError(f"{name} is {value!r}")
        return settings(**record[key])
    except (TypeError, SettingsError) as error:
        raise OutputError(f"run.json has wrong settings: {first_line(error)}", remedy=_REMEDY) from error


# Annotations


def annotations_record(
    kind: type[Labels], sha256_by_frame: Mapping[int, str], objects: Mapping[int, Objects]
) -> dict[str, Any]:
    """Describe the annotations: the checksum and objects (null: all) of each frame, and one checksum over all frames.

    The result does not depend on the order in which the annotations were given.
    """
    ordered = dict(sorted(sha256_by_frame.items()))
    whole = "".join(f"{index} {digest}\n" for index, digest in ordered.items())
    return {
        "kind": kind.kind,
        "frames": list(ordered),
        "sha256": hashlib.sha256(whole.encode()).hexdigest(),
        "sha256_by_frame": {str(index): digest for index, digest in ordered.items()},
        "objects_by_frame": {
            str(index): None if (there := objects[index]) is None else sorted(there) for index in ordered
        },
    }


def annotation_sha256(labels: Labels) -> str:
    """Return a checksum of the annotation of one frame."""
    digest = hashlib.sha256()
    for field in dataclasses.fields(labels):  # type: ignore[arg-type]
        if not field.compare:  # the file they came from
            continue
        value = getattr(labels, field.name)
        digest.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return digest.hexdigest()


def recorded_checksums(record: Mapping[str, Any]) -> dict[int, str]:
    """Return the checksums of a run's annotations by frame."""
    return {int(index): str(digest) for index, digest in record["labels"]["sha256_by_frame"].items()}


def recorded_objects(record: Mapping[str, Any]) -> dict[int, Objects]:
    """Return the objects that are annotated on each annotated frame of a run."""
    return {
        int(index): None if names is None else frozenset(names)
        for index, names in record["labels"]["objects_by_frame"].items()
    }


def colours_record(labels: Iterable[Labels]) -> dict[str, Any]:
    """Record the colours whose meaning only these annotations define, so that corrections may use them.

    Resuming does not compare them: they follow from the annotations.
    """
    table = {f"#{code:06x}": identity for one in labels for code, identity in one.own_colours().items()}
    return {"colours": dict(sorted(table.items()))} if table else {}


def recorded_colours(record: Mapping[str, Any]) -> dict[int, int]:
    """Return the object ids of the colours (0xRRGGBB) in which the objects of a run were annotated."""
    return {int(code.removeprefix("#"), 16): int(identity) for code, identity in (record.get("colours") or {}).items()}


# Validation


def _is(value: Any, hint: Any) -> bool:
    """Return whether a value from JSON has the type of a hint."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return any(_is(value, option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return hint is type(None) if value is None else isinstance(value, hint)


def _object(**hints: Any) -> Callable[[Any], bool]:
    """Return a check for a JSON object with values of these types, and perhaps others."""
    return lambda value: isinstance(value, dict) and all(_is(value.get(name), hint) for name, hint in hints.items())


def _is_text_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _is_labels(value: Any) -> bool:
    return (
        _object(kind=str, sha256=str, frames=list, sha256_by_frame=dict, objects_by_frame=dict)(value)
        and value["kind"] in KINDS
        and value["frames"]
        and all(_is(index, int) and index >= 0 for index in value["frames"])
        and all(list(value[by]) == [str(index) for index in value["frames"]] for by in _BY_FRAME)
        and _is_text_by_name(value["sha256_by_frame"])
        and all(
            names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names))
            for names in value["objects_by_frame"].values()
        )
    )


_BY_FRAME = ("sha256_by_frame", "objects_by_frame")


def _is_video(value: Any) -> bool:
    sizes = ("frames", "width_px", "height_px")
    hints = dict.fromkeys(sizes, int)
    is_described = _object(name=str, sha256=str, assumed_fps=float | None, **hints)(value)
    return is_described and all(value[name] > 0 for name in sizes)


def _is_colours(value: Any) -> bool:
    """Return whether a value maps colours (#rrggbb) to object ids."""
    return isinstance(value, dict) and all(
        re.fullmatch("#[0-9a-f]{6}", code) and _is(identity, int) and 1 <= identity <= 65535
        for code, identity in value.items()
    )


def _is_outputs(value: Any) -> bool:
    if not _object(label_files=LabelFiles)(value):
        return False
    formats = value.get("formats", [])
    if not isinstance(formats, list) or not all(name in FORMATS for name in formats):
        return False
    try:
        MeasurementConfig.of_record(value)
    except SettingsError:
        return False
    return True


def _is_exports(value: Any) -> bool:
    """Return whether a value maps formats to the number of corrections of the labels written in them."""
    return isinstance(value, dict) and all(_is(corrections, int) for corrections in value.values())


_is_origin = _object(video=str, fps=float | None, encoder=str, device=Device, precision=PrecisionChoice)

_VALID: dict[str, Callable[[Any], bool]] = {
    "status": lambda value: value in ("running", "finished"),
    "video": _is_video,
    "labels": _is_labels,
    "encoder": _object(name=str, sha256=str, form=str),
    "config": lambda value: isinstance(value, dict),
    "confidence": lambda value: isinstance(value, dict),  # empty: not estimated
    "names": _is_text_by_name,
    "outputs": _is_outputs,
    "matching": lambda value: value is None or _object(rounding=str)(value),
    "colours": lambda value: value is None or _is_colours(value),
    "origin": lambda value: value is None or _is_origin(value),
    "corrections": lambda value: value is None or (_is(value, int) and value >= 0),
    "seconds": lambda value: value is None or _is(value, float),
    "exports": lambda value: value is None or _is_exports(value),
}
