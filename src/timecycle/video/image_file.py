"""One image file: its upright size from the header alone, and its pixels."""

import contextlib
import threading
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from PIL.ExifTags import Base as ExifTag

from timecycle.errors import VideoError
from timecycle.video.frame import Size
from timecycle.video.whole_file import check_regular

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp"})

# What Pillow may take a file for, whatever its name: among its other formats are some that start programs. An MPO is
# found by the reader of JPEG.
IMAGE_FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP")

_PNG = b"\x89PNG\r\n\x1a\n"
_PAGES_COUNTED = 100  # of a TIFF, whose pages are a chain that has to be followed
_WARNINGS = threading.Lock()  # Python's filters of warnings belong to all threads

_SIDEWAYS = frozenset({5, 6, 7, 8})  # the EXIF orientations that swap height and width


def image_size(path: Path, *, max_pixels: int) -> Size:
    """The size of the upright image, read from the header."""
    with _opened(path, max_pixels=max_pixels) as image:
        return _upright_size(image)


def read_image(path: Path, *, max_pixels: int) -> np.ndarray:
    """The upright pixels: uint8 (height, width, 3), or (height, width) numbers if grey deeper than 8 bits."""
    check_png(path)
    with _opened(path, max_pixels=max_pixels) as image:
        upright = ImageOps.exif_transpose(image) if _orientation(image) != 1 else image
        deep_grey = upright.mode == "F" or upright.mode.startswith("I")
        return np.array(upright if deep_grey else upright.convert("RGB"))


def check_png(path: Path) -> None:
    """Raise VideoError if a PNG is not what was written: its chunks have checksums, which Pillow passes over."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            kind = b"" if file.read(len(_PNG)) == _PNG else b"IEND"
            while kind != b"IEND":
                at = file.tell()
                head = file.read(8)
                kind, rest = head[4:], int.from_bytes(head[:4], "big")
                checksum = zlib.crc32(kind)
                while rest and (block := file.read(min(rest, 1 << 20))):
                    checksum, rest = zlib.crc32(block, checksum), rest - len(block)
                stated = file.read(4)
                if stated != checksum.to_bytes(4, "big"):
                    cut = rest > 0 or len(stated) < 4
                    what = (
                        f"it ends within its part at byte {at}"
                        if cut
                        else f"its part at byte {at} is not what was written"
                    )
                    raise VideoError(
                        f"{path} is damaged: {what}",
                        remedy="copy it again from where it came, or save it again",
                    )
    except OSError as error:
        raise VideoError(f"{path} cannot be read: {error.strerror or error}", remedy="restore the file") from error


@contextlib.contextmanager
def _opened(path: Path, *, max_pixels: int) -> Iterator[Image.Image]:
    """The image with only its header read; every fault of the file becomes one error."""
    check_regular(path)
    try:
        with _WARNINGS, warnings.catch_warnings():
            # The cap below says the same, as an error and with a remedy.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(path, formats=IMAGE_FORMATS)
        with image:
            _check_pixels(path, image, max_pixels=max_pixels)
            _check_single(path, image)
            yield image
    except VideoError:
        raise
    except Image.DecompressionBombError as error:
        raise _too_large(path, max_pixels) from error
    except Exception as error:  # decoders of damaged files raise nearly anything
        raise VideoError(
            f"{path} cannot be read as an image: {error}",
            remedy="replace the file by a whole JPEG, PNG, BMP, TIFF or WebP image",
        ) from error


def _check_pixels(path: Path, image: Image.Image, *, max_pixels: int) -> None:
    if image.width * image.height > max_pixels:
        raise _too_large(path, max_pixels)


def _too_large(path: Path, max_pixels: int) -> VideoError:
    return VideoError(
        f"{path} has more than {max_pixels} pixels",
        remedy="shrink the image, or raise max_pixels if you trust the file",
    )


def _check_single(path: Path, image: Image.Image) -> None:
    pages = _pages(image)
    # The second picture of an MPO (a JPEG of many phones and cameras) is a preview or the other eye's view.
    if pages > 1 and image.format != "MPO":
        raise VideoError(
            f"{path} holds {pages if pages < _PAGES_COUNTED else f'{pages} or more'} images, "
            "but one image per file is read",
            remedy="write every image to a file of its own and pass the folder",
        )


def _pages(image: Image.Image) -> int:
    """How many images a file holds, counted up to `_PAGES_COUNTED`."""
    if image.format != "TIFF":
        return int(getattr(image, "n_frames", 1))
    for page in range(1, _PAGES_COUNTED):
        try:
            image.seek(page)
        except EOFError:
            image.seek(0)
            return page
    return _PAGES_COUNTED


def _upright_size(image: Image.Image) -> Size:
    width_px, height_px = image.size
    # Pillow turns a TIFF itself and already reports its upright size.
    if image.format != "TIFF" and _orientation(image) in _SIDEWAYS:
        return Size(width_px, height_px)
    return Size(height_px, width_px)


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 (upright) if there is none."""
    if image.format == "PNG" and "exif" not in image.info:
        return 1  # asking Pillow would decode the whole image in search of one
    orientation = image.getexif().get(ExifTag.Orientation, 1)
    return orientation if isinstance(orientation, int) else 1
