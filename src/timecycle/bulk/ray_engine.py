"""The engine for Ray: each video is one task.

Ray reports dead workers. The scheduler tries again, not Ray, so that attempts are counted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from timecycle.bulk.manifest import Item
from timecycle.bulk.scheduler import Crashed, Outcome
from timecycle.bulk.worker import BulkJob, process_video
from timecycle.extras import import_extra

LOCAL = "local"
_TASKS_PER_WORKER = 2  # one runs and one waits, so that no worker is idle


@contextmanager
def ray_engine(address: str, job: BulkJob, *, workers: int | None, threads: int) -> Iterator["RayEngine"]:
    """Start an engine on this machine (`local`), or on the cluster at an address."""
    ray: Any = import_extra("ray", extra="bulk")
    if address == LOCAL:
        cores = None if workers is None else workers * threads
        ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level="error")
    else:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    try:
        yield RayEngine(ray, job, threads=threads, workers=workers)
    finally:
        ray.shutdown()


class RayEngine:
    """Processes videos on a Ray cluster, with a few waiting so that no worker is idle."""

    def __init__(self, ray: Any, job: BulkJob, *, threads: int, workers: int | None) -> None:
        self._ray = ray
        self._job = ray.put(job)
        # Ray sets OMP_NUM_THREADS of each worker to its number of cores.
        self._task = ray.remote(num_cpus=threads, max_retries=0)(process_video)
        at_once = workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        self._max_tasks = _TASKS_PER_WORKER * at_once
        self._running: dict[Any, Item] = {}

    @property
    def room(self) -> int:
        return self._max_tasks - len(self._running)

    def submit(self, item: Item) -> None:
        self._running[self._task.remote(item, self._job)] = item

    def next(self) -> tuple[Item, Outcome]:
        (ready, *_), _ = self._ray.wait(list(self._running), num_returns=1)
        item = self._running.pop(ready)
        try:
            return item, self._ray.get(ready)
        except self._ray.exceptions.RayError as error:
            is_out_of_memory = isinstance(error, self._ray.exceptions.OutOfMemoryError)
            message = str(error).strip().splitlines()[-1]  # the last line of a trace is the exception
            return item, Crashed(message, is_out_of_memory=is_out_of_memory)
