"""The folder that the page may see: videos and runs in it, and no path that leads out of it."""

from pathlib import Path
from typing import Any

from timecycle.errors import SettingsError
from timecycle.tiff_header import is_stack

_VIDEO_SUFFIXES = {".3gp", ".asf", ".avi", ".flv", ".gif", ".m4v", ".mj2", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg"} | {
    *(".mts", ".mxf", ".ogv", ".ts", ".webm", ".wmv")
}
_IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"}
_MOST = 500  # entries that are listed
_LOOKED_AT = 50  # files of a folder that are looked at to see whether it holds images


def inside(root: Path, relative: str) -> Path:
    """Return the path below the root, with all links resolved; refuse one that leads out of it."""
    try:
        path = (root / relative).resolve()
        if path.is_relative_to(root.resolve()) and path.exists():
            return path
    except (OSError, ValueError, RuntimeError):  # a name that is too long, a zero byte, links in a circle
        pass
    raise SettingsError(
        f"{relative[:80]!r} is not there, or outside of the folder that was opened",
        remedy="start `timecycle ui` with the folder that holds it",
    )


def holds_projects(folder: Path) -> bool:
    """Return whether a folder is one to choose from, and not itself the frames of a video."""
    return not _holds_images(folder)


def listing(root: Path, relative: str) -> dict[str, Any]:
    """List the folders, videos and runs of a folder below the root."""
    folder = inside(root, relative)
    try:
        paths = sorted(folder.iterdir(), key=lambda path: (not path.is_dir(), path.name.lower()))
    except OSError as error:
        raise SettingsError(f"{folder.name} cannot be listed: {error.strerror}", remedy="choose another") from error
    entries = [
        {"name": path.name, "path": str(path.relative_to(root.resolve())), "kind": kind}
        for path in paths
        if not path.name.startswith(".") and (kind := _kind(root, path)) is not None
    ]
    here = folder.relative_to(root.resolve())
    return {
        "path": "" if here == Path() else str(here),
        "parent": None if here == Path() else str(here.parent if here.parent != Path() else ""),
        "entries": entries[:_MOST],
        "left_off": max(0, len(entries) - _MOST),
    }


def _kind(root: Path, path: Path) -> str | None:
    try:
        if not path.resolve().is_relative_to(root.resolve()):
            return None
        if path.is_file():
            return "video" if path.suffix.lower() in _VIDEO_SUFFIXES or is_stack(path) else None
        if (path / "run.json").is_file():
            return "run"
        if (path / "session.json").is_file():
            return None  # annotations of a video, which open with it
        return "images" if path.is_dir() and _holds_images(path) else "folder" if path.is_dir() else None
    except (OSError, RuntimeError):
        return None


def _holds_images(folder: Path) -> bool:
    first = (path for _, path in zip(range(_LOOKED_AT), folder.iterdir(), strict=False))
    return sum(path.suffix.lower() in _IMAGE_SUFFIXES and not is_stack(path) for path in first) > 1
