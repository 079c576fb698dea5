"""Labels from the command line: a file for frame 0, FRAME=FILE, or a folder of files named by frame number."""

import dataclasses
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path

from timecycle.errors import LabelError, VideoError
from timecycle.files import frame_number, natural_order
from timecycle.labels.coordinates import Coordinates
from timecycle.labels.file import check_label_file
from timecycle.labels.fitting import is_proportional, note_two_whites, other_size
from timecycle.labels.keypoints import Keypoints, read_keypoints
from timecycle.labels.mask_file import colours_in, note_numbers, read_mask_files
from timecycle.labels.masks import Masks
from timecycle.labels.parts import Parts
from timecycle.labels.space import Labels
from timecycle.labels.texture import Texture
from timecycle.video.frame import DEFAULT_MAX_PIXELS
from timecycle.video.image_file import IMAGE_SUFFIXES, image_size

KINDS: dict[str, type[Labels]] = {kind.kind: kind for kind in (Masks, Parts, Keypoints, Texture, Coordinates)}


_SUFFIXES = (".png", ".csv", ".npy", ".tif", ".tiff", ".bmp")
_NUMBERED = r"(\d{1,12})=(.+)"  # FRAME=FILE
_MOST_TIMES_LARGER = 16  # than the frame, in pixels; and always as large as
_ALWAYS_READ_PX = 4096 * 2304


def is_label_file(argument: str) -> bool:
    """Whether a word of the command line, FILE or FRAME=FILE, names a file that can hold labels."""
    numbered = re.fullmatch(_NUMBERED, argument)
    path = Path(numbered[2] if numbered and not _exists(argument) else argument)
    return path.suffix.lower() in _SUFFIXES and _exists(path) and path.is_file()


