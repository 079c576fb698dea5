"""A video kept as one image file per frame."""

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from timecycle.errors import VideoError
from timecycle.files import frame_number, natural_order, sha256
from timecycle.video.frame import Size
from timecycle.video.image_file import IMAGE_SUFFIXES, image_size, read_image
from timecycle.video.source import Video


class ImagesVideo(Video):
    """Frames from image files of one size; the headers of all are checked on opening, pixels when read."""

    def __init__(self, name: str, paths: Sequence[Path], *, time_base: Fraction, max_pixels: int) -> None:
        super().__init__(name=name, size=_common_size(paths, max_pixels=max_pixels), time_base=time_base)
        self._paths = paths
        self._max_pixels = max_pixels

    @property
    def pts(self) -> Sequence[int]:
        return range(len(self._paths))

    @cached_property
    def numbers(self) -> Sequence[int]:
        found = [frame_number(path) for path in self._paths]
        numbers = [number for number in found if number is not None]
        rising = len(numbers) == len(found) and all(a < b for a, b in pairwise(numbers))
        return numbers if rising else range(len(self._paths))

    @property
    def given_fps(self) -> float:
        return float(1 / self.time_base)

    def fingerprint(self) -> str:
        try:
            lines = [f"{path.name}\0{sha256([path])}\n" for path in self._paths]
        except OSError as error:
            raise VideoError(f"{self.name} cannot be read: {error}", remedy="restore the image files") from error
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def _images(self, start: int, stop: int) -> Iterator[tuple[int, UInt8[np.ndarray, "height width 3"]]]:
        for index in range(start, stop):
            yield index, self._image(self._paths[index])

    def _image(self, path: Path) -> UInt8[np.ndarray, "height width 3"]:
        pixels = read_image(path, max_pixels=self._max_pixels)
        if pixels.shape[:2] != (self.size.height_px, self.size.width_px):
            raise _sizes_differ(path, Size(*pixels.shape[:2]), self._paths[0], self.size)
        if pixels.ndim == 3:
            return pixels
        if self._brightness is None:
            raise VideoError(
                f"{path} is grey with more than 8 bits but {self._paths[0].name} is not",
                remedy="save all frames with the same number of bits",
            )
        return self._brightness.to_rgb(pixels)

    @cached_property
    def _brightness(self) -> "_Brightness | None":
        """One scale for the whole video, so that a frame's grey does not depend on the other frames read."""
        first = read_image(self._paths[0], max_pixels=self._max_pixels)
        return _Brightness.of(first) if first.ndim == 2 else None


@dataclass(frozen=True)
class _Brightness:
    """A linear map from deep grey to 8 bits.

    Cameras of microscopes and thermal cameras use 10 to 14 of a file's 16 bits, and rarely say which, so
    the full range would give black frames; percentiles rather than extremes bear a few hot pixels.
    """

    black: float
    white: float

    @classmethod
    def of(cls, image: np.ndarray) -> "_Brightness":
        """The map that sends the 0.1 and 99.9 percentiles of `image` to black and white."""
        finite = image[np.isfinite(image)]
        black, white = np.percentile(finite, (0.1, 99.9)) if finite.size else (0, 1)
        return cls(float(black), float(max(white, np.nextafter(black, np.inf))))

    def to_rgb(self, image: np.ndarray) -> UInt8[np.ndarray, "height width 3"]:
        """The scaled picture, grey in three channels; values outside the range are clipped."""
        scaled = (image.astype(np.float64) - self.black) / (self.white - self.black)
        grey = np.rint(255 * np.nan_to_num(np.clip(scaled, 0, 1))).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)


def images_in_folder(folder: Path) -> Sequence[Path]:
    """The folder's images in natural order; hidden files and files that are no images are passed over."""
    try:
        names = [path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file()]
    except OSError as error:
        raise VideoError(f"{folder} cannot be listed: {error.strerror}", remedy="allow reading the folder") from error
    paths = sorted((path for path in names if path.suffix.lower() in IMAGE_SUFFIXES), key=natural_order)
    if not paths:
        raise VideoError(
            f"the folder {folder} holds no images ({', '.join(sorted(IMAGE_SUFFIXES))})",
            remedy="pass the folder whose files are the frames",
        )
    _check_no_twins(folder, paths)
    check_no_gap(folder, paths)
    return paths


def images_matching(pattern: Path) -> Sequence[Path]:
    """The images a glob pattern finds, by folder and then in natural order; gaps in numbers are allowed."""
    try:
        found = Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))
        paths = sorted(
            (path for path in found if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()),
            key=lambda path: (path.parent, natural_order(path)),
        )
    except (ValueError, NotImplementedError, OSError) as error:
        raise VideoError(f"{pattern} is not a pattern of files: {error}", remedy="write one as '*.png'") from error
    if not paths:
        raise VideoError(
            f"no image matches {pattern}", remedy="check the pattern, and quote it so that the shell keeps it"
        )
    return paths


def _common_size(paths: Sequence[Path], *, max_pixels: int) -> Size:
    size = image_size(paths[0], max_pixels=max_pixels)
    for path in paths[1:]:
        other = image_size(path, max_pixels=max_pixels)
        if other != size:
            raise _sizes_differ(path, other, paths[0], size)
    return size


def _sizes_differ(path: Path, size: Size, first: Path, first_size: Size) -> VideoError:
    return VideoError(
        f"{path} is {size} but {first.name} is {first_size}",
        remedy="bring all frames to one size, or remove the image if it is no frame",
    )


def _check_no_twins(folder: Path, paths: Sequence[Path]) -> None:
    """Frames and their masks often share names; as one video they would alternate."""
    for one, other in pairwise(sorted(paths, key=lambda path: path.stem)):
        if one.stem == other.stem:
            raise VideoError(
                f"{folder} holds both {one.name} and {other.name}",
                remedy="keep one kind of image in the folder, or pass a pattern such as "
                f"{shlex.quote(str(folder / ('*' + one.suffix)))}",
            )


def check_no_gap(folder: Path, paths: Sequence[Path]) -> None:
    """Refuse a numbered series that leaves out a frame."""
    missing = _missing_frame([path.name for path in paths])
    if missing is not None:
        raise VideoError(
            f"frame {missing[0]} ({folder / missing[1]}) is missing",
            remedy="restore it, or pass a pattern such as "
            f"{shlex.quote(str(folder / _glob(missing[1])))} to take the files as they are",
        )


def _glob(name: str) -> str:
    """The pattern of a series that a file belongs to: shot010_*.jpg."""
    return re.sub(r"\d+(\D*)$", r"*\1", name)


def _missing_frame(names: Sequence[str]) -> tuple[int, str] | None:
    """Number and name of the first frame a numbered series leaves out.

    None if the names are no such series: they differ in more than a number, or their steps follow no rule
    (times as names, hand-picked frames). Even steps other than 1 are a rule.
    """
    parts = [match.groups() for name in names if (match := re.fullmatch(r"(.*?)(\d+)(\D*)", name))]
    if len(parts) != len(names) or len({(prefix, suffix) for prefix, _, suffix in parts}) != 1:
        return None
    prefix, _, suffix = parts[0]
    digits = [digits for _, digits, _ in parts]
    steps = Counter(int(after) - int(before) for before, after in pairwise(digits))
    step = min(steps, default=0)
    if step <= 0 or any(size % step for size in steps) or 2 * steps[step] < steps.total():
        return None
    for before, after in pairwise(digits):
        if int(after) - int(before) > step:
            number = int(before) + step
            return number, f"{prefix}{number:0{len(before)}}{suffix}"
    return None
