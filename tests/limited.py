"""Things done under a limit of the system, in a process of their own, forked so that nothing is imported again."""

import os
import pickle
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_CHUNK = 1 << 16
_taken: list[bytearray] = []


def limited(act: Callable[[], Any], limit: str, room: int) -> Any:
    """What `act` returns, or the exception it raises, with only so much more of something."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(100)  # a process that hangs ends
        try:
            _set(limit, room)
            result = act()
        except BaseException as error:
            result = error
        os.write(write, pickle.dumps(result))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    assert content, "it ended without an answer"
    return pickle.loads(content)


def _set(limit: str, room: int) -> None:
    if limit == "memory":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))
        with suppress(MemoryError):  # what the process was given before and does not use is room too
            while True:
                _taken.append(bytearray(_CHUNK))
        del _taken[-room // _CHUNK :]
    elif limit == "files":
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)
        for _ in range(free):  # holes below would be room too
            os.dup(0)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + room, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
