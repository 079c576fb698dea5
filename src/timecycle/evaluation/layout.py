"""Finding a dataset's folders and files, or saying exactly which one is missing."""

import re
from collections.abc import Sequence
from pathlib import Path

from timecycle.errors import SettingsError
from timecycle.files import natural_order

_IMAGES = (".jpg", ".jpeg", ".png")


def folder_of(path: Path, *, what: str, remedy: str = "check ROOT") -> Path:
    """The folder, if it is there; what the nearest folder above it holds is added to the remedy."""
    if not path.is_dir():
        nearest = next((parent for parent in path.parents if parent.is_dir()), None)
        there = f": {nearest} is there and holds {_contents(nearest)}" if nearest else ""
        raise SettingsError(f"there is no folder {path} ({what})", remedy=f"{remedy}{there}")
    return path


def images_in(folder: Path, *, what: str, remedy: str = "check ROOT") -> tuple[Path, ...]:
    """The images of a folder in natural order; at least one."""
    files = folder_of(folder, what=what, remedy=remedy).iterdir()
    # Names with a dot before them are not data: some systems leave ._00000.jpg beside each file they copy.
    there = (path for path in files if path.suffix.lower() in _IMAGES and not path.name.startswith("."))
    images = sorted(there, key=natural_order)
    if not images:
        raise SettingsError(f"{folder} holds no images ({what})", remedy=f"it should hold {' or '.join(_IMAGES)} files")
    return tuple(images)


def and_more(names: Sequence[str]) -> str:
    """The first of some names, and how many there are besides: "00002.png and 3 more"."""
    return names[0] + (f" and {len(names) - 1} more" if names[1:] else "")


def listed(path: Path) -> list[str]:
    """The clips that a list names, in order: plain names, or paths of frames whose folder is the clip."""
    names: dict[str, None] = {}
    for line in path.read_text(encoding="utf-8").split("\n"):
        words = line.split()
        if words:
            framed = re.search(r"([^/]+)/[^/]+\.(?:jpg|jpeg|png)$", words[0])
            names[framed[1] if framed else words[0]] = None
    if not names:
        raise SettingsError(f"{path} names no sequence", remedy="restore it from the dataset's release")
    return list(names)


def _contents(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "") or "nothing"
