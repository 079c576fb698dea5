"""Provenance of a result: the commit and the machine that produced it."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch


def machine() -> dict[str, Any]:
    """Describe the processor and the versions that matter; names of hosts and folders are left out."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
    }


def commit() -> str:
    """Return the commit of the checkout this package runs from, marked if the package differs from it.

    A package installed from a wheel has no checkout; its version is recorded instead.
    """
    package = Path(__file__).parents[1]
    head = _git(package, "rev-parse", "HEAD")
    if not head or _git(package, "ls-files", "version.py") != "version.py":
        return "none: not run from a checkout"
    return head + (" with changes" if _git(package, "status", "--porcelain", "--", ".") else "")


def _git(folder: Path, *arguments: str) -> str:
    try:
        # Without optional locks, `git status` only reads: otherwise it may write the index of the checkout.
        words = ["git", "--no-optional-locks", *arguments]
        # The user's own git, with arguments of this file only.
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:  # no git on this machine
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
