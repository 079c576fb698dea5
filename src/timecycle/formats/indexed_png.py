"""A folder of indexed PNG files named by frame number, as of DAVIS and YouTube-VOS: the values are object ids."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from timecycle.concurrency import write_behind
from timecycle.errors import LabelError
from timecycle.files import frame_number, make_folder, natural_order, write_text
from timecycle.formats.format import Format
from timecycle.formats.video_labels import LazyLabels, VideoFacts, VideoLabels, ids_of
from timecycle.formats.youtube_vos import meta_file, read_names, write_meta
from timecycle.labels import Labels
from timecycle.labels.mask_file import colours_in, read_mask_files
from timecycle.labels.masks import Masks
from timecycle.labels.names import NAMES_FILE
from timecycle.video.frame import DEFAULT_MAX_PIXELS
from timecycle.video.image_file import image_size


def read(path: Path, video: VideoFacts) -> VideoLabels:
    """Read masks lazily. Colours of RGB files are numbered together, which reads such files twice."""
    files: dict[int, Path] = {}
    for file in sorted(path.glob("*.png"), key=natural_order):
        number = frame_number(file)
        if number is None:
            raise LabelError(f"{file} has no frame number in its name", remedy="name label files by frame: 00012.png")
        index = video.index(number)
        if index in files:
            raise LabelError(
                f"frame {number} has two label files: {files[index]} and {file}", remedy="keep one file for each frame"
            )
        files[index] = file
    if not files:
        raise LabelError(f"{path} has no PNG files", remedy="give the folder of the masks, named by frame: 00012.png")
    colours = colours_in(files.values())

    def read_frame(index: int) -> Masks:
        (file,) = read_mask_files([files[index]], colours=colours)
        return Masks.of_file(file)

    size = image_size(files[min(files)], max_pixels=DEFAULT_MAX_PIXELS)
    return VideoLabels(
        kind=Masks,
        labels=LazyLabels(list(files), read_frame),
        video=VideoFacts(name=str(path), size=size.shape),
        names=read_names([path]),
    )


def write(labels: VideoLabels, path: Path) -> None:
    """Write one PNG per frame with labels, all of 16 bits if an id is above 255, and the names.

    They go to names.json beside the masks; below Annotations, as YouTube-VOS has them, to its meta.json.
    """
    make_folder(path)
    shown: dict[int, list[str]] = {}

    def frames() -> Iterator[tuple[Path, Labels]]:
        for index, one in labels.labels.items():
            name = f"{labels.video.number(index):05d}"
            for identity in np.unique(ids_of(one)).tolist():
                if identity:
                    shown.setdefault(identity, []).append(name)
            yield path / f"{name}.png", one

    write_behind(lambda frame: frame[1].write(frame[0]), frames())
    if meta_file(path) is not None:
        write_meta(path, shown, labels.names)
    elif labels.names:
        write_text(path / NAMES_FILE, json.dumps(dict(labels.names), ensure_ascii=False, indent=1) + "\n")


def _recognises(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.png"))


FORMAT = Format(
    name="png",
    title="Indexed PNG (DAVIS, YouTube-VOS)",
    suffixes=(),
    kinds=("masks", "parts"),
    loses="confidence, states, rate and number of frames; parts are read back as masks without --kind parts",
    read=read,
    write=write,
    recognises=_recognises,
)
