"""Run a function under a limit of the system, in a forked process that need not import anything again."""

import faulthandler
import gc
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_CHUNK = 1 << 16
_allocated: list[bytearray] = []


def limited(function: Callable[[], Any], limit: str, room: int) -> Any:
    """Return the function's result, or the exception it raises, with only `room` more memory, files or file size."""
    read, write = os.pipe()
    gc.collect()  # a decoder that is freed in the child would wait for threads that a fork does not copy
    child = os.fork()
    if child == 0:
        gc.freeze()
        faulthandler.dump_traceback_later(60, file=sys.__stderr__)  # says where a process hangs
        signal.alarm(100)  # ends a hanging process
        try:
            _set(limit, room)
            result = function()
        except BaseException as error:
            result = error
        os.write(write, pickle.dumps(result))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    assert content, "the process ended without a result"
    return pickle.loads(content)  # noqa: S301  of the process that was forked above


def _set(limit: str, room: int) -> None:
    if limit == "memory":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))
        with suppress(MemoryError):  # fill memory that the process already owns but does not use
            while True:
                _allocated.append(bytearray(_CHUNK))
        del _allocated[-room // _CHUNK :]
    elif limit == "files":
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)
        for _ in range(free):  # fill unused descriptors below it
            os.dup(0)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + room, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
