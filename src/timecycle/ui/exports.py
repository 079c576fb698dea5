"""What can be exported from a run: one entry for each format, which the page lists.

A format writes one file. Everything here exists in the output folder already, so its bytes are those of the command
line.
"""

import shutil
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from timecycle.files import atomic_write

OnProgress = Callable[[int, int], None]
Write = Callable[[Path, Path, OnProgress], None]  # from the run's folder to a file

_LEFT_OUT = (".work", ".correction", ".passes", ".lock", "history", "review")
_DATE = (1980, 1, 1, 0, 0, 0)  # the oldest that a zip can hold: the same run gives the same file


@dataclass(frozen=True)
class Format:
    """A way to export a run."""

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


def _labels(folder: Path, target: Path, progress: OnProgress) -> None:
    _zip(target, ((path, path.name) for path in sorted((folder / "labels").iterdir())), progress)


def _tables(folder: Path, target: Path, progress: OnProgress) -> None:
    names = ("frames.csv", "objects.csv", "keypoints.csv", "run.json")
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


FORMATS: dict[str, Format] = {
    "labels": Format("Labels", "one file for each frame: PNG masks, or CSV points", ".zip", "labels", _labels),
    "points": Format("Keypoint table", "all points of all frames", ".csv", "keypoints.csv", _file("keypoints.csv")),
    "overlay": Format(
        "Overlay video", "the video with its labels drawn on it", ".mp4", "overlay.mp4", _file("overlay.mp4")
    ),
    "tables": Format("Tables", "confidence of each frame and object", ".zip", "frames.csv", _tables),
    "everything": Format("Everything", "labels, tables, confidence maps and overlay", ".zip", "run.json", _everything),
}


def available(folder: Path) -> list[dict[str, str]]:
    """List the formats that a run can be exported to, for the page."""
    return [
        {"name": name, "title": one.title, "about": one.about, "suffix": one.suffix}
        for name, one in FORMATS.items()
        if (folder / one.needs).exists()
    ]
