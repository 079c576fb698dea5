"""Work that is not waited for."""

import queue
import threading
from collections.abc import Callable
from types import TracebackType

_STOP = None


class Behind:
    """Calls made in the order they come, on a thread of their own, while the caller goes on.

    At most `depth` of them wait; then the caller does. The first failure is raised in the caller at its next call, and
    nothing after it is done. Use it in a `with` block: leaving it waits for what is left, or, on an error, drops it.
    """

    def __init__(self, depth: int) -> None:
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(depth)
        self._failure: BaseException | None = None
        self._dropped = False
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="timecycle-behind", daemon=True)

    def __call__(self, work: Callable[[], None]) -> None:
        self._raise_failure()
        self._waiting.put(work)

    def catch_up(self) -> None:
        """Wait until everything is done."""
        self._waiting.join()
        self._raise_failure()

    def __enter__(self) -> "Behind":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dropped = kind is not None
        try:
            self._finish()
        except BaseException:  # interrupted while waiting: what the caller closes next must not be in use any more
            self._dropped = True
            self._finish()
            raise
        if kind is None:
            self._raise_failure()

    def _finish(self) -> None:
        if not self._stopped:
            self._waiting.put(_STOP)
            self._stopped = True
        self._thread.join()

    def _work(self) -> None:
        while (work := self._waiting.get()) is not _STOP:
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
