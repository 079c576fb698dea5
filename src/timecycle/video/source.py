"""The interface of all videos: frames by index, in order and backwards."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from types import TracebackType

import numpy as np
from jaxtyping import UInt8

from timecycle.errors import VideoError
from timecycle.video.frame import Frame, Size

# Reading backwards holds one block of decoded frames in memory; 256 MiB is forty frames of 1080p.
BACKWARDS_BLOCK_BYTES = 256 * 1024 * 1024


class Video(ABC):
    """A sequence of frames of one size, read by index or in order, forwards or backwards.

    Every way of reading gives the same pixels for the same index.
    """

    def __init__(self, *, name: str, size: Size, time_base: Fraction) -> None:
        self.name = name  # a path, or "array": for messages
        self.size = size
        self.time_base = time_base  # seconds per unit of pts

    @property
    @abstractmethod
    def pts(self) -> Sequence[int]:
        """The presentation time of every frame in units of `time_base`, strictly increasing."""

    @property
    def numbers(self) -> Sequence[int]:
        """The number of every frame, strictly increasing: from the names of image files, otherwise the indices."""
        return range(len(self))

    @property
    def assumed_fps(self) -> float | None:
        """The frame rate that was assumed for images and arrays without times; None if the video has its own times."""
        return None

    @property
    def damage(self) -> str | None:
        """A description of the damage in a video opened with `allow_damaged`; None if it is intact."""
        return None

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a SHA-256 of the content; it does not depend on the video's path."""

    def values(self, index: int) -> np.ndarray | None:
        """Return the values of a frame as the file has them, (height, width) or (height, width, channels).

        None where the image of the frame has the same: files of 8 bits. Deeper values are scaled to make the image.
        """
        del index
        return None

    @abstractmethod
    def _images(self, start: int, stop: int) -> Iterator[tuple[int, UInt8[np.ndarray, "height width 3"]]]:
        """Yield index and image of the frames from `start` to before `stop`, in order."""

    def __len__(self) -> int:
        """The exact number of frames."""
        return len(self.pts)

    def __getitem__(self, index: int) -> Frame:
        """Return the frame at `index`; negative indices count from the end."""
        count = len(self)
        if isinstance(index, slice):
            raise VideoError("a video was asked for a slice of frames", remedy="iterate over video.frames(START, STOP)")
        if not -count <= index < count:
            raise VideoError(
                f"{self.name} has no frame {index}: it has {count} frames",
                remedy=f"ask for an index from 0 to {count - 1}",
            )
        return self._frame(index % count)

    def __iter__(self) -> Iterator[Frame]:
        return self.frames()

    def frames(self, start: int = 0, stop: int | None = None) -> Iterator[Frame]:
        """Iterate over the frames from `start` to before `stop` (the end if None), with one frame in memory."""
        count = len(self)
        stop = count if stop is None else stop
        if not 0 <= start <= stop <= count:
            raise VideoError(
                f"{self.name} has no frames from {start} to {stop}: it has {count} frames",
                remedy=f"choose 0 <= start <= stop <= {count}",
            )
        return (self._stamped(index, image) for index, image in self._images(start, stop))

    def backwards(self, start: int | None = None) -> Iterator[Frame]:
        """Iterate over the frames `start` (the last if None), `start` - 1, ..., 0.

        Video can only be decoded forwards, so one block at a time is decoded, kept and reversed.
        """
        count = len(self)
        start = count - 1 if start is None else start
        if not 0 <= start < count:
            raise VideoError(
                f"{self.name} has no frame {start} to start from: it has {count} frames",
                remedy=f"choose a start from 0 to {count - 1}",
            )
        return self._blocks_backwards(start + 1)

    def close(self) -> None:  # noqa: B027  most sources hold nothing open
        """Close open files; the next read opens them again."""

    def __enter__(self) -> "Video":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        name = self.name if len(self.name) <= 80 else f"...{self.name[-79:]}"
        try:
            count = len(self)
        except VideoError:  # frames are counted at the first use, and damage may be found by it
            return f"Video({name!r}, {self.size} px, damaged)"
        rate = f", {self._mean_fps:.4g} fps" if count > 1 else ""
        return f"Video({name!r}, {count} frame{'' if count == 1 else 's'}, {self.size} px{rate})"

    @property
    def _mean_fps(self) -> float:
        return float((len(self) - 1) / ((self.pts[-1] - self.pts[0]) * self.time_base))

    def _frame(self, index: int) -> Frame:
        return next(self.frames(index, index + 1))

    def _stamped(self, index: int, image: UInt8[np.ndarray, "height width 3"]) -> Frame:
        pts = self.pts[index]
        return Frame(
            index=index,
            number=self.numbers[index],
            pts=pts,
            time_seconds=float(pts * self.time_base),
            image=image,
        )

    def _blocks_backwards(self, stop: int) -> Iterator[Frame]:
        block_frames = max(1, BACKWARDS_BLOCK_BYTES // (self.size.pixels * 3))
        while stop > 0:
            start = self._block_start(max(0, stop - block_frames), stop)
            block = list(self.frames(start, stop))
            while block:
                yield block.pop()  # popped, so that yielded frames are not kept
            stop = start

    def _block_start(self, lowest: int, stop: int) -> int:
        """Return the best first frame, from `lowest` on, of a block that ends before `stop`."""
        del stop
        return lowest


class VideoSlice(Video):
    """The frames of another video from `start` to before `stop`, indexed from 0; numbers and times stay the same."""

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
    def assumed_fps(self) -> float | None:
        return self._whole.assumed_fps

    @property
    def damage(self) -> str | None:
        return self._whole.damage

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self._whole.fingerprint()} {self._start} {self._stop}".encode()).hexdigest()

    def values(self, index: int) -> np.ndarray | None:
        return self._whole.values(self._start + index)

    def backwards(self, start: int | None = None) -> Iterator[Frame]:
        """Read the whole video backwards, which knows its keyframes."""
        last = self._start + (len(self) - 1 if start is None else start)
        for frame in self._whole.backwards(last):
            if frame.index < self._start:
                return
            yield replace(frame, index=frame.index - self._start)

    def _images(self, start: int, stop: int) -> Iterator[tuple[int, UInt8[np.ndarray, "height width 3"]]]:
        for frame in self._whole.frames(self._start + start, self._start + stop):
            yield frame.index - self._start, frame.image
