"""A read position in a video file that can move to any frame exactly, by the table of its frames."""

import contextlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from jaxtyping import UInt8

from timecycle.errors import VideoError
from timecycle.video.decoder import Decoder, upright_rgb


@dataclass(frozen=True, eq=False)
class FrameTable:
    """The frames of a file in the order of presentation."""

    stamps: Sequence[int | None]  # as the decoder reports them; None if the file has no times
    keyframes: Sequence[int]  # ascending indices
    frame_duration: int  # used if the file has no times
    certain: bool  # counted by decoding, not from packets

    @classmethod
    def from_packets(cls, decoder: Decoder) -> "FrameTable | None":
        """Build the table without decoding; None if the packets do not give the time of every frame."""
        if not decoder.packets_are_frames:
            return None
        shown = [(packet.pts, packet.is_keyframe) for packet in decoder.packets()]
        timed = [(stamp, is_key) for stamp, is_key in shown if stamp is not None]
        if len({stamp for stamp, _ in timed}) < len(shown) or (not decoder.reorders and timed != sorted(timed)):
            return None  # decreasing times in a codec without reordering are damaged: use the decoder's order
        return cls._of(sorted(timed), decoder, certain=False)

    @classmethod
    def from_frames(cls, decoder: Decoder) -> "FrameTable":
        """Build the table by decoding the whole file."""
        shown = []
        for frame in decoder.frames():
            decoder.check_intact(frame)
            shown.append((frame.pts, frame.key_frame))
        return cls._of(shown, decoder, certain=True)

    @classmethod
    def _of(cls, shown: Sequence[tuple[int | None, bool]], decoder: Decoder, *, certain: bool) -> "FrameTable":
        return cls(
            stamps=[stamp for stamp, _ in shown],
            keyframes=[index for index, (_, is_key) in enumerate(shown) if is_key],
            frame_duration=max(1, round(1 / (decoder.rate * decoder.time_base))),
            certain=certain,
        )

    def without_entry_points(self) -> "FrameTable":
        """Return the table without keyframes, so that decoding always starts at the first frame.

        Damage may look different when decoding starts at a keyframe.
        """
        return replace(self, keyframes=())

    def __len__(self) -> int:
        return len(self.stamps)

    @cached_property
    def pts(self) -> Sequence[int]:
        """Strictly increasing times: the stamps, raised where they do not increase, or even steps."""
        stamps = [stamp for stamp in self.stamps if stamp is not None]
        if len(stamps) < len(self):
            return range(0, self.frame_duration * len(self), self.frame_duration)
        return list(accumulate(stamps, lambda previous, stamp: max(stamp, previous + 1)))

    def entry_points(self, index: int) -> Iterator[int]:
        """Yield keyframes at or before `index` to decode from: the nearest first, then ever earlier ones."""
        last = bisect_right(self.keyframes, index) - 1
        back = 0
        while last - back >= 0:
            yield self.keyframes[last - back]
            back = 2 * back + 1

    @cached_property
    def index_of_keyframe(self) -> dict[int | None, int]:
        """The index of every keyframe by its time stamp, unless other frames share the stamp."""
        counts = Counter(self.stamps)
        stamps = ((self.stamps[index], index) for index in self.keyframes)
        return {stamp: index for stamp, index in stamps if stamp is not None and counts[stamp] == 1}


class WrongTableError(Exception):
    """The decoded frame at `index` is not the one in the frame table."""

    def __init__(self, index: int, table: FrameTable) -> None:
        super().__init__(f"frame {index} is not where the table has it")
        self.index = index
        self.table = table


class Cursor:
    """Reads the next frames directly, and any other frame by decoding from a keyframe before it."""

    def __init__(self, open_decoder: Callable[[], Decoder], table: FrameTable) -> None:
        self._open_decoder = open_decoder
        self._table = table
        self._decoder = open_decoder()
        self._reformatter = VideoReformatter()  # not shared: two threads that use one crash
        self._frames: Iterator[VideoFrame] = self._decoder.frames()
        self._next: int | None = 0  # the index of the next frame of `_frames`; None after a failure

    def read(self, index: int) -> VideoFrame:
        """Return the frame at `index`; raise WrongTableError if the table does not match the file."""
        if self._is_just_ahead(index):
            return self._read_up_to(index)
        for keyframe in self._table.entry_points(index):
            # A failure from one keyframe may be a success from an earlier one: frames after a keyframe may refer to
            # frames before it, and some containers seek too far.
            with contextlib.suppress(VideoError, WrongTableError):
                self._seek(keyframe)
                return self._read_up_to(index)
        self._restart()
        return self._read_up_to(index)

    def rgb(self, frame: VideoFrame) -> UInt8[np.ndarray, "height width 3"]:
        """Return the upright RGB image of a frame that this cursor read."""
        return upright_rgb(self._decoder.path, frame, self._reformatter)

    def expect_end(self) -> None:
        """Raise WrongTableError if the file has frames after the table's last one."""
        if self._next == len(self._table) and next(self._frames, None) is not None:
            raise WrongTableError(len(self._table), self._table)

    def close(self) -> None:
        """Close the file."""
        self._decoder.close()

    def _is_just_ahead(self, index: int) -> bool:
        """Return whether reading on is faster than seeking: there is no keyframe in between."""
        if self._next is None or index < self._next:
            return False
        keyframes = self._table.keyframes
        return bisect_right(keyframes, self._next) == bisect_right(keyframes, index)

    def _read_up_to(self, index: int) -> VideoFrame:
        while True:
            position = self._next
            frame = self._read_next()
            if position == index:
                return frame

    def _read_next(self) -> VideoFrame:
        """Return the next frame, if it is intact and the one that the table lists next."""
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
        """Move to a keyframe near `keyframe`.

        Frames decoded before the first keyframe are dropped: they belong to the previous group and lack the frames they
        refer to.
        """
        self._next = None
        stamp = self._table.stamps[keyframe]
        if stamp is None:
            raise WrongTableError(keyframe, self._table)
        self._decoder.seek(stamp)
        frames = self._decoder.frames()
        for frame in frames:
            index = self._table.index_of_keyframe.get(frame.pts)
            if index is not None and frame.key_frame:  # a container may mark other frames as keyframes
                self._frames, self._next = chain([frame], frames), index
                return
        raise WrongTableError(keyframe, self._table)

    def _restart(self) -> None:
        """Move to the first frame with a new decoder: not every format can seek to its start."""
        self.close()
        self._decoder = self._open_decoder()
        self._frames, self._next = self._decoder.frames(), 0
