"""Find the folders and files of a dataset, or say exactly which one is missing."""

import re
from collections.abc import Sequence
from pathlib import Path

from timecycle.errors import SettingsError
from timecycle.files import natural_order

_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")


def find_folder(path: Path, *, what: str, remedy: str = "check ROOT") -> Path:
    """Return the folder if it exists; the error names the contents of the nearest folder above it."""
    if not path.is_dir():
        nearest = next((parent for parent in path.parents if parent.is_dir()), None)
        there = f": {nearest} is there and holds {_contents(nearest)}" if nearest else ""
        raise SettingsError(f"there is no folder {path} ({what})", remedy=f"{remedy}{there}")
    return path


def find_images(folder: Path, *, what: str, remedy: str = "check ROOT") -> tuple[Path, ...]:
    """List the images of a folder in natural order; at least one."""
    files = find_folder(folder, what=what, remedy=remedy).iterdir()
    # Hidden files are not data: some systems leave ._00000.jpg beside each file they copy.
    visible = (path for path in files if path.suffix.lower() in _IMAGE_SUFFIXES and not path.name.startswith("."))
    images = sorted(visible, key=natural_order)
    if not images:
        raise SettingsError(
            f"{folder} holds no images ({what})", remedy=f"it should hold {' or '.join(_IMAGE_SUFFIXES)} files"
        )
    return tuple(images)


def first_and_count(names: Sequence[str]) -> str:
    """Name the first and count the others: "00002.png and 3 more"."""
    return names[0] + (f" and {len(names) - 1} more" if names[1:] else "")


def read_clip_names(path: Path) -> list[str]:
    """Read the clip names of a list, in order: plain names, or paths of frames whose folder is the clip."""
    names: dict[str, None] = {}
    for line in path.read_text(encoding="utf-8").split("\n"):
        words = line.split()
        if words:
            frame = re.search(r"([^/]+)/[^/]+\.(?:jpg|jpeg|png)$", words[0])
            names[frame[1] if frame else words[0]] = None
    if not names:
        raise SettingsError(f"{path} names no sequence", remedy="restore it from the dataset's release")
    return list(names)


def _contents(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "") or "nothing"
