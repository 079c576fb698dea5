"""Training in one process or many, with the same code: torchrun sets the rank, DDP averages gradients, signals stop."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_TIMEOUT = timedelta(seconds=120)  # when a process has died: the scheduler restarts the run
_INDEX_TIMEOUT = timedelta(days=1)


@dataclass(frozen=True)
class ProcessGroup:
    """The rank of this process, and the number of processes."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the one process that writes files."""
        return self.rank == 0


def process_group() -> ProcessGroup:
    """Return the group of this process, as set by torchrun; otherwise a group of one."""
    return ProcessGroup(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


@contextmanager
def initialised_group() -> Iterator[ProcessGroup]:
    """Connect the processes of the group for the duration of a block."""
    group = process_group()
    if group.world_size == 1:
        yield group
        return
    dist.init_process_group("gloo", timeout=_TIMEOUT)
    try:
        yield group
    finally:
        dist.destroy_process_group()


def with_averaged_gradients(model: nn.Module, group: ProcessGroup, *, some_unused: bool) -> nn.Module:
    """Wrap the model in DDP if there are several processes; `some_unused`: some steps leave parameters unused."""
    if group.world_size == 1:
        return model
    return DistributedDataParallel(model, find_unused_parameters=some_unused)


def barrier(group: ProcessGroup) -> None:
    """Wait for all processes, however long the main one probes videos."""
    if group.world_size > 1:
        dist.monitored_barrier(timeout=_INDEX_TIMEOUT)


def any_process(flag: bool, group: ProcessGroup) -> bool:
    """Return True in all processes if the flag is True in one, so that all stop at the same step."""
    if group.world_size == 1:
        return flag
    largest = torch.tensor([float(flag)])
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return bool(largest.item())


@contextmanager
def stop_signals(info: Callable[[str], None]) -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying: the loop then saves and stops at the end of its step."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def handle(number: int, _: FrameType | None) -> None:
        received.append(number)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, previous[signal.SIGINT])  # a second one ends the run at once
            info("stopping after this step, which is saved; Ctrl-C again stops at once and loses it")

    # A parent may have set a signal to be ignored, as a shell does with SIGINT for background jobs: keep that.
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    previous = {number: handler for number, handler in previous.items() if handler != signal.SIG_IGN}
    for number in previous:
        signal.signal(number, handle)
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
