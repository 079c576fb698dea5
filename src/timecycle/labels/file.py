"""Open label files: check that they are regular files, whole and of a sane size."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from timecycle.errors import LabelError, VideoError
from timecycle.files import is_special
from timecycle.video.frame import DEFAULT_MAX_PIXELS
from timecycle.video.image_file import IMAGE_FORMATS, check_png, image_size


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


def _short(path: Path) -> str:
    return f"{str(path)[:80]}..." if len(str(path)) > 200 else str(path)
