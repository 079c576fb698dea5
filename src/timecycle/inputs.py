"""Convert what Python callers pass as videos, annotations, encoders and settings to the types of the engine."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import PIL.Image
from torch import nn

from timecycle.config import propagate_config
from timecycle.errors import LabelError, SettingsError
from timecycle.formats.reading import read_any
from timecycle.formats.video_labels import VideoFacts
from timecycle.labels import Labels, Masks, read_labels
from timecycle.labels.fitting import note_ambiguous_white
from timecycle.labels.keypoints import Keypoints, read_keypoints
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, encoder_names, load_encoder
from timecycle.propagation.settings import PropagateConfig
from timecycle.video import Video, open_video


@runtime_checkable
class ArrayLike(Protocol):
    """A numpy array, or an object that converts to one, such as a tensor on the CPU."""

    def __array__(self) -> np.ndarray: ...


Annotation = Labels | ArrayLike | PIL.Image.Image | str | Path
Annotations = Mapping[int, Annotation] | Annotation
EncoderLike = Encoder | str | Path | nn.Module
ConfigLike = PropagateConfig | str
VideoLike = Video | str | Path | np.ndarray

_EXPECTED = (
    "pass a mapping of frame indexes (from 0) to annotations: {0: tc.Masks.read('first.png')}, "
    "{0: 'first.png'} or {0: array of object ids}"
)


def as_labels(
    annotations: Annotations,
    numbers: Sequence[int] | None = None,
    size: tuple[int, int] | None = None,
    *,
    kind: str | None = None,
    together: bool = True,
    video: VideoFacts | None = None,
    every_frame: bool = False,
) -> dict[int, Labels]:
    """Convert annotations to labels by frame index.

    A single annotation belongs to frame 0; a folder or CSV names its frames by the `numbers` of the video. Files are
    read as `read_labels` does, with the same `kind` and `together`; files of other tools as `read_any` does, and they
    must fit the `video`.
    """
    passed: object = annotations  # callers may ignore the types
    if isinstance(passed, str | Path):
        facts = video or VideoFacts(numbers=numbers, size=size, frames=None if numbers is None else len(numbers))
        return read_any([passed], facts, kind=kind, together=together, every_frame=every_frame).labels
    if isinstance(passed, Labels | ArrayLike | PIL.Image.Image):
        passed = {0: passed}
    if not isinstance(passed, Mapping):
        raise LabelError(f"annotations were passed as {_type_name(passed)}", remedy=_EXPECTED)
    by_index = {_index(key): value for key, value in passed.items()}
    files = {index: Path(value) for index, value in by_index.items() if isinstance(value, str | Path)}
    points = {index: path for index, path in files.items() if path.suffix.lower() == Keypoints.suffix}
    images = [f"{index}={path}" for index, path in files.items() if index not in points]
    # Together, so that one colour is one object in all of them.
    read = read_labels(images, size=size, kind=kind, together=together) if images else {}
    read |= {index: _read_points(index, path, numbers) for index, path in points.items()}
    labels = {index: read[index] if index in read else _as_label(index, value) for index, value in by_index.items()}
    if together and len(files) < len(labels):  # for files alone, read_labels has noted it
        note_ambiguous_white(labels)
    return labels


@contextmanager
def opened(video: VideoLike) -> Iterator[Video]:
    """Open the video and close it at the end; a video that was passed open stays open."""
    if isinstance(video, Video):
        yield video
        return
    with open_video(video) as source:
        yield source


def as_encoder(encoder: EncoderLike | None) -> Encoder:
    """Load what `load_encoder` takes; None is the bundled encoder."""
    return load_encoder() if encoder is None else load_encoder(encoder)


def encoder_reference(encoder: EncoderLike | None) -> str | None:
    """Name the encoder so that `load_encoder` finds it from any folder; None for a custom object.

    The checksum of an encoder that is loaded again is compared before it is used.
    """
    if encoder is None:
        return DEFAULT_ENCODER
    if isinstance(encoder, nn.Module):
        return None
    if not isinstance(encoder, str | Path):
        return encoder.name if encoder.name in encoder_names() else None
    return str(Path(encoder).absolute()) if Path(encoder).exists() else str(encoder)


def as_config(config: ConfigLike | None, *, default: PropagateConfig | None = None) -> PropagateConfig:
    """Read the settings of a preset's name; None is `default`."""
    if config is None:
        return default or PropagateConfig()
    if isinstance(config, str):
        return propagate_config(config)
    if not isinstance(config, PropagateConfig):
        raise SettingsError(
            f"the settings were passed as {_type_name(config)}",
            remedy="pass the name of a preset ('fast'), tc.propagate_config('fast', ['neighbours=5']) "
            "or tc.PropagateConfig(neighbours=5)",
        )
    return config


def _index(key: object) -> int:
    try:
        return operator.index(key)  # type: ignore[arg-type]
    except TypeError as error:
        raise LabelError(f"{key!r} is not the index of a frame", remedy=_EXPECTED) from error


def _read_points(index: int, path: Path, numbers: Sequence[int] | None) -> Keypoints:
    frames = read_keypoints(path)
    number = numbers[index] if numbers is not None and 0 <= index < len(numbers) else index
    if number not in frames:
        raise LabelError(
            f"{path} has no points on frame {number}, for which it was passed",
            remedy="write the frame's number in its `frame` column, or pass the file alone for all its frames",
        )
    return frames[number]


def _as_label(index: int, value: object) -> Labels:
    if isinstance(value, Labels):
        return value
    if not isinstance(value, ArrayLike | PIL.Image.Image):
        raise LabelError(f"the annotation of frame {index} is {_type_name(value)}", remedy=_EXPECTED)
    array = np.asarray(value)
    if array.ndim != 2 or not (array.dtype == bool or np.issubdtype(array.dtype, np.integer)):
        raise LabelError(
            f"the annotation of frame {index} is an array of {array.dtype} with the shape {array.shape}",
            remedy="pass a mask as an array (height, width) of object ids (whole numbers, 0 for the background) or of "
            "True and False; for other kinds make tc.Keypoints, tc.Parts, tc.Texture or tc.Coordinates",
        )
    return Masks.of(array)


def _type_name(value: object) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"
