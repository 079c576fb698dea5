"""Counts and durations of the packets that were read, to check that a file is complete."""

from dataclasses import dataclass

from av.packet import Packet


@dataclass
class Tally:
    """Packets of a stream, and their times in units of its time base."""

    packets: int = 0  # including empty ones, by which some formats repeat a frame
    discarded: int = 0  # of these, packets that an edit list hides
    discarded_late: int = 0  # of these, packets after the first that is shown
    before_keyframe: int = 0  # of the others, packets that are stored or shown before the first keyframe
    shown_duration: int = 0  # of all packets that are not discarded
    longest_duration: int = 0  # of one frame
    is_even: bool = True  # all frames have the same duration, except perhaps the last, which formats often do not know
    end: int | None = None  # when the last frame ends
    complete: bool = False  # read from the first packet to the last
    _stopped: bool = False
    _first_keyframe: int | None = None  # when it is shown
    _previous_duration: int | None = None

    def count(self, packet: Packet) -> None:  # type: ignore[type-arg]  # generic in PyAV's stubs only
        """Add a packet."""
        duration = packet.duration or 0
        if packet.size == 0 and packet.pts is None and packet.dts is None:
            return  # PyAV adds it to flush the decoder at the end
        self.is_even = self.is_even and self._previous_duration in {None, self.longest_duration}
        self._previous_duration = duration
        if packet.is_keyframe and self._first_keyframe is None:
            self._first_keyframe = packet.pts if packet.pts is not None else 0
        early = self._first_keyframe is None or (packet.pts is not None and packet.pts < self._first_keyframe)
        self.before_keyframe += early and not packet.is_discard
        self.packets += 1
        self.discarded_late += packet.is_discard and self.packets - 1 > self.discarded
        self.discarded += packet.is_discard
        self.shown_duration += 0 if packet.is_discard else duration
        self.longest_duration = max(self.longest_duration, duration)
        if packet.pts is not None:
            self.end = max(self.end or 0, packet.pts + duration)

    def stop(self) -> None:
        """Note that the reader has seeked, so that the counts do not cover the file."""
        self._stopped = True

    def end_reached(self) -> None:
        """Note that the last packet has been read."""
        self.complete = not self._stopped
