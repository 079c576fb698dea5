"""Label files: open them if they are regular, whole and of a sane size, and note how ambiguous ones were read.

The command line prints notes to standard error; so does Python, unless logging is configured otherwise.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from timecycle.errors import LabelError, VideoError
from timecycle.files import is_special
from timecycle.video.frame import DEFAULT_MAX_PIXELS
from timecycle.video.image_file import IMAGE_FORMATS, check_png, image_size

log = logging.getLogger("timecycle")


def check_label_file(path: Path) -> None:
    """Refuse missing files, and pipes and devices, from which reading may block for ever."""
    try:
        missing = not path.is_file()
    except OSError as error:  # the name is too long, or the folder is not readable
        raise LabelError(f"{_short(path)} cannot be read: {error.strerror}", remedy="check the path") from error
    if is_special(path):
        raise LabelError(f"{path} is not a regular file but a pipe or a device", remedy="save the labels to a file")
    if missing:
        raise LabelError(f"there is no label file {path}", remedy="check the path given as LABELS")


@contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    """Open a label image with all its pixels loaded."""
    check_label_file(path)
    try:
        check_png(path)
    except VideoError as error:
        raise LabelError(error.problem, remedy=error.remedy) from error
    remedy = "give a PNG with one value or colour per object"
    try:
        image_size(path, max_pixels=DEFAULT_MAX_PIXELS)  # reads only the header, to refuse before memory is allocated
        image = Image.open(path, formats=IMAGE_FORMATS)
        image.load()
    except VideoError as error:
        raise LabelError(error.problem, remedy=remedy) from error
    except Exception as error:  # decoders of damaged files raise nearly anything
        raise LabelError(f"{path} cannot be read as an image: {error}", remedy=remedy) from error
    with image:
        yield image


def note(text: str) -> None:
    """Tell the user how something was read."""
    log.warning("note: %s", text)


def frames_in_words(frames: Iterable[int]) -> str:
    """Describe frames as `frame 3` or `frames 1-4, 7, 9-12`."""
    runs: list[list[int]] = []
    for frame in sorted(frames):
        if runs and runs[-1][1] == frame - 1:
            runs[-1][1] = frame
        else:
            runs.append([frame, frame])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"frame {text}" if len(runs) == 1 and runs[0][0] == runs[0][1] else f"frames {text}"


def files_in_words(paths: Sequence[Path]) -> str:
    """Describe files as `a.png` or `a.png and 3 more files`."""
    more = len(paths) - 1
    return f"{paths[0]} and {more} more file{'s' if more > 1 else ''}" if more else str(paths[0])


def _short(path: Path) -> str:
    return f"{str(path)[:80]}..." if len(str(path)) > 200 else str(path)