def read_labels(
    arguments: Sequence[str | Path],
    *,
    kind: str | None = None,
    complete: bool = False,
    numbers: Sequence[int] | None = None,
    size: tuple[int, int] | None = None,
    together: bool = True,
) -> dict[int, Labels]:
    """Labels by the index of their frame. Without a kind, CSV files are keypoints and images are masks.

    `complete`: masks and parts show every object of their frame (see Masks). `numbers` are those of the video's frames
    (`Video.numbers`), by which files, arguments and tables name them; a bare file belongs to the first frame. With the
    `size` (height, width) of the frames, images that cannot belong to them are refused before their pixels are read.
    Masks are read `together`, so that a colour is one object in all of them, unless a run says what colours mean.
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
            note_numbers(read)
            note_two_whites(masks)
        return {index: dataclasses.replace(m, complete=complete) for index, m in masks.items()}
    if kind == Parts.kind:
        parts = {index: Parts.read(path) for index, path in files.items()}
        return {index: dataclasses.replace(p, complete=complete) for index, p in parts.items()}
    return {index: KINDS[kind].read(path) for index, path in files.items()}


def path_of(argument: str | Path) -> Path:
    """The file or folder of an argument, FILE or FRAME=FILE."""
    numbered = re.fullmatch(_NUMBERED, str(argument))
    return Path(numbered[2]) if numbered and not _exists(argument) else Path(argument)


def index_of(number: int, numbers: Sequence[int] | None) -> int:
    """The index of the frame that a video calls `number`; without `numbers` frames are called by their index."""
    if numbers is None or (isinstance(numbers, range) and numbers.start == 0):
        return number
    place = bisect_left(numbers, number)
    if place == len(numbers) or numbers[place] != number:
        if numbers[0] < number < numbers[-1]:
            near = f"{numbers[place - 1]} or {numbers[place]}"
            raise LabelError(
                f"frame {number} is missing: the video goes from frame {numbers[place - 1]} to {numbers[place]}",
                remedy=f"annotate frame {near}, or restore its image file and propagate again",
            )
        raise LabelError(
            f"there is no frame {number}: the video's frames are numbered {numbers[0]} to {numbers[-1]}",
            remedy="give the number in the name of the frame's image file",
        )
    return place


def _files(arguments: Sequence[str | Path], numbers: Sequence[int] | None) -> dict[int, Path]:
    files: dict[int, Path] = {}
    for argument in arguments:
        for number, path in _expand(str(argument)).items():
            index = 0 if number is None else index_of(number, numbers)
            if index in files:
                raise LabelError(
                    f"frame {number or 0} has two label files: {files[index]} and {path}",
                    remedy="give each frame one file, as FRAME=FILE",
                )
            files[index] = path
    return files


def _check_sizes(files: Mapping[int, Path], frame: tuple[int, int], numbers: Sequence[int] | None) -> None:
    """Refuse by their headers images that are no masks of frames of this size, or take much more memory than these."""
    most = max(_MOST_TIMES_LARGER * frame[0] * frame[1], _ALWAYS_READ_PX)
    for index, path in files.items():
        if path.suffix.lower() not in IMAGE_SUFFIXES:
            continue
        check_label_file(path)
        try:
            found = image_size(path, max_pixels=DEFAULT_MAX_PIXELS)
        except VideoError as error:
            raise LabelError(error.problem, remedy="give a PNG with one value or colour per object") from error
        size = found.height_px, found.width_px
        number = numbers[index] if numbers is not None and index < len(numbers) else index
        if size != frame and not is_proportional(size, frame):
            raise other_size(number, size, frame)
        if found.pixels > most:
            raise LabelError(
                f"{path} is {found}, far larger than the frame ({frame[1]}x{frame[0]})",
                remedy="save the mask at the size of the video",
            )


def _exists(path: str | Path) -> bool:
    """Whether there is such a file or folder; no system lets names be longer than some hundred letters."""
    try:
        return Path(path).exists()
    except OSError:
        return False


def _expand(argument: str) -> dict[int | None, Path]:
    """The files of an argument by frame number; none for the first frame."""
    numbered = re.fullmatch(_NUMBERED, argument)
    if numbered and not _exists(argument):
        return {int(numbered[1]): Path(numbered[2])}
    path = Path(argument)
    if not _exists(path) or not path.is_dir():
        return {None: path}
    found: dict[int | None, Path] = {}
    try:
        listed = sorted(path.iterdir(), key=natural_order)
    except OSError as error:
        raise LabelError(f"{path} cannot be listed: {error.strerror}", remedy="allow reading the folder") from error
    for file in listed:
        if file.suffix.lower() in _SUFFIXES and not file.name.startswith("."):
            number = frame_number(file)
            if number is None:
                raise LabelError(
                    f"{file} has no frame number in its name", remedy="name label files by frame: 00012.png"
                )
            if number in found:
                raise LabelError(
                    f"frame {number} has two label files: {found[number]} and {file}",
                    remedy="keep one file for each frame",
                )
            found[number] = file
    if not found:
        raise LabelError(
            f"the folder {path} has no label files", remedy="put files named by frame number in it: 00012.png"
        )
    return found


def _guess_kind(files: Mapping[int, Path]) -> str:
    suffixes = {path.suffix.lower() for path in files.values()}
    if suffixes == {".csv"}:
        return Keypoints.kind
    return Coordinates.kind if suffixes == {".npy"} else Masks.kind


def _read_points(files: Sequence[Path], numbers: Sequence[int] | None) -> dict[int, Keypoints]:
    """A CSV says itself which frames it is about; no two files may place points on the same frame."""
    points: dict[int, Keypoints] = {}
    for path in files:
        if re.match(r"\d+=", str(path)) and not _exists(path):
            raise LabelError(
                f"{path} numbers a CSV, whose rows say themselves which frame they belong to",
                remedy="give the file alone and write the frame's number in its `frame` column",
            )
        for number, found in read_keypoints(path).items():
            index = index_of(number, numbers)
            if index in points:
                raise LabelError(
                    f"{path} places points on frame {number}, as another file does",
                    remedy="keep the points of one frame in one file",
                )
            points[index] = found
    return points
