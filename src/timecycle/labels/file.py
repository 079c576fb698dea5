"""A file of labels before it is opened."""

from pathlib import Path

from timecycle.errors import LabelError
from timecycle.files import is_special


def check_label_file(path: Path) -> None:
    """Refuse what is not there, and pipes and devices, from which reading might wait for ever."""
    try:
        missing = not path.is_file()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise LabelError(f"{_short(path)} cannot be read: {error.strerror}", remedy="check the path") from error
    if is_special(path):
        raise LabelError(f"{path} is not a regular file but a pipe or a device", remedy="save the labels to a file")
    if missing:
        raise LabelError(f"there is no label file {path}", remedy="check the path given as LABELS")


def _short(path: Path) -> str:
    return f"{str(path)[:80]}..." if len(str(path)) > 200 else str(path)
