"""Finding the compiled kernel: the form for this processor, or none and the reason."""

import ctypes
import os
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from timecycle.errors import SettingsError

CHOICE = "TIMECYCLE_KERNEL"  # off, or one of the forms
FORMS = ("generic", "avx2", "avx512")  # each needs a processor that the one before runs on

_REBUILD = "install timecycle from source where there is a C++ compiler, or go on: torch does the same, more slowly"


@dataclass(frozen=True)
class Kernel:
    """The kernel's functions, or where `functions` is None the reason why there are none."""

    functions: ctypes.CDLL | None
    form: str
    reason: str = ""
    remedy: str = ""

    @property
    def rounding(self) -> str:
        """Forms with the same give the same to the bit."""
        return "fused" if self.form in ("avx2", "avx512") else self.form


@lru_cache(maxsize=1)
def find_kernel() -> Kernel:
    """The kernel that is used from now on."""
    choice = os.environ.get(CHOICE, "")
    if choice == "off":
        return Kernel(None, "torch", f"{CHOICE} is off")
    if choice not in ("", *FORMS):
        raise SettingsError(f"{CHOICE} is {choice!r}", remedy=f"set it to off, {', '.join(FORMS)}, or nothing")
    try:
        runs = FORMS[: _level() + 1]
        wanted = choice or runs[-1]
        if wanted not in runs:
            return Kernel(None, "torch", f"this processor cannot run {wanted}", f"set {CHOICE} to {runs[-1]}")
        return Kernel(_load(wanted), wanted)
    except OSError as error:
        return Kernel(None, "torch", f"the kernel was not compiled ({error})", _REBUILD)
    except _StaleError:
        reason, remedy = "the kernel was compiled from another kernel.cpp", "python hatch_build.py, or install again"
        return Kernel(None, "torch", reason, remedy)


def kernel_for(*tensors: Tensor) -> ctypes.CDLL | None:
    """The kernel's functions, if there are any and these tensors are of the kind they compute."""
    if any(t.device.type != "cpu" or t.dtype != torch.float32 or t.requires_grad for t in tensors):
        return None
    return find_kernel().functions


def address(tensor: Tensor, dtype: torch.dtype = torch.float32) -> int:
    """Where a tensor's values begin; they must be what the kernel takes them for, one after the other."""
    if not tensor.is_contiguous() or tensor.dtype != dtype or tensor.device.type != "cpu":
        raise ValueError(f"the kernel takes contiguous {dtype} on the CPU, not {tensor.dtype} on {tensor.device}")
    return tensor.data_ptr()


def threads() -> int:
    """As many as torch uses: what bounds one bounds the other."""
    return torch.get_num_threads()


def _level() -> int:
    """The last of the forms that this processor runs."""
    return int(_load("generic").level())


def _load(form: str) -> ctypes.CDLL:
    """The library of a form, if it was made from the source beside it: another one may have other arguments."""
    folder = Path(__file__).parent
    functions = ctypes.CDLL(str(folder / f"kernel_{form}.so"))
    source = zlib.crc32((folder / "kernel.cpp").read_bytes())
    if not hasattr(functions, "source") or functions.source() & 0xFFFFFFFF != source:
        raise _StaleError
    return functions


class _StaleError(Exception):
    """A library that was made from another source."""
