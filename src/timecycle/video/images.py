"""Videos stored as one image file per frame."""

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

_BRIGHTNESS_FRAMES = 16
_NUMBER_FIELD = re.compile(r"%(?:0?(\d{1,2}))?d|(#+)")  # of a pattern such as shot_%04d.jpg or shot_####.jpg


class ImagesVideo(Video):
    """Frames from image files of one size; all headers are checked on opening, pixels when a frame is read."""

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        *,
        time_base: Fraction,
        max_pixels: int,
        brightness: "Brightness | None" = None,
    ) -> None:
        super().__init__(name=name, size=_common_size(paths, max_pixels=max_pixels), time_base=time_base)
        self._paths = paths
        self._max_pixels = max_pixels
        self._given = brightness  # of a longer video that these images are taken from

    @property
    def pts(self) -> Sequence[int]:
        return range(len(self._paths))

    @cached_property
    def numbers(self) -> Sequence[int]:
        numbers = [number for path in self._paths if (number := frame_number(path)) is not None]
        increasing = len(numbers) == len(self._paths) and all(a < b for a, b in pairwise(numbers))
        return numbers if increasing else range(len(self._paths))

    @property
    def assumed_fps(self) -> float:
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

    def values(self, index: int) -> np.ndarray | None:
        if self._brightness is None:
            return None
        return read_image(self._paths[index], max_pixels=self._max_pixels)

    @cached_property
    def _brightness(self) -> "Brightness | None":
        return brightness_of(self._paths, max_pixels=self._max_pixels) if self._given is None else self._given


@dataclass(frozen=True)
class Brightness:
    """A linear map from grey values of more than 8 bits to 8 bits.

    Microscopes and thermal cameras use 10 to 14 of a file's 16 bits, and rarely say which, so the full range would give
    black frames. Percentiles instead of extremes tolerate a few hot pixels.
    """

    black: float
    white: float

    @classmethod
    def of(cls, image: np.ndarray) -> "Brightness":
        """Return the map of the 0.1 and 99.9 percentiles of `image` to black and white."""
        finite = image[np.isfinite(image)]
        black, white = np.percentile(finite, (0.1, 99.9)) if finite.size else (0, 1)
        return cls(float(black), float(max(white, np.nextafter(black, np.inf))))

    def to_eight_bits(self, image: np.ndarray) -> UInt8[np.ndarray, "..."]:
        """Return the scaled values; those outside the range are clipped."""
        scaled = (image.astype(np.float64) - self.black) / (self.white - self.black)
        return np.rint(255 * np.nan_to_num(np.clip(scaled, 0, 1))).astype(np.uint8)

    def to_rgb(self, image: np.ndarray) -> UInt8[np.ndarray, "height width 3"]:
        """Return the scaled image, grey in three channels."""
        return np.repeat(self.to_eight_bits(image)[:, :, None], 3, axis=2)


def brightness_frames(count: int) -> list[int]:
    """Return the frames, spread over a video, from which its scale of brightness is taken."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, _BRIGHTNESS_FRAMES))})


def brightness_of(paths: Sequence[Path], *, max_pixels: int) -> Brightness | None:
    """Return one scale for a whole video, so that frames do not depend on which others were read; None for 8 bits."""
    if read_image(paths[0], max_pixels=max_pixels).ndim == 3:
        return None
    read = (read_image(paths[index], max_pixels=max_pixels)[::2, ::2] for index in brightness_frames(len(paths)))
    return Brightness.of(np.concatenate([image.ravel() for image in read if image.ndim == 2]))


def images_in_folder(folder: Path) -> Sequence[Path]:
    """Return the folder's images in natural order; hidden files and other files are ignored."""
    try:
        files = [path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file()]
    except OSError as error:
        raise VideoError(f"{folder} cannot be listed: {error.strerror}", remedy="allow reading the folder") from error
    paths = sorted((path for path in files if path.suffix.lower() in IMAGE_SUFFIXES), key=natural_order)
    if not paths:
        raise VideoError(
            f"the folder {folder} holds no images ({', '.join(sorted(IMAGE_SUFFIXES))})",
            remedy="pass the folder whose files are the frames",
        )
    _check_no_equal_names(folder, paths)
    _check_no_gap(folder, paths)
    return paths


