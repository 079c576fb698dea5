"""Training in one process or many, with the same code: torchrun sets the rank, DDP averages gradients, signals stop.

Gradients are averaged by NCCL between CUDA devices, one for each process, and by gloo between processors. What the
processes tell each other beside gradients always goes over gloo, which can wait for long.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from types import FrameType

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from timecycle.device import CPU, Device, pick_device
from timecycle.errors import SettingsError

_TIMEOUT = timedelta(seconds=120)  # when a process has died: the scheduler restarts the run
_MAIN_TIMEOUT = timedelta(days=1)  # of what the main process does alone


@dataclass(frozen=True)
class ProcessGroup:
    """The rank of this process, the number of processes, and what this one computes on."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = CPU
    control: dist.ProcessGroup | None = None  # None: the one of the gradients

    @property
    def is_main(self) -> bool:
        """Whether this is the one process that writes files."""
        return self.rank == 0


def process_group() -> ProcessGroup:
    """Return the group of this process, as set by torchrun; otherwise a group of one."""
    return ProcessGroup(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


@contextmanager
def initialised_group(device: Device = "auto") -> Iterator[ProcessGroup]:
    """Connect the processes of the group for the duration of a block; each takes a CUDA device of its own."""
    group = process_group()
    picked = pick_device(device)
    if group.world_size == 1:
        yield replace(group, device=picked)
        return
    picked = _own_device(picked, int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if picked.type == "cuda" else "gloo", timeout=_TIMEOUT)
    try:
        control = dist.new_group(backend="gloo", timeout=_TIMEOUT) if picked.type == "cuda" else None
        yield replace(group, device=picked, control=control)
    finally:
        dist.destroy_process_group()


def _own_device(device: torch.device, local_rank: int) -> torch.device:
    """Return the device of one of several processes on a machine."""
    if device.type == "mps":
        raise SettingsError("several processes cannot share an mps device", remedy="use one process, or --device cpu")
    if device.type != "cuda":
        return device
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise SettingsError(
            f"process {local_rank} of this machine has no CUDA device: there are {count}",
            remedy=f"start {count} with torchrun --nproc_per_node {count}, or use --device cpu",
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def with_averaged_gradients(model: nn.Module, group: ProcessGroup, *, some_unused: bool) -> nn.Module:
    """Wrap the model in DDP if there are several processes; `some_unused`: some steps leave parameters unused."""
    if group.world_size == 1:
        return model
    devices = [group.device] if group.device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=devices, find_unused_parameters=some_unused)


def barrier(group: ProcessGroup) -> None:
    """Wait for all processes, however long the main one probes videos or validates."""
    if group.world_size > 1:
        dist.monitored_barrier(group.control, timeout=_MAIN_TIMEOUT)


def any_process(flag: bool, group: ProcessGroup) -> bool:
    """Return True in all processes if the flag is True in one, so that all stop at the same step."""
    if group.world_size == 1:
        return flag
    largest = torch.tensor([float(flag)])
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group.control)
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
