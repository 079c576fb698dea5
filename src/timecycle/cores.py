"""What this process may compute with: cores it may use, and whether they multiply bf16."""

import math
import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_PROCESSOR = Path("/proc/cpuinfo")
_BF16_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}  # Intel, Intel and AMD, Arm


def usable_cores() -> int:
    """The cores this process may keep busy: no more than it is bound to, nor than its container is allowed.

    A container that may use two of 64 cores sees all 64, and a thread for each makes everything many times slower.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = _container_cores()
    return bound if allowed is None else max(1, min(bound, math.ceil(allowed)))


def multiplies_bf16() -> bool:
    """True where the processor has instructions for bf16; others compute it more slowly than fp32."""
    try:
        lines = _PROCESSOR.read_text().splitlines()
    except OSError:
        return False
    words = next((line.split() for line in lines if line.lower().startswith(("flags", "features"))), [])
    return not _BF16_FLAGS.isdisjoint(words)


def _container_cores() -> float | None:
    """The share of time that the container's control group allows, in cores; None: all of it."""
    quota, period = _numbers("cpu.max") or _numbers("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us") or (0, 0)
    return quota / period if quota > 0 and period > 0 else None


def _numbers(*names: str) -> tuple[int, int] | None:
    try:
        quota, period = " ".join((_CGROUPS / name).read_text() for name in names).split()
        return int(quota), int(period)
    except (OSError, ValueError):  # no such group, or "max"
        return None
