"""One process or many: the same code. torchrun says who we are; gradients are averaged by DDP."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_PATIENCE = timedelta(seconds=120)  # for a process that died: the scheduler starts the run again
_LONG = timedelta(days=1)


@dataclass(frozen=True)
class Crew:
    """Which of how many processes this is."""

    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Only one process writes."""
        return self.rank == 0


def crew_here() -> Crew:
    """The crew this process belongs to: alone, unless torchrun started it."""
    return Crew(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


@contextmanager
def joined() -> Iterator[Crew]:
    """Let the processes of a crew hear each other."""
    crew = crew_here()
    if crew.world == 1:
        yield crew
        return
    dist.init_process_group("gloo", timeout=_PATIENCE)
    try:
        yield crew
    finally:
        dist.destroy_process_group()


def shared(model: nn.Module, crew: Crew, *, some_rest: bool) -> nn.Module:
    """The model with gradients averaged over the crew; `some_rest`: not every parameter learns at every step."""
    if crew.world == 1:
        return model
    return DistributedDataParallel(model, find_unused_parameters=some_rest)


def wait_for_all(crew: Crew) -> None:
    """Wait until the slowest is here, however long it examines videos."""
    if crew.world > 1:
        dist.monitored_barrier(timeout=_LONG)


def any_of(flag: bool, crew: Crew) -> bool:
    """True in every process if it is true in one, so that all of them stop at the same step."""
    if crew.world == 1:
        return flag
    told = torch.tensor([float(flag)])
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return bool(told.item())
