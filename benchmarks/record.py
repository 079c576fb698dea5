"""A number is a record: what was measured, with what, on which machine, at which commit."""

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from timecycle.version import __version__

RESULTS = Path(__file__).parent / "results"


def write_record(name: str, *, settings: dict[str, Any], measured: dict[str, Any], seconds: float) -> Path:
    """Write benchmarks/results/NAME.json."""
    record = {
        "benchmark": name,
        "commit": _commit(),
        "timecycle": __version__,
        "settings": settings,
        "measured": measured,
        "machine": machine(),
        "seconds": round(seconds, 1),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path


def machine() -> dict[str, Any]:
    """The processor, its cores and the versions that matter; no names of hosts or folders."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """The commit measured; marked where the package differs from it."""
    root = Path(__file__).parents[1]

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "src")
    return git("rev-parse", "HEAD") + (" with changes" if changed else "")
