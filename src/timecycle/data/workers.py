"""Processes that look at videos, and end when the process that started them does, however that ends."""

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process


def worker_pool(workers: int) -> ProcessPoolExecutor:
    """Processes that outlive nobody: the pool's own wait for work for ever when their parent is killed."""
    # Forking a process that runs threads, as PyTorch does, may hang it.
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    threading.Thread(target=_wait_for_end, name="timecycle-parent", daemon=True).start()


def _wait_for_end() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()  # a pipe that the system closes: it works for every kind of end and on every system
        os._exit(1)
