"""Keep decoded frames in memory: training on a few hours of video or less reads the same frames again and again."""

from collections import OrderedDict
from threading import Lock

import numpy as np
from jaxtyping import UInt8

Image = UInt8[np.ndarray, "height width 3"]


class FrameCache:
    """The frames that were used last, by video and index, up to a size in memory; shared by threads.

    Frames are handed out read-only, so that nobody changes what others will read.
    """

    def __init__(self, limit_bytes: float) -> None:
        self.limit_bytes = limit_bytes
        self._bytes = 0
        self._frames: OrderedDict[tuple[str, int], Image] = OrderedDict()
        self._lock = Lock()

    def get(self, video: str, index: int) -> Image | None:
        """Return a frame that is kept."""
        with self._lock:
            frame = self._frames.get((video, index))
            if frame is not None:
                self._frames.move_to_end((video, index))
            return frame

    def put(self, video: str, index: int, frame: Image) -> None:
        """Keep a frame, in place of those that have not been used for the longest time."""
        kept = frame.view()
        kept.flags.writeable = False
        with self._lock:
            before = self._frames.pop((video, index), None)
            self._frames[video, index] = kept
            self._bytes += kept.nbytes - (0 if before is None else before.nbytes)
            while self._bytes > self.limit_bytes:
                self._bytes -= self._frames.popitem(last=False)[1].nbytes
