"""Load the compiled kernel for this processor, or say why there is none."""

import ctypes
import os
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from timecycle.errors import SettingsError

KERNEL_VARIABLE = "TIMECYCLE_KERNEL"  # the environment variable: off, or one of the variants
VARIANTS = ("generic", "avx2", "avx512")  # a processor that runs one also runs those before it

_REBUILD = "install timecycle from source with a C++ compiler, or continue: torch does the same, more slowly"


@dataclass(frozen=True)
class Kernel:
    """The functions of the compiled kernel; if there is none, `functions` is None and `reason` says why."""

    functions: ctypes.CDLL | None
    variant: str
    reason: str = ""
    remedy: str = ""

    @property
    def rounding(self) -> str:
        """The kind of rounding: variants with the same kind give bit-identical results."""
        return "fused" if self.variant in ("avx2", "avx512") else self.variant


@lru_cache(maxsize=1)
def find_kernel() -> Kernel:
    """Return the kernel that this process uses."""
    choice = os.environ.get(KERNEL_VARIABLE, "")
    if choice == "off":
        return Kernel(None, "torch", f"{KERNEL_VARIABLE} is off")
    if choice not in ("", *VARIANTS):
        raise SettingsError(
            f"{KERNEL_VARIABLE} is {choice!r}", remedy=f"set it to off, {', '.join(VARIANTS)}, or nothing"
        )
    try:
        supported = VARIANTS[: _level() + 1]
        variant = choice or supported[-1]
        if variant not in supported:
            remedy = f"set {KERNEL_VARIABLE} to {supported[-1]}"
            return Kernel(None, "torch", f"this processor cannot run {variant}", remedy)
        return Kernel(_load(variant), variant)
    except OSError as error:
        return Kernel(None, "torch", f"the kernel was not compiled ({error})", _REBUILD)
    except _StaleError:
        reason, remedy = "the kernel was compiled from another kernel.cpp", "python hatch_build.py, or install again"
        return Kernel(None, "torch", reason, remedy)


def kernel_for(*tensors: Tensor) -> ctypes.CDLL | None:
    """Return the functions of the kernel if it is available and supports these tensors, else None."""
    if any(t.device.type != "cpu" or t.dtype != torch.float32 or t.requires_grad for t in tensors):
        return None
    return find_kernel().functions


def address(tensor: Tensor, dtype: torch.dtype = torch.float32) -> int:
    """Return the memory address of a tensor; raise ValueError unless it is contiguous and has the expected type."""
    if not tensor.is_contiguous() or tensor.dtype != dtype or tensor.device.type != "cpu":
        raise ValueError(f"the kernel takes contiguous {dtype} on the CPU, not {tensor.dtype} on {tensor.device}")
    return tensor.data_ptr()


def threads() -> int:
    """Return the number of threads that torch uses, so that one limit serves both."""
    return torch.get_num_threads()


def _level() -> int:
    """Return the index of the last variant that this processor runs."""
    return int(_load("generic").level())


def _load(variant: str) -> ctypes.CDLL:
    """Load the library of a variant; refuse one compiled from another source, whose arguments may differ."""
    folder = Path(__file__).parent
    functions = ctypes.CDLL(str(folder / f"kernel_{variant}.so"))
    source = zlib.crc32((folder / "kernel.cpp").read_bytes())
    if not hasattr(functions, "source") or functions.source() & 0xFFFFFFFF != source:
        raise _StaleError
    return functions


class _StaleError(Exception):
    """A library was compiled from another source."""
