"""Time repeated work on a device, and read the memory that it took."""

import importlib
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from timecycle.device import synchronise

_WARMUP_SHARE = 0.25  # of the budget; the first repeats allocate memory and choose algorithms
_MIN_REPEATS = 3  # however long one takes: a median and a range need them
_MAX_REPEATS = 10_000


@dataclass(frozen=True)
class Timing:
    """The seconds of each repeat, and the most memory of the device that was allocated meanwhile (CUDA only)."""

    seconds: tuple[float, ...]
    peak_bytes: int | None = None


def time_repeats(work: Callable[[], object], device: torch.device, *, budget_seconds: float) -> Timing:
    """Time the work again and again for about so long, after a warm-up; every repeat is waited for."""
    _repeat(work, device, budget_seconds * _WARMUP_SHARE, fewest=1)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    seconds = _repeat(work, device, budget_seconds, fewest=_MIN_REPEATS)
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return Timing(tuple(seconds), peak)


def peak_process_bytes() -> int | None:
    """Return the most main memory that this process has used so far; None where the system does not tell.

    On Linux it is read from /proc: the figure of getrusage begins with the peak of the process that started this one.
    """
    with suppress(OSError):
        _, found, rest = Path("/proc/self/status").read_text(encoding="utf-8").partition("VmHWM:")
        if found:
            return int(rest.split()[0]) * 1024
    try:
        resource = importlib.import_module("resource")
    except ImportError:  # Windows
        return None
    peak: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _repeat(work: Callable[[], object], device: torch.device, budget_seconds: float, *, fewest: int) -> list[float]:
    seconds: list[float] = []
    synchronise(device)
    start = now = time.perf_counter()
    while len(seconds) < fewest or (now - start < budget_seconds and len(seconds) < _MAX_REPEATS):
        began = now
        work()
        synchronise(device)
        now = time.perf_counter()
        seconds.append(now - began)
    return seconds
