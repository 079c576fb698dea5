"""Read labels named on the command line: FILE for the first frame, FRAME=FILE, or a folder of numbered files."""

import dataclasses
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path

from timecycle.errors import LabelError, VideoError
from timecycle.files import frame_number, natural_order
from timecycle.labels.coordinates import Coordinates
from timecycle.labels.file import check_label_file
from timecycle.labels.fitting import is_proportional, note_ambiguous_white, other_size
from timecycle.labels.keypoints import Keypoints, read_keypoints
from timecycle.labels.mask_file import colours_in, note_colours, read_mask_files
from timecycle.labels.masks import Masks
from timecycle.labels.parts import Parts
from timecycle.labels.space import Labels
from timecycle.labels.texture import Texture
from timecycle.video.frame import DEFAULT_MAX_PIXELS
from timecycle.video.image_file import IMAGE_SUFFIXES, image_size

KINDS: dict[str, type[Labels]] = {kind.kind: kind for kind in (Masks, Parts, Keypoints, Texture, Coordinates)}

_SUFFIXES = (".png", ".csv", ".npy", ".tif", ".tiff", ".bmp")
_NUMBERED = r"(\d{1,12})=(.+)"  # FRAME=FILE
_MAX_TIMES_LARGER = 16  # pixels of a label image per pixel of the frame, unless the image is below:
_ALWAYS_READ_PX = 4096 * 2304


def is_label_file(argument: str) -> bool:
    """Return whether an argument, FILE or FRAME=FILE, names an existing file that can hold labels."""
    path = path_of(argument)
    return path.suffix.lower() in _SUFFIXES and _exists(path) and path.is_file()


def read_labels(
    arguments: Sequence[str | Path],
    *,
    kind: str | None = None,
    exhaustive: bool = False,
    numbers: Sequence[int] | None = None,
    size: tuple[int, int] | None = None,
    together: bool = True,
) -> dict[int, Labels]:
    """Read labels by frame index. Without a `kind`, CSV files are keypoints, .npy files coordinates, images masks.

    exhaustive: masks and parts show every object of their frame (see `Masks`).
    numbers: the frame numbers of the video (`Video.numbers`), by which files, arguments and tables name frames; a file
        without a number belongs to the first frame.
    size: (height, width) of the frames; images that cannot belong to them are refused before their pixels are read.
    together: number the colours of all masks together, so that a colour is one object in all of them. False if an
        existing run defines what the colours mean.
    """
    if arguments and all(str(argument).lower().endswith(".csv") for argument in arguments):
        return dict(_read_points([Path(argument) for argument in arguments], numbers))
    files = _files(arguments, numbers)
    kind = kind or _guess_kind(files)
    if kind not in KINDS:
        raise LabelError(f"there is no kind of labels {kind!r}", remedy=f"choose one of {', '.join(KINDS)}")
    if kind == Keypoints.kind:
        return dict(_read_points(list(files.values()), numbers))
    if size is not None:
        _check_sizes(files, size, numbers)
    if kind == Masks.kind:
        colours = colours_in(files.values()) if together else ()
        read = read_mask_files(list(files.values()), colours=colours)
        masks = {index: Masks.of_file(file) for index, file in zip(files, read, strict=True)}
        if together:
            note_colours(read)
            note_ambiguous_white(masks)
        return {index: dataclasses.replace(m, exhaustive=exhaustive) for index, m in masks.items()}
    if kind == Parts.kind:
        parts = {index: Parts.read(path) for index, path in files.items()}
        return {index: dataclasses.replace(p, exhaustive=exhaustive) for index, p in parts.items()}
    return {index: KINDS[kind].read(path) for index, path in files.items()}


def path_of(argument: str | Path) -> Path:
    """Return the file or folder of an argument, FILE or FRAME=FILE."""
    numbered = re.fullmatch(_NUMBERED, str(argument))
    return Path(numbered[2]) if numbered and not _exists(argument) else Path(argument)


def index_of(number: int, numbers: Sequence[int] | None) -> int:
    """Return the index of the frame with this number; without `numbers` the number is the index."""
    if numbers is None or (isinstance(numbers, range) and numbers.start == 0):
        return number
    index = bisect_left(numbers, number)
    if index < len(numbers) and numbers[index] == number:
        return index
    if numbers[0] < number < numbers[-1]:
        before, after = numbers[index - 1], numbers[index]
        raise LabelError(
            f"frame {number} is missing: the video goes from frame {before} to {after}",
            remedy=f"annotate frame {before} or {after}, or restore its image file and propagate again",
        )
    raise LabelError(
        f"there is no frame {number}: the video's frames are numbered {numbers[0]} to {numbers[-1]}",
        remedy="give the number in the name of the frame's image file",
    )


