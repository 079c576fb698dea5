"""The main function of the worker processes: answer the calls that arrive on standard input, within limits."""

import contextlib
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from timecycle.errors import TimecycleError, first_line
from timecycle.shortages import explain_error
from timecycle.ui.messages import Answer, packed, read_message

Call = Callable[[dict[str, Any], bytes], Answer]

_MODULES = {"frames": "frame_calls", "thumbnails": "frame_calls", "labels": "label_calls"}
_GIB = 1 << 30
_MEMORY_BYTES = {"frames": 6 * _GIB, "thumbnails": 6 * _GIB, "labels": 12 * _GIB}  # address space, torch's included


def main(kind: str) -> None:
    """Answer calls until standard input ends."""
    _limit(kind)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not end up among the answers
    calls: dict[str, Call] = import_module(f"timecycle.ui.{_MODULES[kind]}").CALLS
    while (message := read_message(sys.stdin.buffer)) is not None:
        content, body = message
        try:
            answer, data = calls[content["verb"]](content["arguments"], body)
        except Exception as error:
            answer, data = {"error": described(error)}, b""
        answers.write(packed(answer, data))
        answers.flush()


def described(error: Exception) -> dict[str, str]:
    """Describe an error to the server, with the name of its class."""
    known = explain_error(error)
    if known is None:
        known = TimecycleError(
            f"this should not have happened: {type(error).__name__}: {first_line(error)}", remedy="please report it"
        )
    return {"kind": type(known).__name__, "problem": known.problem, "remedy": known.remedy}


def _limit(kind: str) -> None:
    """Limit the memory of this process, and let thumbnails wait for everything else."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows has no such limits
        import resource  # noqa: PLC0415

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        wanted = _MEMORY_BYTES[kind]
        resource.setrlimit(resource.RLIMIT_AS, (wanted if most < 0 else min(wanted, most), most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if kind == "thumbnails" and hasattr(os, "nice"):
        os.nice(10)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        main(sys.argv[1])
