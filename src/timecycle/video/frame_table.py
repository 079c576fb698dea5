"""Where every frame of a file is: its time stamp, and the frames that decoding can start from."""

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

    stamps: Sequence[int | None]  # as the decoder reports them; None where the file keeps no times
    keyframes: Sequence[int]  # indexes, ascending
    even_step: int  # what one frame lasts where the file keeps no times
    certain: bool  # counted by decoding, not from packets

    @classmethod
    def from_packets(cls, decoder: Decoder) -> "FrameTable | None":
        """The table read without decoding; None if the packets do not tell every frame's own time."""
        if not decoder.packets_are_frames:
            return None
        shown = [(packet.pts, packet.is_keyframe) for packet in decoder.packets()]
        timed = [(stamp, is_key) for stamp, is_key in shown if stamp is not None]
        if len({stamp for stamp, _ in timed}) < len(shown) or (not decoder.reorders and timed != sorted(timed)):
            return None  # times that go back in a codec without reordering are damaged: the decoder's order holds
        return cls._of(sorted(timed), decoder, certain=False)

    @classmethod
    def from_frames(cls, decoder: Decoder) -> "FrameTable":
        """The table read by decoding everything once."""
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
            even_step=max(1, round(1 / (decoder.rate * decoder.time_base))),
            certain=certain,
        )

    def without_entry_points(self) -> "FrameTable":
        """The same frames, each of which is reached from the first: damage may look different from a keyframe on."""
        return replace(self, keyframes=())

    def __len__(self) -> int:
        return len(self.stamps)

    @cached_property
    def pts(self) -> Sequence[int]:
        """Strictly increasing times: the stamps, moved on where they do not increase, or even steps."""
        stamps = [stamp for stamp in self.stamps if stamp is not None]
        if len(stamps) < len(self):
            return range(0, self.even_step * len(self), self.even_step)
        return list(accumulate(stamps, lambda before, stamp: max(stamp, before + 1)))

    def entry_points(self, index: int) -> Iterator[int]:
        """Keyframes at or before `index` to start decoding from, best first, each much farther back."""
        last = bisect_right(self.keyframes, index) - 1
        back = 0
        while last - back >= 0:
            yield self.keyframes[last - back]
            back = 2 * back + 1

    @cached_property
    def index_of_keyframe(self) -> dict[int | None, int]:
        """From the time stamp of a keyframe, unless other frames share it, to its index."""
        frames_with = Counter(self.stamps)
        stamps = ((self.stamps[index], index) for index in self.keyframes)
        return {stamp: index for stamp, index in stamps if stamp is not None and frames_with[stamp] == 1}
