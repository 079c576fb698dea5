"""Shortages of the machine: memory, open files, threads, disk space.

A shortage stops a run. Recorded as a fault of the video being read, it would remove a good video from the corpus.
"""

import _thread
import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

from timecycle.errors import ShortageError, TimecycleError, first_line

_MEMORY = (
    "memory is short",
    "use fewer workers, or raise the limit (ulimit -v), then run it again",
)
_FILES = ("too many files are open", "raise the limit (ulimit -n) or use fewer workers, then run it again")
_THREADS = ("no more threads or processes can be started", "raise the limit (ulimit -u), then run it again")
_DISK = ("the disk is full", "free some space or choose another disk, then run it again")
_QUOTA = ("the disk quota is used up", "free some space or choose another disk, then run it again")
_SIZE = (
    "a file exceeds the size limit",
    "raise the limit (ulimit -f) or choose another disk, then run it again",
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
_TORCH_TEXTS = ("can't allocate memory", "not enough memory", "out of memory")  # torch raises plain RuntimeErrors
_THREAD_TEXT = "can't start new thread"
_AMBIGUOUS_BYTES = 1 << 30  # only a damaged header makes FFmpeg fail although this much is free
_NEEDED_BYTES = 1 << 28  # for reading any good video
_NEEDED_FILES = 8


def find_shortage(error: BaseException, doing: str) -> ShortageError | None:
    """Return the shortage that caused an error, directly or through its causes; None if no shortage did."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, ShortageError):
            return link
        if (texts := _shortage_texts(link)) is not None:
            problem, remedy = texts
            return ShortageError(f"{problem} {doing}", remedy=remedy)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return None


@contextmanager
def raising_shortages(doing: str) -> Iterator[None]:
    """Raise errors that a shortage caused as ShortageError."""
    try:
        yield
    except Exception as error:
        if (shortage := find_shortage(error, doing)) is not None and shortage is not error:
            raise shortage from error
        raise


def raise_if_shortage(error: BaseException, doing: str) -> None:
    """Raise ShortageError if an error that looks like a bad video may be caused by a shortage.

    FFmpeg does not always tell: a frame without memory is merely reported as broken. So a video counts as bad only on a
    machine that has enough memory, files and threads to read it.
    """
    shortage = find_shortage(error, doing)
    if shortage is None and (texts := _present_shortage()) is not None:
        problem, remedy = texts
        shortage = ShortageError(f"{problem} {doing}", remedy=remedy)
    if shortage is not None:
        raise shortage from error


def explain_error(error: BaseException) -> TimecycleError | None:
    """Turn an error of the operating system into one line with a remedy; None for any other error."""
    if isinstance(error, TimecycleError):
        return error
    if isinstance(error, MemoryError) or _is_torch_out_of_memory(error):
        return TimecycleError(
            "there is not enough memory", remedy="use smaller images (--set image_size_px=240), or close other programs"
        )
    if isinstance(error, RecursionError):
        return TimecycleError("an input is nested too deeply", remedy="check the JSON input files")
    if isinstance(error, OSError):
        path, reason = f" for {error.filename}" if error.filename else "", error.strerror or first_line(error)
        _, remedy = _BY_NUMBER.get(error.errno or 0) or ("", "check the path, its length and its permissions")
        return TimecycleError(f"the operating system reported an error{path}: {reason}", remedy=remedy)
    return None


def _is_torch_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _TORCH_TEXTS)


def _shortage_texts(error: BaseException) -> tuple[str, str] | None:
    if isinstance(error, MemoryError):
        return _MEMORY if not _is_from_ffmpeg(error) or not _can_allocate(_AMBIGUOUS_BYTES) else None
    number = getattr(error, "errno", None)
    if number == errno.EAGAIN and _is_from_ffmpeg(error):  # a demuxer's "not yet", or a thread that did not start
        return None if _can_start_thread() else _THREADS
    if isinstance(error, OSError):
        return _BY_NUMBER.get(number) if number is not None else None
    if _is_torch_out_of_memory(error):
        return _MEMORY
    return _THREADS if isinstance(error, RuntimeError) and _THREAD_TEXT in str(error) else None


def _is_from_ffmpeg(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "av"


def _present_shortage() -> tuple[str, str] | None:
    if not _can_allocate(_NEEDED_BYTES):
        return _MEMORY
    if not _can_open(_NEEDED_FILES):
        return _FILES
    return None if _can_start_thread() else _THREADS


def _can_allocate(size: int) -> bool:
    """Return whether the address space has this much room; the pages are never touched, so no memory is used."""
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
    try:
        # Returns at once. Not threading.Thread, whose start() waits for ever for a thread that runs out of memory.
        _thread.start_new_thread(int, ())
    except RuntimeError:
        return False
    return True
