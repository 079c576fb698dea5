"""What FFmpeg says while it reads: the only sign of some kinds of damage, after which it goes on without a word to us.

FFmpeg has one log for the whole process. It is listened to only during single calls, and only what the calling thread
itself causes is kept. Threads of a decoder that works on several frames at once are not heard: nobody could tell which
video they speak of.
"""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import av.logging

Message = tuple[int, str, str]  # level (lower is worse), who says it (the name of a format or codec), the text

_LEVEL = av.logging.WARNING


@dataclass
class _Ear:
    """The process's log, turned on while anybody listens; afterwards it is as it was."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    listeners: int = 0
    level: int | None = None
    skips_repeated: bool = True

    def open(self) -> None:
        with self.lock:
            self.listeners += 1
            if self.listeners == 1:
                self.level, self.skips_repeated = av.logging.get_level(), av.logging.get_skip_repeated()
                av.logging.set_skip_repeated(False)  # the second damaged video says what the first one said
                av.logging.set_level(max(_LEVEL, self.level or 0))

    def close(self) -> None:
        with self.lock:
            self.listeners -= 1
            if self.listeners == 0:
                av.logging.set_level(self.level)
                av.logging.set_skip_repeated(self.skips_repeated)


_EAR = _Ear()


@contextlib.contextmanager
def listening() -> Iterator[list[Message]]:
    """A list that grows by what FFmpeg says in calls of this thread; other threads' words are dropped."""
    with av.logging.Capture(local=False), av.logging.Capture() as messages:
        _EAR.open()
        try:
            yield messages
        finally:
            _EAR.close()
