"""A place in a video file that moves to any frame exactly."""

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from jaxtyping import UInt8

from timecycle.errors import VideoError
from timecycle.video.decoder import Decoder, upright_rgb
from timecycle.video.frame_table import FrameTable


class WrongTableError(Exception):
    """The file did not give, at `index`, the frame its table promises."""

    def __init__(self, index: int, table: FrameTable) -> None:
        super().__init__(f"frame {index} is not where the table has it")
        self.index = index
        self.table = table


class Cursor:
    """Reads on cheaply; reaches any other frame by decoding from a keyframe before it."""

    def __init__(self, open_decoder: Callable[[], Decoder], table: FrameTable) -> None:
        self._open_decoder = open_decoder
        self._table = table
        self._decoder = open_decoder()
        self._reformatter = VideoReformatter()  # of its own: two threads that share one crash
        self._frames: Iterator[VideoFrame] = self._decoder.frames()
        self._next: int | None = 0  # the index of the next of `_frames`; None after a failure

    def read(self, index: int) -> VideoFrame:
        """The frame at `index`; WrongTableError if the table is not true to the file."""
        if self._is_just_ahead(index):
            return self._run_to(index)
        for keyframe in self._table.entry_points(index):
            # What fails from a keyframe may succeed from farther back: frames after it may lean on frames
            # before it, and some containers seek too far.
            with contextlib.suppress(VideoError, WrongTableError):
                self._seek(keyframe)
                return self._run_to(index)
        self._restart()
        return self._run_to(index)

    def rgb(self, frame: VideoFrame) -> UInt8[np.ndarray, "height width 3"]:
        """The upright picture of a frame that was read here."""
        return upright_rgb(self._decoder.path, frame, self._reformatter)

    def expect_end(self) -> None:
        """WrongTableError if the file goes on after the table's last frame has been read."""
        if self._next == len(self._table) and next(self._frames, None) is not None:
            raise WrongTableError(len(self._table), self._table)

    def close(self) -> None:
        """Close the file."""
        self._decoder.close()

    def _is_just_ahead(self, index: int) -> bool:
        """Whether running there beats seeking: no keyframe lies between."""
        if self._next is None or index < self._next:
            return False
        keyframes = self._table.keyframes
        return bisect_right(keyframes, self._next) == bisect_right(keyframes, index)

    def _run_to(self, index: int) -> VideoFrame:
        while True:
            position = self._next
            frame = self._take()
            if position == index:
                return frame

    def _take(self) -> VideoFrame:
        """The next frame, if it is whole and the one the table says comes next."""
        index, self._next = self._next, None
        if index is None or index >= len(self._table):
            raise WrongTableError(index or 0, self._table)
        frame = next(self._frames, None)
        if frame is None or frame.pts != self._table.stamps[index]:
            raise WrongTableError(index, self._table)
        self._decoder.check_intact(frame)
        self._next = index + 1
        return frame

    def _seek(self, keyframe: int) -> None:
        """Stand at a keyframe, hopefully this one.

        Frames decoded before the first keyframe are thrown away: they belong to the group before it and lack
        what they refer to.
        """
        self._next = None
        stamp = self._table.stamps[keyframe]
        if stamp is None:
            raise WrongTableError(keyframe, self._table)
        self._decoder.seek(stamp)
        frames = self._decoder.frames()
        for frame in frames:
            landed = self._table.index_of_keyframe.get(frame.pts)
            if landed is not None and frame.key_frame:  # a container may call a frame a keyframe that is none
                self._frames, self._next = chain([frame], frames), landed
                return
        raise WrongTableError(keyframe, self._table)

    def _restart(self) -> None:
        """Stand at the first frame. A fresh decoder: not every format can seek to its very start."""
        self.close()
        self._decoder = self._open_decoder()
        self._frames, self._next = self._decoder.frames(), 0
