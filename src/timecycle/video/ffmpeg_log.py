"""FFmpeg's log messages: for some kinds of damage the only sign, since FFmpeg continues without an error.

FFmpeg has one log for the whole process. It is captured only during single calls, and only messages of the calling
thread are kept. Messages of a decoder's own threads are lost: they do not tell which video they belong to.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import av.logging

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
