"""Videos in memory."""

import hashlib
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from jaxtyping import UInt8

from timecycle.errors import VideoError
from timecycle.video.frame import Size
from timecycle.video.source import Video


class ArrayVideo(Video):
    """Frames from one array (time, height, width[, 3]) or a sequence of arrays (height, width[, 3])."""

    def __init__(self, arrays: Sequence[np.ndarray] | np.ndarray, *, time_base: Fraction) -> None:
        super().__init__(name="array", size=_common_size(arrays), time_base=time_base)
        self._arrays = arrays

    @property
    def pts(self) -> Sequence[int]:
        return range(len(self._arrays))

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"{len(self)} {self.size}".encode())
        for _, image in self._images(0, len(self)):
            digest.update(image.tobytes())
        return digest.hexdigest()

    def _images(self, start: int, stop: int) -> Iterator[tuple[int, UInt8[np.ndarray, "height width 3"]]]:
        for index in range(start, stop):
            yield index, _rgb(self._arrays[index])


def _rgb(array: np.ndarray) -> UInt8[np.ndarray, "height width 3"]:
    """Return a copy in RGB, so that changing a frame does not change the caller's array."""
    if array.ndim == 2:
        return np.repeat(array[:, :, None], 3, axis=2)
    return np.array(array, order="C")


def _common_size(arrays: Sequence[np.ndarray] | np.ndarray) -> Size:
    if len(arrays) == 0:
        raise VideoError("the array holds no frames", remedy="pass at least one frame")
    for index, array in enumerate(arrays):
        _check_frame(index, array)
        if array.shape != arrays[0].shape:
            raise VideoError(
                f"frame {index} has the shape {array.shape} but frame 0 has {arrays[0].shape}",
                remedy="bring all frames to one shape",
            )
    height_px, width_px = arrays[0].shape[:2]
    return Size(height_px, width_px)


def _check_frame(index: int, array: object) -> None:
    if not isinstance(array, np.ndarray) or array.ndim not in {2, 3} or array.shape[2:] not in {(), (3,)}:
        raise VideoError(
            f"frame {index} is {_described(array)}, not an image",
            remedy="pass a video as (time, height, width, 3) or (time, height, width)",
        )
    if array.dtype != np.uint8:
        raise VideoError(
            f"frame {index} has the type {array.dtype}, not uint8",
            remedy="scale the values to 0..255 and convert them with .astype(numpy.uint8)",
        )
    if array.size == 0:
        raise VideoError(
            f"frame {index} is {_described(array)}: it has no pixels", remedy="pass frames with at least one pixel"
        )


def _described(value: object) -> str:
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
