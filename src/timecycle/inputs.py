"""What a Python caller may pass for annotations, encoders and settings, as the types the engine takes."""

import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import PIL.Image

from timecycle.config import propagate_config
from timecycle.errors import LabelError, SettingsError
from timecycle.labels import Labels, Masks, read_labels
from timecycle.labels.fitting import note_two_whites
from timecycle.labels.keypoints import Keypoints, read_keypoints
from timecycle.model.encoder import Encoder
from timecycle.model.registry import DEFAULT_ENCODER, encoder_names, load_encoder
from timecycle.propagation.settings import PropagateConfig


@runtime_checkable
class ArrayLike(Protocol):
    """A numpy array, or what can be read as one: a tensor on the CPU."""

    def __array__(self) -> np.ndarray: ...


Annotation = Labels | ArrayLike | PIL.Image.Image | str | Path
Annotations = Mapping[int, Annotation] | Annotation
EncoderLike = Encoder | str | Path
ConfigLike = PropagateConfig | str

_EXPECTED = (
    "pass a mapping of frame numbers (from 0) to annotations: {0: tc.Masks.read('first.png')}, "
    "{0: 'first.png'} or {0: array of object ids}"
)


def as_labels(
    annotations: Annotations, numbers: Sequence[int] | None = None, size: tuple[int, int] | None = None
) -> dict[int, Labels]:
    """Turn what was annotated into labels by frame index; what stands alone is of frame 0, or a folder or CSV that says
    itself which frames it is of, by the `numbers` of the video's frames. Files are read as the command line reads
    them, all together."""
    given: object = annotations  # whatever was passed: people try other things than the types say
    if isinstance(given, str | Path):
        return read_labels([given], numbers=numbers, size=size)
    if isinstance(given, Labels | ArrayLike | PIL.Image.Image):
        given = {0: given}
    if not isinstance(given, Mapping):
        raise LabelError(f"annotations were passed as {_described(given)}", remedy=_EXPECTED)
    by_index = {_index(key): value for key, value in given.items()}
    files = {index: Path(value) for index, value in by_index.items() if isinstance(value, str | Path)}
    read = _read_files(files, numbers, size)
    labels = {index: read[index] if index in read else _as_label(index, value) for index, value in by_index.items()}
    if len(files) < len(labels):  # of files alone it is said when they are read
        note_two_whites(labels)
    return labels


def as_encoder(encoder: EncoderLike | None) -> Encoder:
    """Load the encoder that a name or path stands for; None is the one that comes with the package."""
    if encoder is None:
        return load_encoder()
    if isinstance(encoder, str | Path):
        return load_encoder(str(encoder))
    if not isinstance(encoder, Encoder):
        raise SettingsError(
            f"the encoder was passed as {_described(encoder)}",
            remedy="pass a name or a path as load_encoder takes it, or an object with name, sha256, form and encode",
        )
    return encoder


def encoder_word(encoder: EncoderLike | None) -> str | None:
    """Name the encoder so that `load_encoder` finds it again from anywhere; None for an object of the caller's own.

    What is found again is compared by checksum before it is used.
    """
    if encoder is None:
        return DEFAULT_ENCODER
    if not isinstance(encoder, str | Path):
        return encoder.name if encoder.name in encoder_names() else None
    return str(Path(encoder).absolute()) if Path(encoder).exists() else str(encoder)


def as_config(config: ConfigLike | None, *, default: PropagateConfig | None = None) -> PropagateConfig:
    """Read the settings that a preset's name stands for; None is `default`."""
    if config is None:
        return default or PropagateConfig()
    if isinstance(config, str):
        return propagate_config(config)
    if not isinstance(config, PropagateConfig):
        raise SettingsError(
            f"the settings were passed as {_described(config)}",
            remedy="pass the name of a preset ('fast'), tc.propagate_config('fast', ['neighbours=5']) "
            "or tc.PropagateConfig(neighbours=5)",
        )
    return config


def _index(key: object) -> int:
    try:
        return operator.index(key)  # type: ignore[arg-type]
    except TypeError as error:
        raise LabelError(f"{key!r} is not the number of a frame", remedy=_EXPECTED) from error


def _read_files(
    files: Mapping[int, Path], numbers: Sequence[int] | None, size: tuple[int, int] | None
) -> dict[int, Labels]:
    """Images are read together, so that one colour is one object in all of them; a CSV has rows for its frames."""
    points = {index: path for index, path in files.items() if path.suffix.lower() == Keypoints.suffix}
    images = [f"{index}={path}" for index, path in files.items() if index not in points]
    read = read_labels(images, size=size) if images else {}
    return read | {index: _read_points(index, path, numbers) for index, path in points.items()}


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
        raise LabelError(f"the annotation of frame {index} is {_described(value)}", remedy=_EXPECTED)
    array = np.asarray(value)
    if array.ndim != 2 or not (array.dtype == bool or np.issubdtype(array.dtype, np.integer)):
        raise LabelError(
            f"the annotation of frame {index} is an array of {array.dtype} with the shape {array.shape}",
            remedy="pass a mask as an array (height, width) of object ids (whole numbers, 0 for the background) or of "
            "True and False; for other kinds make tc.Keypoints, tc.Parts, tc.Texture or tc.Coordinates",
        )
    return Masks.of(array)


def _described(value: object) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"
