"""Worker processes that end with the process that started them, however that ends."""

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process


def worker_pool(workers: int) -> ProcessPoolExecutor:
    """Start worker processes that exit when their parent is killed; those of a plain pool would wait for ever."""
    # Forking a process that runs threads, as PyTorch does, may hang it.
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    threading.Thread(target=_wait_for_end, name="timecycle-parent", daemon=True).start()


def _wait_for_end() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()  # waits on a pipe that the system closes, for every kind of end and on every system
        os._exit(1)
