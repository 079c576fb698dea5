"""Videos on a Ray cluster, one task each.

Ray says when a worker died; trying again is ours, so that tries are counted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from timecycle.bulk.bulk import Crashed, Outcome
from timecycle.bulk.manifest import Item
from timecycle.bulk.one import Already, Busy, Record, Refused, Stopped, Work, label_one
from timecycle.extras import need

LOCAL = "local"
_AHEAD = 2  # tasks given to the cluster for every one that runs: enough that no worker waits


@contextmanager
def on_ray(address: str, work: Work, *, workers: int | None, threads: int) -> Iterator["OnRay"]:
    """An engine on a cluster of this machine's own (`local`) or on the one at an address."""
    ray: Any = need("ray", extra="bulk")
    if address == LOCAL:
        cores = None if workers is None else workers * threads
        ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level="error")
    else:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    try:
        yield OnRay(ray, work, threads=threads, workers=workers)
    finally:
        ray.shutdown()


class OnRay:
    """Gives the cluster a few more videos than it can do at once."""

    def __init__(self, ray: Any, work: Work, *, threads: int, workers: int | None) -> None:
        self._ray = ray
        self._work = ray.put(work)
        # Ray tells each worker by OMP_NUM_THREADS how many threads its cores are.
        self._task = ray.remote(num_cpus=threads, max_retries=0)(_label)
        at_once = workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        self._most = _AHEAD * at_once
        self._running: dict[Any, Item] = {}

    @property
    def room(self) -> int:
        return self._most - len(self._running)

    def begin(self, item: Item) -> None:
        self._running[self._task.remote(item, self._work)] = item

    def next(self) -> tuple[Item, Outcome]:
        (ready, *_), _ = self._ray.wait(list(self._running), num_returns=1)
        item = self._running.pop(ready)
        try:
            return item, self._ray.get(ready)
        except self._ray.exceptions.RayError as error:
            is_short = isinstance(error, self._ray.exceptions.OutOfMemoryError)
            return item, Crashed(str(error).strip().splitlines()[-1], is_short=is_short)  # of a trace, what was raised


def _label(item: Item, work: Work) -> Record | Already | Refused | Busy | Stopped:
    return label_one(item, work)
