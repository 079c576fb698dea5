"""TIFF stacks of object ids for ImageJ and napari: one page per frame of the video, 0 for the background."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from timecycle.errors import LabelError, VideoError
from timecycle.extras import import_extra
from timecycle.files import atomic_write
from timecycle.formats.format import Format
from timecycle.formats.video_labels import LazyLabels, VideoFacts, VideoLabels, ids_of, size_of, usable_names
from timecycle.labels import Masks
from timecycle.tiff_header import TIFF_SUFFIXES, is_stack
from timecycle.video.frame import DEFAULT_MAX_PIXELS
from timecycle.video.tiff import open_stack


def read(path: Path, video: VideoFacts) -> VideoLabels:
    """Read masks page by page."""
    try:
        stack = open_stack(path, max_pixels=DEFAULT_MAX_PIXELS)
    except VideoError as error:
        raise LabelError(error.problem, remedy=error.remedy) from error
    if stack.channels != 1 or stack.dtype.kind not in "uib":
        raise LabelError(
            f"{path} has {stack.channels} channels of {stack.dtype}",
            remedy="save ids of objects: one whole number per pixel",
        )

    def read_frame(index: int) -> Masks:
        try:
            page = stack[index]
        except Exception as error:  # damaged files raise nearly anything
            raise LabelError(f"frame {index} of {path} cannot be decoded: {error}", remedy="save it again") from error
        try:
            return Masks.of(np.ascontiguousarray(page).astype(page.dtype.newbyteorder("=")))
        except LabelError as error:
            raise LabelError(f"frame {index} of {path}: {error.problem}", remedy=error.remedy) from error

    fps = 1 / stack.seconds_per_frame if stack.seconds_per_frame else None
    return VideoLabels(
        kind=Masks,
        labels=LazyLabels(range(stack.frames), read_frame),
        video=VideoFacts(name=str(path), frames=stack.frames, size=stack.size.shape, fps=fps),
        names=_names(stack.info, path),
    )


def _names(info: str, path: Path) -> dict[str, str]:
    try:
        names = json.loads(info).get("names")
    except (ValueError, AttributeError, RecursionError):
        return {}
    return usable_names({str(i): str(name) for i, name in names.items()}, path) if isinstance(names, dict) else {}


def write(labels: VideoLabels, path: Path) -> None:
    """Write one page per frame, empty for frames without labels; 8 bits if all ids fit."""
    tifffile = import_extra("tifffile", extra="tiff")
    largest = max((int(ids_of(one).max(initial=0)) for one in labels.labels.values()), default=0)
    dtype = np.dtype(np.uint8 if largest < 256 else np.uint16)
    height, width = size_of(labels)

    def pages() -> Iterator[np.ndarray]:
        for index in range(labels.frames):
            there = index in labels.labels
            yield ids_of(labels.labels[index]).astype(dtype) if there else np.zeros((height, width), dtype)

    metadata: dict[str, object] = {"axes": "TYX", "mode": "grayscale"}
    if labels.video.fps:
        metadata |= {"fps": labels.video.fps, "finterval": 1 / labels.video.fps}
    if labels.names:
        metadata["Info"] = json.dumps({"names": dict(labels.names)})
    with atomic_write(path) as file, tifffile.TiffWriter(file, imagej=True) as tiff:
        tiff.write(pages(), shape=(labels.frames, height, width), dtype=dtype, metadata=metadata, compression="zlib")


FORMAT = Format(
    name="tiff",
    title="TIFF stack (ImageJ, napari)",
    suffixes=TIFF_SUFFIXES,
    kinds=("masks", "parts"),
    loses="confidence and states; which frames have no labels (they are empty)",
    read=read,
    write=write,
    recognises=is_stack,
    extra="tiff",
    module="tifffile",
)
