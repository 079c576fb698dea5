"""Some frames of a video, as a video of their own."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import UInt8

from timecycle.errors import VideoError
from timecycle.video.frame import Frame
from timecycle.video.source import Video


class VideoPart(Video):
    """The frames from `start` to before `stop`, counted from 0; times stay those of the whole."""

    def __init__(self, whole: Video, start: int, stop: int) -> None:
        if not 0 <= start < stop <= len(whole):
            raise VideoError(
                f"{whole.name} has no frames from {start} to {stop}: it has {len(whole)} frames",
                remedy=f"choose 0 <= start < stop <= {len(whole)}",
            )
        super().__init__(name=whole.name, size=whole.size, time_base=whole.time_base)
        self._whole, self._start, self._stop = whole, start, stop

    @property
    def pts(self) -> Sequence[int]:
        return self._whole.pts[self._start : self._stop]

    @property
    def numbers(self) -> Sequence[int]:
        return self._whole.numbers[self._start : self._stop]

    @property
    def damage(self) -> str | None:
        return self._whole.damage

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self._whole.fingerprint()} {self._start} {self._stop}".encode()).hexdigest()

    def backwards(self, start: int | None = None) -> Iterator[Frame]:
        """As the whole reads backwards, which knows where its key frames are."""
        last = self._start + (len(self) - 1 if start is None else start)
        for frame in self._whole.backwards(last):
            if frame.index < self._start:
                return
            yield replace(frame, index=frame.index - self._start)

    def _images(self, start: int, stop: int) -> Iterator[tuple[int, UInt8[np.ndarray, "height width 3"]]]:
        for frame in self._whole.frames(self._start + start, self._start + stop):
            yield frame.index - self._start, frame.image
