"""What can be exported from a run beside the formats of other tools (`format_exports`): files that it has already.

An export is one file, with the bytes of the command line.
"""

import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timecycle.files import atomic_write
from timecycle.progress import OnProgress

Write = Callable[[Path, Path, OnProgress], None]  # from the run's folder to a file

_LEFT_OUT = (".work", ".correction", ".passes", ".lock", "history", "review")
_DATE = (1980, 1, 1, 0, 0, 0)  # the oldest that a zip can hold: the same run gives the same file


@dataclass(frozen=True)
class Export:
    """A file that the page offers."""

    title: str
    about: str
    suffix: str
    needs: str  # a file or folder of the run, without which there is nothing to export
    write: Write


def _zip(target: Path, files: Iterable[tuple[Path, str]], progress: OnProgress) -> None:
    listed = list(files)
    with atomic_write(target) as file, zipfile.ZipFile(file, "w") as archive:
        for done, (path, name) in enumerate(listed, 1):
            with path.open("rb") as content, archive.open(zipfile.ZipInfo(name, _DATE), "w") as entry:
                shutil.copyfileobj(content, entry, 1 << 20)
            progress(done, len(listed))


def zip_folder(folder: Path, target: Path, progress: OnProgress) -> None:
    """Put the files of a folder into a zip."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    _zip(target, ((path, path.relative_to(folder).as_posix()) for path in files), progress)


def _labels(folder: Path, target: Path, progress: OnProgress) -> None:
    zip_folder(folder / "labels", target, progress)


def _tables(folder: Path, target: Path, progress: OnProgress) -> None:
    names = ("frames.csv", "objects.csv", "keypoints.csv", "measurements.csv", "run.json")
    _zip(target, ((folder / name, name) for name in names if (folder / name).is_file()), progress)


def _everything(folder: Path, target: Path, progress: OnProgress) -> None:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    kept = (path for path in paths if path.relative_to(folder).parts[0] not in _LEFT_OUT)
    _zip(target, ((path, f"{folder.name}/{path.relative_to(folder).as_posix()}") for path in kept), progress)


def _file(name: str) -> Write:
    def write(folder: Path, target: Path, progress: OnProgress) -> None:
        with (folder / name).open("rb") as content, atomic_write(target) as file:
            shutil.copyfileobj(content, file, 1 << 20)
        progress(1, 1)

    return write


EXPORTS: dict[str, Export] = {
    "measurements": Export(
        "Measurements",
        "a table: area, position, axes, speed and confidence of every object on every frame",
        ".csv",
        "measurements.csv",
        _file("measurements.csv"),
    ),
    "plot": Export(
        "Plot of the measurements",
        "area, path and speed over time",
        ".png",
        "measurements.png",
        _file("measurements.png"),
    ),
    "overlay": Export(
        "Overlay video", "the video with its labels drawn on it", ".mp4", "overlay.mp4", _file("overlay.mp4")
    ),
    "labels": Export("Label files", "one file for each frame, as they are on disk", ".zip", "labels", _labels),
    "tables": Export("Tables", "confidence of each frame and object", ".zip", "frames.csv", _tables),
    "everything": Export(
        "Everything", "labels, tables, measurements, confidence and overlay", ".zip", "run.json", _everything
    ),
}


def available(folder: Path, formats: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """List what a run can be exported to: the formats of other tools first, then files that the run has.

    Label files as they are on disk are left out where a format is just that.
    """
    files = [
        {"name": name, "group": "files", "title": one.title, "about": one.about, "suffix": one.suffix, "install": None}
        for name, one in EXPORTS.items()
        if (folder / one.needs).exists() and not (name == "labels" and formats)
    ]
    labels = [
        {**{key: one[key] for key in ("name", "title", "suffix", "install")}, "group": "labels", "about": one["loses"]}
        for one in formats
    ]
    return labels + files