def images_matching(pattern: Path) -> Sequence[Path]:
    """Return the images that match a glob pattern, by folder and then in natural order; numbers may have gaps."""
    try:
        matching = Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))
        paths = sorted(
            (path for path in matching if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()),
            key=lambda path: (path.parent, natural_order(path)),
        )
    except (ValueError, NotImplementedError, OSError) as error:
        raise VideoError(f"{pattern} is not a pattern of files: {error}", remedy="write one as '*.png'") from error
    if not paths:
        raise VideoError(
            f"no image matches {pattern}", remedy="check the pattern, and quote it so that the shell keeps it"
        )
    return paths


def is_numbered(path: Path) -> bool:
    """Return whether the file's name is a pattern with a frame number, such as shot_%04d.jpg or shot_####.jpg."""
    return _NUMBER_FIELD.search(path.name) is not None and path.suffix.lower() in IMAGE_SUFFIXES


def images_numbered(path: Path) -> Sequence[Path]:
    """Return the images that match a pattern with a frame number, in order; a missing number is an error."""
    pattern = re.compile(_number_regex(path.name))
    try:
        matching = [file for file in path.parent.iterdir() if pattern.fullmatch(file.name) and file.is_file()]
    except OSError as error:
        raise VideoError(f"{path.parent} cannot be listed: {error.strerror}", remedy="check the path") from error
    if not matching:
        raise VideoError(f"no image matches {path}", remedy="check the pattern: %04d or #### are four digits")
    paths = sorted(matching, key=natural_order)
    _check_no_gap(path.parent, paths)
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
        remedy="bring all frames to one size, or remove the image if it is not a frame",
    )


def _check_no_equal_names(folder: Path, paths: Sequence[Path]) -> None:
    """Refuse images that differ only in their suffix: frames and their masks, which would alternate in the video."""
    for one, other in pairwise(sorted(paths, key=lambda path: path.stem)):
        if one.stem == other.stem:
            raise VideoError(
                f"{folder} holds both {one.name} and {other.name}",
                remedy="keep one kind of image in the folder, or pass a pattern such as "
                f"{shlex.quote(str(folder / ('*' + one.suffix)))}",
            )


def _check_no_gap(folder: Path, paths: Sequence[Path]) -> None:
    """Refuse a numbered series with a missing frame."""
    missing = _missing_frame([path.name for path in paths])
    if missing is not None:
        raise VideoError(
            f"frame {missing[0]} ({folder / missing[1]}) is missing",
            remedy="restore it, or pass a pattern such as "
            f"{shlex.quote(str(folder / _glob(missing[1])))} to take the files as they are",
        )


def _number_regex(name: str) -> str:
    """Return a regular expression that has digits in place of each number field."""
    regex, end = "", 0
    for field in _NUMBER_FIELD.finditer(name):
        digits = int(field[1] or 1) if field[2] is None else len(field[2])
        regex += re.escape(name[end : field.start()]) + rf"[0-9]{{{digits},}}"
        end = field.end()
    return regex + re.escape(name[end:])


def _glob(name: str) -> str:
    """Return the glob pattern of the series that a file belongs to: shot010_*.jpg."""
    return re.sub(r"\d+(\D*)$", r"*\1", name)


def _missing_frame(names: Sequence[str]) -> tuple[int, str] | None:
    """Return the number and name of the first missing frame of a numbered series.

    None if no frame is missing, or the names are no regular series: they differ in more than a number, or in irregular
    steps (times as names, hand-picked frames). Equal steps other than 1 are regular.
    """
    matches = [match.groups() for name in names if (match := re.fullmatch(r"(.*?)(\d+)(\D*)", name))]
    if len(matches) != len(names) or len({(prefix, suffix) for prefix, _, suffix in matches}) != 1:
        return None
    prefix, _, suffix = matches[0]
    digits = [digits for _, digits, _ in matches]
    steps = Counter(int(after) - int(before) for before, after in pairwise(digits))
    step = min(steps, default=0)
    if step <= 0 or any(size % step for size in steps) or 2 * steps[step] < steps.total():
        return None
    for before, after in pairwise(digits):
        if int(after) - int(before) > step:
            number = int(before) + step
            return number, f"{prefix}{number:0{len(before)}}{suffix}"
    return None
