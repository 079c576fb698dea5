"""Read one image file: its size from the header, and its pixels, with the EXIF orientation applied."""

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
from timecycle.video.completeness import check_regular
from timecycle.video.frame import Size

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp"})

# The formats that Pillow may detect, whatever the file's name: some of its other formats start programs. MPO files are
# detected by the JPEG reader.
IMAGE_FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP")

_PNG = b"\x89PNG\r\n\x1a\n"
_MAX_PAGES = 100  # counted in a TIFF, whose pages are a linked list
_WARNINGS_LOCK = threading.Lock()  # all threads share Python's warning filters

_SIDEWAYS = frozenset({5, 6, 7, 8})  # the EXIF orientations that swap height and width


def image_size(path: Path, *, max_pixels: int) -> Size:
    """Return the size of the upright image, read from the header."""
    with _opened(path, max_pixels=max_pixels) as image:
        return _upright_size(image)


def read_image(path: Path, *, max_pixels: int) -> np.ndarray:
    """Return the upright pixels: uint8 (height, width, 3), or (height, width) if grey with more than 8 bits."""
    check_png(path)
    with _opened(path, max_pixels=max_pixels) as image:
        upright = ImageOps.exif_transpose(image) if _orientation(image) != 1 else image
        deep_grey = upright.mode == "F" or upright.mode.startswith("I")
        return np.array(upright if deep_grey else upright.convert("RGB"))


def check_png(path: Path) -> None:
    """Raise VideoError if a chunk of a PNG does not match its checksum, which Pillow does not verify."""
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
                    problem = "is incomplete" if cut else "does not match its checksum"
                    raise VideoError(
                        f"{path} is damaged: its chunk at byte {at} {problem}",
                        remedy="copy it again from its source, or save it again",
                    )
    except OSError as error:
        raise VideoError(f"{path} cannot be read: {error.strerror or error}", remedy="restore the file") from error


@contextlib.contextmanager
def _opened(path: Path, *, max_pixels: int) -> Iterator[Image.Image]:
    """Open an image and read its header; raise all faults of the file as VideoError."""
    check_regular(path)
    try:
        with _WARNINGS_LOCK, warnings.catch_warnings():
            # `_check_pixels` raises an error with a remedy instead.
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
            remedy="replace the file by an intact JPEG, PNG, BMP, TIFF or WebP image",
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
    # The second image of an MPO (a JPEG of many phones and cameras) is a preview or the view of the other eye.
    if pages > 1 and image.format != "MPO":
        raise VideoError(
            f"{path} holds {pages if pages < _MAX_PAGES else f'{pages} or more'} images, "
            "but one image per file is read",
            remedy="write every image to a file of its own and pass the folder"
            + (", or pass one TIFF stack by its own path" if image.format == "TIFF" else ""),
        )


def _pages(image: Image.Image) -> int:
    """Return the number of images in a file, counted up to `_MAX_PAGES`."""
    if image.format != "TIFF":
        return int(getattr(image, "n_frames", 1))
    for page in range(1, _MAX_PAGES):
        try:
            image.seek(page)
        except EOFError:
            image.seek(0)
            return page
    return _MAX_PAGES


def _upright_size(image: Image.Image) -> Size:
    width_px, height_px = image.size
    # Pillow rotates a TIFF itself and reports its upright size.
    if image.format != "TIFF" and _orientation(image) in _SIDEWAYS:
        return Size(width_px, height_px)
    return Size(height_px, width_px)


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 (upright) if there is none."""
    if image.format == "PNG" and "exif" not in image.info:
        return 1  # Pillow would decode the whole image to search for one
    orientation = image.getexif().get(ExifTag.Orientation, 1)
    return orientation if isinstance(orientation, int) else 1
