"""The frame table of a file: the time stamp of every frame, and the keyframes from which decoding can start."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from timecycle.video.decoder import Decoder


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
