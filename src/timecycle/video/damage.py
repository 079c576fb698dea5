"""Signs of damage while a file is read: FFmpeg's log messages, and the counts and durations of packets.

For some kinds of damage a message is the only sign, since FFmpeg continues without an error. FFmpeg has one log for the
whole process. It is captured only during single calls, and only messages of the calling thread are kept. Messages of a
decoder's own threads are lost: they do not tell which video they belong to.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import av.logging
from av.packet import Packet

Message = tuple[int, str, str]  # level (lower is worse), sender (the name of a format or codec), text

_LEVEL = av.logging.WARNING

# Errors that intact recordings of phones, cameras and older encoders cause, and that lose no frame.
_HARMLESS = ("chapter", "mmco: unref short failure", "exceeds max (probably corrupt", "SEI type", "APP fields", "udta")

# Most warnings report unusual but intact files. These report lost data.
_SERIOUS = ("Packet corrupt", "broken or empty index", "sync lost", "Packet mismatch", "truncated", "CRC", "checksum")


@dataclass
class _Log:
    """The log settings of the process, changed while at least one thread captures and restored afterwards."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    level: int | None = None
    skips_repeated: bool = True

    def start(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                self.level, self.skips_repeated = av.logging.get_level(), av.logging.get_skip_repeated()
                av.logging.set_skip_repeated(False)  # a second damaged video causes the same messages as the first
                av.logging.set_level(max(_LEVEL, self.level or 0))

    def stop(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                av.logging.set_level(self.level)
                av.logging.set_skip_repeated(self.skips_repeated)


_LOG = _Log()


@contextlib.contextmanager
def capture_messages() -> Iterator[list[Message]]:
    """Collect the messages that calls of this thread cause; messages of other threads are dropped."""
    with av.logging.Capture(local=False), av.logging.Capture() as messages:
        _LOG.start()
        try:
            yield messages
        finally:
            _LOG.stop()


def damage_in(messages: Sequence[Message], *, senders: Sequence[str]) -> str | None:
    """Return the first message of one of the `senders` (names of formats and codecs) that reports damage, or None."""
    for level, sender, text in messages:
        harmless = any(words in text for words in _HARMLESS)
        serious = level <= av.logging.ERROR or any(words in text for words in _SERIOUS)
        if sender in senders and serious and not harmless:
            return " ".join(text.split())
    return None


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
