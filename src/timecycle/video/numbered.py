"""Image files named by a pattern with the frame number in it, as film makers write it: shot_%04d.jpg, shot_####.jpg."""

import re
from collections.abc import Sequence
from pathlib import Path

from timecycle.errors import VideoError
from timecycle.files import natural_order
from timecycle.video.image_file import IMAGE_SUFFIXES
from timecycle.video.images import check_no_gap

_NUMBER = re.compile(r"%(?:0?(\d{1,2}))?d|(#+)")


def is_numbered(path: Path) -> bool:
    """Whether the file's name stands for numbered images."""
    return _NUMBER.search(path.name) is not None and path.suffix.lower() in IMAGE_SUFFIXES


def images_numbered(path: Path) -> Sequence[Path]:
    """The images that the pattern stands for, in the order of their numbers; a gap is an error, as in a folder."""
    name = re.compile(_digits(path.name))
    try:
        found = [file for file in path.parent.iterdir() if name.fullmatch(file.name) and file.is_file()]
    except OSError as error:
        raise VideoError(f"{path.parent} cannot be listed: {error.strerror}", remedy="check the path") from error
    if not found:
        raise VideoError(f"no image matches {path}", remedy="check the pattern: %04d or #### are four digits")
    paths = sorted(found, key=natural_order)
    check_no_gap(path.parent, paths)
    return paths


def _digits(name: str) -> str:
    """A regular expression for names with digits in the place of each number."""
    words, at = "", 0
    for number in _NUMBER.finditer(name):
        least = int(number[1] or 1) if number[2] is None else len(number[2])
        words += re.escape(name[at : number.start()]) + rf"[0-9]{{{least},}}"
        at = number.end()
    return words + re.escape(name[at:])
