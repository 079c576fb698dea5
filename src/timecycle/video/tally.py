"""What passes by while a file is read from its start to its end: how much of it there is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from av.packet import Packet

if TYPE_CHECKING:
    from av.video.stream import VideoStream

    VideoPacket = Packet[VideoStream]
else:
    VideoPacket = Packet  # generic in PyAV's stubs only


@dataclass
class Tally:
    """Packets of a stream, and their times in units of its time base."""

    packets: int = 0  # with the empty ones, by which some formats repeat a frame
    hidden: int = 0  # of these, packets that an edit list hides
    hidden_late: int = 0  # of these, packets after the first that is shown
    before_key: int = 0  # of the others, packets that come, or are shown, before the first keyframe
    shown: int = 0  # time that all other frames last
    longest: int = 0  # time that one frame lasts
    is_even: bool = True  # all frames last equally long; the last may differ, of which formats know least
    end: int | None = None  # when the last frame ends
    complete: bool = False  # read from the first packet to the last
    _stopped: bool = False
    _first_key: int | None = None  # when the first keyframe is shown
    _before: int | None = None  # how long the packet before lasts

    def count(self, packet: VideoPacket) -> None:
        """Take a packet into account."""
        lasts = packet.duration or 0
        if packet.size == 0 and packet.pts is None and packet.dts is None:
            return  # PyAV's own, which tells a decoder that the stream ends
        self.is_even = self.is_even and self._before in {None, self.longest}
        self._before = lasts
        if packet.is_keyframe and self._first_key is None:
            self._first_key = packet.pts if packet.pts is not None else 0
        early = self._first_key is None or (packet.pts is not None and packet.pts < self._first_key)
        self.before_key += early and not packet.is_discard
        self.packets += 1
        self.hidden_late += packet.is_discard and self.packets - 1 > self.hidden
        self.hidden += packet.is_discard
        self.shown += 0 if packet.is_discard else lasts
        self.longest = max(self.longest, lasts)
        if packet.pts is not None:
            self.end = max(self.end or 0, packet.pts + lasts)

    def stop(self) -> None:
        """The reader has gone elsewhere: the numbers are of no use any more."""
        self._stopped = True

    def end_reached(self) -> None:
        """Nothing follows."""
        self.complete = not self._stopped
