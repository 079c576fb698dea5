"""Detect shot boundaries in a video, and clips that duplicate an earlier one.

At a hard cut, the image and its colours change far more than between the frames before. Fades are not detected: a clip
may contain one.
"""

from collections import deque

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

_SMALL = (32, 18)  # pixels: at this size, motion of small objects does not look like a cut
_BINS = 8  # of every colour channel
_MIN_CHANGE = 16.0  # grey levels
_MIN_COLOUR_CHANGE = 0.25  # share of the pixels that move to other histogram bins
_TIMES_USUAL = 3.0
_USUAL_FRAMES = 8

_HASH_SIZE = 8  # rows and columns of bits
_MAX_BITS = 4  # of 64 that may differ between a frame and a re-encoded copy of it
_HASHES = 4  # frames of a clip


class ShotDetector:
    """Detects, frame by frame, where a new shot begins."""

    def __init__(self) -> None:
        self._last: Float32[np.ndarray, "rows columns 3"] | None = None
        self._changes: deque[float] = deque(maxlen=_USUAL_FRAMES)

    def starts_shot(self, image: UInt8[np.ndarray, "height width 3"]) -> bool:
        """Whether this image, the next of the video, is the first of a new shot."""
        small = np.asarray(Image.fromarray(image).resize(_SMALL, Image.Resampling.BOX), np.float32)
        last, self._last = self._last, small
        if last is None:
            return False
        change = float(np.abs(small - last).mean())
        usual = float(np.median(self._changes)) if self._changes else 0.0
        is_boundary = (
            change > max(_MIN_CHANGE, _TIMES_USUAL * usual) and _colour_change(last, small) > _MIN_COLOUR_CHANGE
        )
        if is_boundary:
            self._changes.clear()
        else:
            self._changes.append(change)
        return is_boundary


def frame_hash(image: UInt8[np.ndarray, "height width 3"]) -> int:
    """Compute a difference hash (dHash): 64 bits that hardly change when an image is re-encoded or resized."""
    grey = Image.fromarray(image).convert("L").resize((_HASH_SIZE + 1, _HASH_SIZE), Image.Resampling.BOX)
    levels = np.asarray(grey, np.int16)
    bits = (levels[:, 1:] > levels[:, :-1]).ravel()
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def hashed_frames(count: int) -> list[int]:
    """Return the indices of the frames whose hashes identify a clip."""
    return [int(index) for index in np.linspace(0, count - 1, _HASHES).round()]


class DuplicateDetector:
    """Remembers the hashes of clips, and recognises a clip that is a re-encoded copy of an earlier one."""

    def __init__(self) -> None:
        self._by_hash: dict[tuple[int, int], list[tuple[int, ...]]] = {}

    def is_new(self, hashes: tuple[int, ...]) -> bool:
        """Whether no earlier clip had nearly these hashes; a new clip is remembered.

        Candidates share at least one hash exactly, so that the lookup does not slow down with the number of clips.
        """
        keys = list(enumerate(hashes))
        candidates = (known for key in keys for known in self._by_hash.get(key, ()))
        if any(_nearly_equal(hashes, known) for known in candidates):
            return False
        for key in keys:
            self._by_hash.setdefault(key, []).append(hashes)
        return True


def _nearly_equal(hashes: tuple[int, ...], known: tuple[int, ...]) -> bool:
    return all((one ^ other).bit_count() <= _MAX_BITS for one, other in zip(hashes, known, strict=True))


def _colour_change(last: Float32[np.ndarray, "rows columns 3"], small: Float32[np.ndarray, "rows columns 3"]) -> float:
    """Return the share of pixels that must change bins to turn one colour histogram into the other."""
    shares = [
        np.histogramdd(picture.reshape(-1, 3), bins=_BINS, range=[(0, 256)] * 3)[0].ravel() / (picture.size / 3)
        for picture in (last, small)
    ]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)
