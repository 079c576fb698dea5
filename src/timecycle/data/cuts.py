"""Where one shot of a film ends and the next begins, and which shots have been seen before.

A cut changes the picture and its colours from one frame to the next, and far more than the frames before it changed.
Fades are not found: a clip may hold one.
"""

from collections import deque

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

_SMALL = (32, 18)  # pixels; motion of small things is no cut
_BINS = 8  # of every colour channel
_LEAST_CHANGE = 16.0  # grey levels
_LEAST_SHIFT = 0.25  # of the picture's pixels, to other colours
_TIMES_USUAL = 3.0
_USUAL = 8  # frames

_HASH = 8  # rows and columns of bits
_MOST_BITS = 4  # of 64 in which a frame may differ from the same frame coded again
_MARKS = 4  # frames of a clip


class CutFinder:
    """Tells of every frame whether a new shot begins with it."""

    def __init__(self) -> None:
        self._last: Float32[np.ndarray, "rows columns 3"] | None = None
        self._changes: deque[float] = deque(maxlen=_USUAL)

    def begins(self, image: UInt8[np.ndarray, "height width 3"]) -> bool:
        """Whether this picture, the next of the film, is the first of a shot."""
        small = np.asarray(Image.fromarray(image).resize(_SMALL, Image.Resampling.BOX), np.float32)
        last, self._last = self._last, small
        if last is None:
            return False
        change = float(np.abs(small - last).mean())
        usual = float(np.median(self._changes)) if self._changes else 0.0
        is_cut = change > max(_LEAST_CHANGE, _TIMES_USUAL * usual) and _shift(last, small) > _LEAST_SHIFT
        if is_cut:
            self._changes.clear()
        else:
            self._changes.append(change)
        return is_cut


def frame_mark(image: UInt8[np.ndarray, "height width 3"]) -> int:
    """64 bits that stay nearly the same when a picture is coded or scaled again: brighter to the right, or not."""
    grey = Image.fromarray(image).convert("L").resize((_HASH + 1, _HASH), Image.Resampling.BOX)
    levels = np.asarray(grey, np.int16)
    bits = (levels[:, 1:] > levels[:, :-1]).ravel()
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def marked_frames(count: int) -> list[int]:
    """The frames of a clip whose marks stand for it."""
    return [int(index) for index in np.linspace(0, count - 1, _MARKS).round()]


class SeenClips:
    """The clips so far by their marks: whether another is one of them, coded again."""

    def __init__(self) -> None:
        self._by_mark: dict[tuple[int, int], list[tuple[int, ...]]] = {}

    def is_new(self, marks: tuple[int, ...]) -> bool:
        """Whether no clip before had nearly these marks; it is remembered.

        Looked up by any single mark that is the same to the bit, so that the time does not grow with the clips.
        """
        places = list(enumerate(marks))
        likely = (known for place in places for known in self._by_mark.get(place, ()))
        if any(_differ_little(marks, known) for known in likely):
            return False
        for place in places:
            self._by_mark.setdefault(place, []).append(marks)
        return True


def _differ_little(marks: tuple[int, ...], known: tuple[int, ...]) -> bool:
    return all((one ^ other).bit_count() <= _MOST_BITS for one, other in zip(marks, known, strict=True))


def _shift(last: Float32[np.ndarray, "rows columns 3"], small: Float32[np.ndarray, "rows columns 3"]) -> float:
    """The share of pixels that must change colour for one picture's histogram to become the other's."""
    shares = [
        np.histogramdd(picture.reshape(-1, 3), bins=_BINS, range=[(0, 256)] * 3)[0].ravel() / (picture.size / 3)
        for picture in (last, small)
    ]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)
