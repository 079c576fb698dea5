"""The cores that this process may use, workers that compute in advance, and a thread that writes in the background."""

import math
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from itertools import islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from types import TracebackType
from typing import TypeVar

_CGROUPS = Path("/sys/fs/cgroup")
_CPU_INFO = Path("/proc/cpuinfo")
_BF16_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}  # Intel, Intel and AMD, Arm
_READERS = 8  # threads, which mostly wait

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def usable_cores() -> int:
    """Return how many cores this process may keep busy: its CPU affinity, limited by its container's quota.

    A container that may use two of 64 cores sees all 64, and a thread for each makes everything many times slower.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _container_cores()
    return bound if quota is None else max(1, min(bound, math.ceil(quota)))


def supports_bf16() -> bool:
    """Return whether the processor has bf16 instructions; other processors compute bf16 more slowly than fp32."""
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split() for line in lines if line.lower().startswith(("flags", "features"))), [])
    return not _BF16_FLAGS.isdisjoint(flags)


def ordered(
    pool: Executor | None, function: Callable[[_Item], _Result], items: Iterable[_Item], *, ahead: int
) -> Generator[_Result, None, None]:
    """Yield function(item) of every item, in order; the pool computes up to `ahead` results in advance.

    Items are taken in the caller's thread, as they are needed. An error of an item, or of taking it, is raised in its
    place and ends the iteration. The pool ends with the iteration: what was not started is cancelled, and what runs is
    waited for. A caller that may stop early closes the iterator. Without a pool, the caller's thread computes.
    """
    if pool is None:
        yield from map(function, items)
        return
    try:
        futures = _submitted(pool, function, items)
        pending = deque(islice(futures, ahead))
        for future in futures:
            pending.append(future)
            yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def read_ahead(read: Callable[[_Item], _Result], items: Iterable[_Item]) -> Generator[_Result, None, None]:
    """Yield read(item) of every item, in order; several threads read in advance."""
    return ordered(ThreadPoolExecutor(_READERS, "timecycle-read"), read, items, ahead=4 * _READERS)


def write_behind(write: Callable[[_Item], object], items: Iterable[_Item]) -> None:
    """Call write(item) for every item, taken in order; several threads write, as each mostly waits for the disk."""
    for _ in ordered(ThreadPoolExecutor(_READERS, "timecycle-write"), write, items, ahead=4 * _READERS):
        pass


def worker_processes(workers: int) -> ProcessPoolExecutor:
    """Start worker processes that exit when their parent is killed; those of a plain pool would wait for ever."""
    # Forking a process that runs threads, as PyTorch does, may hang it.
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_end_with_parent)


class BackgroundWriter:
    """Runs calls in order on a thread of its own, while the caller continues.

    At most `depth` calls wait; then the caller waits too. The first failure is raised at the caller's next call, and
    later calls are skipped. Use it in a `with` block: leaving the block waits for the remaining calls, or drops them
    if the block raised.
    """

    def __init__(self, depth: int) -> None:
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(depth)  # None stops the thread
        self._failure: BaseException | None = None
        self._dropped = False
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="timecycle-writer", daemon=True)

    def __call__(self, work: Callable[[], None]) -> None:
        self._raise_failure()
        self._waiting.put(work)

    def flush(self) -> None:
        """Wait until all calls are done."""
        self._waiting.join()
        self._raise_failure()

    def __enter__(self) -> "BackgroundWriter":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dropped = kind is not None
        try:
            self._finish()
        except BaseException:  # interrupted while waiting: the thread must not use what the caller closes next
            self._dropped = True
            self._finish()
            raise
        if kind is None:
            self._raise_failure()

    def _finish(self) -> None:
        if not self._stopped:
            self._waiting.put(None)
            self._stopped = True
        self._thread.join()

    def _work(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                if self._failure is None and not self._dropped:
                    work()
            except BaseException as failure:
                self._failure = failure
            finally:
                self._waiting.task_done()
        self._waiting.task_done()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _submitted(
    pool: Executor, function: Callable[[_Item], _Result], items: Iterable[_Item]
) -> Iterator[Future[_Result]]:
    try:
        for item in items:
            yield pool.submit(function, item)
    except Exception as error:  # of the items: the results before it come first
        failed: Future[_Result] = Future()
        failed.set_exception(error)
        yield failed


def _end_with_parent() -> None:
    threading.Thread(target=_wait_for_end, name="timecycle-parent", daemon=True).start()


def _wait_for_end() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()  # waits on a pipe that the system closes, for every kind of end and on every system
        os._exit(1)


def _container_cores() -> float | None:
    """Return the CPU quota of the container's control group, in cores; None if there is no limit."""
    quota, period = _quota("cpu.max") or _quota("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us") or (0, 0)
    return quota / period if quota > 0 and period > 0 else None


def _quota(*names: str) -> tuple[int, int] | None:
    try:
        quota, period = " ".join((_CGROUPS / name).read_text() for name in names).split()
        return int(quota), int(period)
    except (OSError, ValueError):  # no such group, or "max"
        return None
