"""Shortages of the machine: memory, open files, threads, room on the disk.

They stop a run. Booked as the fault of the video that met them, they would take good videos out of a corpus for ever.
"""

import errno
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from timecycle.errors import ShortageError, TimecycleError, first_line

_MEMORY = (
    "memory is short",
    "use fewer workers, or raise the limit (ulimit -v), then run it again",
)
_FILES = ("too many files are open", "raise the limit (ulimit -n) or use fewer workers, then run it again")
_THREADS = ("no more threads or processes may be started", "raise the limit (ulimit -u), then run it again")
_DISK = ("the disk is full", "make room or choose another place, then run it again")
_QUOTA = ("the disk quota is used up", "make room or choose another place, then run it again")
_SIZE = (
    "a file may not grow that large",
    "raise the limit (ulimit -f) or choose another place, then run it again",
)

_BY_NUMBER = {
    errno.ENOMEM: _MEMORY,
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.EAGAIN: _THREADS,
    errno.ENOSPC: _DISK,
    errno.EFBIG: _SIZE,
    **({errno.EDQUOT: _QUOTA} if hasattr(errno, "EDQUOT") else {}),
}
_TORCH = ("can't allocate memory", "not enough memory", "out of memory")  # torch raises plain RuntimeErrors
_THREAD = "can't start new thread"
_AMBIGUOUS_BYTES = 1 << 30  # who asks for more than this, and is refused by FFmpeg, is a damaged header
_VERDICT_BYTES = 1 << 28
_VERDICT_FILES = 8


def shortage(error: BaseException, doing: str) -> ShortageError | None:
    """The shortage behind an error, be it wrapped in others; None where there is none."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, ShortageError):
            return link
        if (found := _found(link)) is not None:
            problem, remedy = found
            return ShortageError(f"{problem} {doing}", remedy=remedy)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return None


@contextmanager
def stopping(doing: str) -> Iterator[None]:
    """Raise whatever a shortage caused as a ShortageError."""
    try:
        yield
    except Exception as error:
        if (short := shortage(error, doing)) is not None and short is not error:
            raise short from error
        raise


def check_verdict(error: BaseException, doing: str) -> None:
    """Raise ShortageError where an error that speaks against a video may be the machine's.

    FFmpeg does not always tell: a frame that found no memory is merely a broken one. So a video is only called bad by a
    machine that could have read it.
    """
    found = shortage(error, doing)
    if found is None and (short := _short_now()) is not None:
        problem, remedy = short
        found = ShortageError(f"{problem} {doing}", remedy=remedy)
    if found is not None:
        raise found from error


def explained(error: BaseException) -> TimecycleError | None:
    """What the operating system refused a command, in our words; None if it is something else."""
    if isinstance(error, TimecycleError):
        return error
    if isinstance(error, MemoryError) or _is_torchs_memory(error):
        return TimecycleError(
            "there is not enough memory", remedy="use smaller images (--set image_size_px=240), or end other programs"
        )
    if isinstance(error, RecursionError):
        return TimecycleError("an input is nested too deeply", remedy="check the JSON files that were given")
    if isinstance(error, OSError):
        place, reason = f" {error.filename}" if error.filename else "", error.strerror or first_line(error)
        _, remedy = _BY_NUMBER.get(error.errno or 0) or ("", "check the path and rights; it may be too long")
        return TimecycleError(f"the system refused{place}: {reason}", remedy=remedy)
    return None


def _is_torchs_memory(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _TORCH)


def _found(error: BaseException) -> tuple[str, str] | None:
    if isinstance(error, MemoryError):
        return _MEMORY if not _of_ffmpeg(error) or not _can_allocate(_AMBIGUOUS_BYTES) else None
    number = getattr(error, "errno", None)
    if number == errno.EAGAIN and _of_ffmpeg(error):  # a demuxer's "not yet", or a thread that could not start
        return None if _can_start_thread() else _THREADS
    if isinstance(error, OSError):
        return _BY_NUMBER.get(number) if number is not None else None
    if _is_torchs_memory(error):
        return _MEMORY
    return _THREADS if isinstance(error, RuntimeError) and _THREAD in str(error) else None


def _of_ffmpeg(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "av"


def _short_now() -> tuple[str, str] | None:
    if not _can_allocate(_VERDICT_BYTES):
        return _MEMORY
    if not _can_open(_VERDICT_FILES):
        return _FILES
    return None if _can_start_thread() else _THREADS


def _can_allocate(size: int) -> bool:
    """Whether the address space has so much room; nothing is touched, so nothing is used."""
    try:
        mmap.mmap(-1, size).close()
    except (OSError, MemoryError, ValueError):
        return False
    return True


def _can_open(count: int) -> bool:
    opened: list[int] = []
    try:
        for _ in range(count):
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True


def _can_start_thread() -> bool:
    thread = threading.Thread(target=_nothing)
    try:
        thread.start()
    except RuntimeError:
        return False
    thread.join()
    return True


def _nothing() -> None:
    pass
