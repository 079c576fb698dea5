"""Opening an image of labels: whole, of sane size, and with one clear error otherwise."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from timecycle.errors import LabelError, VideoError
from timecycle.labels.file import check_label_file
from timecycle.video.frame import DEFAULT_MAX_PIXELS
from timecycle.video.image_file import IMAGE_FORMATS, check_png, image_size


@contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    """The image with all its pixels loaded."""
    check_label_file(path)
    try:
        check_png(path)
    except VideoError as error:
        raise LabelError(error.problem, remedy=error.remedy) from error
    remedy = "give a PNG with one value or colour per object"
    try:
        image_size(path, max_pixels=DEFAULT_MAX_PIXELS)  # reads the header only: refuses before allocating
        image = Image.open(path, formats=IMAGE_FORMATS)
        image.load()
    except VideoError as error:
        raise LabelError(error.problem, remedy=remedy) from error
    except Exception as error:  # decoders of damaged files raise nearly anything
        raise LabelError(f"{path} cannot be read as an image: {error}", remedy=remedy) from error
    with image:
        yield image
