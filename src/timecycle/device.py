"""Devices that tensors are computed on, and the few places where the program waits for one.

A program that reads a value of an accelerator waits until all queued work is done. Values are therefore read by
`host_values` and `host_tensor` alone, which name every place where this happens.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from timecycle.errors import SettingsError

Device = Literal["auto", "cpu", "cuda", "mps"]
CPU = torch.device("cpu")
# What the program waits for a device for: in training, and in propagation.
Waiting = Literal["finite gradient", "report", "validation", "features", "ties", "labels", "signals", "spool"]


def pick_device(device: Device) -> torch.device:
    """Return the requested device, or the best available for `auto`; a missing device is refused, never replaced."""
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if device == "auto":
        return torch.device(next(name for name in ("cuda", "mps", "cpu") if available[name]))
    if device not in available or not available[device]:
        raise SettingsError(
            f"torch finds no device {device!r} on this machine",
            remedy="use --device auto, or run `timecycle doctor` to see which devices are available",
        )
    return torch.device(device)


def pinned(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return tensors in memory from which they can be copied to a CUDA device without waiting for the copy."""
    if device.type != "cuda":
        return dict(tensors)
    return {name: tensor.pin_memory() for name, tensor in tensors.items()}


def moved(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return tensors on a device, without waiting for pinned ones to arrive."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}


def synchronise(device: torch.device) -> None:
    """Wait until a device has done all work that is queued, as whoever reads a clock must."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def reads_at_once(device: torch.device) -> bool:
    """Return whether values can be read without waiting."""
    return device.type == "cpu"


def host_tensor(values: Tensor, waiting: Waiting) -> Tensor:
    """Copy a tensor to the host's memory; on an accelerator, this waits for all work that is queued."""
    del waiting
    return values.cpu()


def host_values(values: Tensor, waiting: Waiting) -> list[float]:
    """Read a vector of numbers; on an accelerator, this waits for all work that is queued."""
    del waiting  # names the place, for tests and for the reader
    numbers: list[float] = values.tolist()
    return numbers
