"""A part of a video as a video of its own, in either direction of time."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import UInt8

import timecycle as tc


class OrderedFrames(tc.Video):
    """The frames of another video in an order of consecutive indices, which may decrease; indexed from 0 here."""

    def __init__(self, whole: tc.Video, order: range) -> None:
        super().__init__(name=whole.name, size=whole.size, time_base=whole.time_base)
        self._whole, self._order = whole, order

    @property
    def pts(self) -> Sequence[int]:
        start, sign = self._whole.pts[self._order[0]], self._order.step  # times increase in either direction
        return [sign * (self._whole.pts[index] - start) for index in self._order]

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self._whole.fingerprint()} {self._order}".encode()).hexdigest()

    def backwards(self, start: int | None = None) -> Iterator[tc.Frame]:
        if self._order.step > 0:
            return super().backwards(start)
        last = len(self) - 1 if start is None else start
        frames = self._whole.frames(self._order[last], self._order[0] + 1)  # reversed twice: as the video is decoded
        return (
            self._stamped(position, frame.image) for position, frame in zip(range(last, -1, -1), frames, strict=True)
        )

    def _images(self, start: int, stop: int) -> Iterator[tuple[int, UInt8[np.ndarray, "height width 3"]]]:
        if start == stop:
            return
        if self._order.step > 0:
            frames = self._whole.frames(self._order[start], self._order[stop - 1] + 1)
        else:
            frames = self._whole.backwards(self._order[start])
        for position, frame in zip(range(start, stop), frames, strict=False):  # the whole video begins earlier
            yield position, frame.image