def _files(arguments: Sequence[str | Path], numbers: Sequence[int] | None) -> dict[int, Path]:
    files: dict[int, Path] = {}
    for argument in arguments:
        for number, path in _expand(str(argument)).items():
            index = 0 if number is None else index_of(number, numbers)
            if index in files:
                raise LabelError(
                    f"frame {number or 0} has two label files: {files[index]} and {path}",
                    remedy="give each frame one file, as FRAME=FILE; quote a pattern of images: 'frames/*.jpg'",
                )
            files[index] = path
    return files


def _check_sizes(files: Mapping[int, Path], frame: tuple[int, int], numbers: Sequence[int] | None) -> None:
    """Refuse, by their headers, images that do not fit frames of this size or need far more memory."""
    most = max(_MAX_TIMES_LARGER * frame[0] * frame[1], _ALWAYS_READ_PX)
    for index, path in files.items():
        if path.suffix.lower() not in IMAGE_SUFFIXES:
            continue
        check_label_file(path)
        try:
            header = image_size(path, max_pixels=DEFAULT_MAX_PIXELS)
        except VideoError as error:
            raise LabelError(error.problem, remedy="give a PNG with one value or colour per object") from error
        size = header.height_px, header.width_px
        number = numbers[index] if numbers is not None and index < len(numbers) else index
        if size != frame and not is_proportional(size, frame):
            raise other_size(number, size, frame)
        if header.pixels > most:
            raise LabelError(
                f"{path} is {header}, far larger than the frame ({frame[1]}x{frame[0]})",
                remedy="save the mask at the size of the video",
            )


def _exists(path: str | Path) -> bool:
    """Return whether a file or folder exists; False for names that are too long for the system."""
    try:
        return Path(path).exists()
    except OSError:
        return False


def _expand(argument: str) -> dict[int | None, Path]:
    """Return the files of an argument by frame number; None stands for the first frame."""
    numbered = re.fullmatch(_NUMBERED, argument)
    if numbered and not _exists(argument):
        return {int(numbered[1]): Path(numbered[2])}
    path = Path(argument)
    if not _exists(path) or not path.is_dir():
        return {None: path}
    files: dict[int | None, Path] = {}
    try:
        entries = sorted(path.iterdir(), key=natural_order)
    except OSError as error:
        raise LabelError(f"{path} cannot be listed: {error.strerror}", remedy="allow reading the folder") from error
    for file in entries:
        if file.suffix.lower() in _SUFFIXES and not file.name.startswith("."):
            number = frame_number(file)
            if number is None:
                raise LabelError(
                    f"{file} has no frame number in its name", remedy="name label files by frame: 00012.png"
                )
            if number in files:
                raise LabelError(
                    f"frame {number} has two label files: {files[number]} and {file}",
                    remedy="keep one file for each frame",
                )
            files[number] = file
    if not files:
        raise LabelError(
            f"the folder {path} has no label files", remedy="put files named by frame number in it: 00012.png"
        )
    return files


def _guess_kind(files: Mapping[int, Path]) -> str:
    suffixes = {path.suffix.lower() for path in files.values()}
    if suffixes == {".csv"}:
        return Keypoints.kind
    return Coordinates.kind if suffixes == {".npy"} else Masks.kind


def _read_points(files: Sequence[Path], numbers: Sequence[int] | None) -> dict[int, Keypoints]:
    """Read keypoints of CSV files, whose rows name their frames; no two files may have points on the same frame."""
    points: dict[int, Keypoints] = {}
    for path in files:
        if re.match(r"\d+=", str(path)) and not _exists(path):
            raise LabelError(
                f"{path} gives a frame to a CSV, whose rows name their frames themselves",
                remedy="give the file alone and write the frame's number in its `frame` column",
            )
        for number, frame_points in read_keypoints(path).items():
            index = index_of(number, numbers)
            if index in points:
                raise LabelError(
                    f"{path} has points on frame {number}, as another file does",
                    remedy="keep the points of one frame in one file",
                )
            points[index] = frame_points
    return points
