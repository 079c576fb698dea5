"""Exports of a run in the formats of other tools. Imported by workers and jobs only: the API brings torch."""

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from timecycle.api.conversion import TargetFormat, convert, target_formats
from timecycle.errors import OutputError
from timecycle.progress import OnProgress
from timecycle.ui.exports import zip_folder


def listed(kind: str) -> list[dict[str, Any]]:
    """List the formats that can hold the labels of a run, for the page; `install` is what a user has to do first."""
    formats = target_formats(kind)
    names = [one.name for one in formats]
    return [
        {
            **asdict(one),
            "name": _called(one, is_first=one.name not in names[:i]),
            "suffix": one.suffix or ".zip",  # of a folder
        }
        for i, one in enumerate(formats)
    ]


def _called(one: TargetFormat, *, is_first: bool) -> str:
    """Return what the page calls a format: as the command line does, other files of the same format with a suffix."""
    return one.name if is_first else f"{one.name}{one.suffix}"


def write(folder: Path, name: str, target: Path, progress: OnProgress) -> None:
    """Write a run in a format to one file: the bytes of `timecycle convert`, a folder as a zip of them."""
    if target.suffix != ".zip":
        convert(folder, target, target_format=name.partition(".")[0], overwrite=True, progress=progress)
        return
    with TemporaryDirectory(dir=target.parent, prefix=".export") as scratch:
        written = Path(scratch) / "labels"
        convert(folder, written, target_format=name, progress=progress)
        if not any(written.iterdir()):
            raise OutputError("there are no labels to export", remedy="propagate first")
        zip_folder(written, target, progress)
