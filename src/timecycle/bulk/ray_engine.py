"""The engine for Ray: each video, or each chunk, is one task.

Ray reports dead workers. The scheduler tries again, not Ray, so that attempts are counted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic

from timecycle.bulk.scheduler import Crashed, Work
from timecycle.bulk.worker import BulkJob
from timecycle.extras import import_extra

LOCAL = "local"
_TASKS_PER_WORKER = 2  # one runs and one waits, so that no worker is idle


@contextmanager
def ray_engine(
    address: str, process: Callable[[Work, BulkJob], Any], job: BulkJob, *, workers: int | None, threads: int
) -> Iterator["RayEngine[Work]"]:
    """Start an engine on this machine (`local`), or on the cluster at an address."""
    ray: Any = import_extra("ray", extra="bulk")
    if address == LOCAL:
        cores = None if workers is None else workers * threads
        ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level="error")
    else:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    try:
        yield RayEngine(ray, process, job, threads=threads, workers=workers)
    finally:
        ray.shutdown()


class RayEngine(Generic[Work]):
    """Processes videos or chunks on a Ray cluster, with a few waiting so that no worker is idle."""

    def __init__(
        self, ray: Any, process: Callable[[Work, BulkJob], Any], job: BulkJob, *, threads: int, workers: int | None
    ) -> None:
        self._ray = ray
        self._job = ray.put(job)
        # Ray sets OMP_NUM_THREADS of each worker to its number of cores.
        self._task = ray.remote(num_cpus=threads, max_retries=0)(process)
        at_once = workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        self._max_tasks = _TASKS_PER_WORKER * at_once
        self._running: dict[Any, Work] = {}

    @property
    def room(self) -> int:
        return self._max_tasks - len(self._running)

    def submit(self, work: Work) -> None:
        self._running[self._task.remote(work, self._job)] = work

    def next(self) -> tuple[Work, Any]:
        (ready, *_), _ = self._ray.wait(list(self._running), num_returns=1)
        work = self._running.pop(ready)
        try:
            return work, self._ray.get(ready)
        except self._ray.exceptions.RayError as error:
            is_out_of_memory = isinstance(error, self._ray.exceptions.OutOfMemoryError)
            message = str(error).strip().splitlines()[-1]  # the last line of a trace is the exception
            return work, Crashed(message, is_out_of_memory=is_out_of_memory)
