"""Labels from the command line: a file for frame 0, INDEX=FILE, or a folder of files named by frame number."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from timecycle.errors import LabelError
from timecycle.files import natural_order
from timecycle.labels.coordinates import Coordinates
from timecycle.labels.keypoints import Keypoints, read_keypoints
from timecycle.labels.masks import Masks, colours_in
from timecycle.labels.parts import Parts
from timecycle.labels.space import Labels
from timecycle.labels.texture import Texture

KINDS: dict[str, type[Labels]] = {kind.kind: kind for kind in (Masks, Parts, Keypoints, Texture, Coordinates)}


_SUFFIXES = (".png", ".csv", ".npy", ".tif", ".tiff", ".bmp")


def read_labels(
    arguments: Sequence[str | Path], *, kind: str | None = None, complete: bool = False
) -> dict[int, Labels]:
    """Labels by frame number. Without a kind, CSV files are keypoints and images are masks.

    `complete`: masks and parts show every object of their frame (see Masks).
    """
    if arguments and all(str(argument).lower().endswith(".csv") for argument in arguments):
        return dict(_read_points([Path(argument) for argument in arguments]))
    files = _files(arguments)
    kind = kind or _guess_kind(files)
    if kind not in KINDS:
        raise LabelError(f"there is no kind of labels {kind!r}", remedy=f"choose one of {', '.join(KINDS)}")
    if kind == Keypoints.kind:
        return dict(_read_points(list(files.values())))
    if kind == Masks.kind:
        colours = colours_in(files.values())
        masks = {index: Masks.read(path, colours=colours) for index, path in files.items()}
        return {index: dataclasses.replace(m, complete=complete) for index, m in masks.items()}
    if kind == Parts.kind:
        parts = {index: Parts.read(path) for index, path in files.items()}
        return {index: dataclasses.replace(p, complete=complete) for index, p in parts.items()}
    return {index: KINDS[kind].read(path) for index, path in files.items()}


def _files(arguments: Sequence[str | Path]) -> dict[int, Path]:
    files: dict[int, Path] = {}
    for argument in arguments:
        for index, path in _expand(str(argument)).items():
            if index in files:
                raise LabelError(
                    f"frame {index} has two label files: {files[index]} and {path}",
                    remedy="give each frame one file, as INDEX=FILE",
                )
            files[index] = path
    return files


def _expand(argument: str) -> dict[int, Path]:
    numbered = re.fullmatch(r"(\d+)=(.+)", argument)
    if numbered and not Path(argument).exists():
        return {int(numbered[1]): Path(numbered[2])}
    path = Path(argument)
    if not path.is_dir():
        return {0: path}
    found: dict[int, Path] = {}
    for file in sorted(path.iterdir(), key=natural_order):
        if file.suffix.lower() in _SUFFIXES and not file.name.startswith("."):
            number = re.search(r"(\d+)\D*$", file.stem)
            if number is None:
                raise LabelError(
                    f"{file} has no frame number in its name", remedy="name label files by frame: 00012.png"
                )
            index = int(number[1])
            if index in found:
                raise LabelError(
                    f"frame {index} has two label files: {found[index]} and {file}",
                    remedy="keep one file for each frame",
                )
            found[index] = file
    if not found:
        raise LabelError(
            f"the folder {path} has no label files", remedy="put files named by frame number in it: 00012.png"
        )
    return found


def _guess_kind(files: Mapping[int, Path]) -> str:
    suffixes = {path.suffix.lower() for path in files.values()}
    if suffixes == {".csv"}:
        return Keypoints.kind
    return Coordinates.kind if suffixes == {".npy"} else Masks.kind


def _read_points(files: Sequence[Path]) -> dict[int, Keypoints]:
    """A CSV says itself which frames it is about; no two files may place points on the same frame."""
    points: dict[int, Keypoints] = {}
    for path in files:
        if re.match(r"\d+=", str(path)) and not path.exists():
            raise LabelError(
                f"{path} numbers a CSV, whose rows say themselves which frame they belong to",
                remedy="give the file alone and write the frame's number in its `frame` column",
            )
        for index, found in read_keypoints(path).items():
            if index in points:
                raise LabelError(
                    f"{path} places points on frame {index}, as another file does",
                    remedy="keep the points of one frame in one file",
                )
            points[index] = found
    return points
