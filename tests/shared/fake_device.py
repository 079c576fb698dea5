"""A device that does not exist: tensors of it have shapes and types but no values, and refuse to mix with others.

What runs on it has no tensor on a wrong device, and waits nowhere but where it says so. Tensors in the memory of the
host are real.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from timecycle.grid import grid_over
from timecycle.matching import tiles
from timecycle.model.encoder import FeatureMap
from timecycle.training import step

NAME = "fakegpu"
# Where values are read: each of these modules imports the functions of device.py by name.
READERS = (
    "training.step",
    "training.trainer",
    "training.heldout",
    "matching.tiles",
    "model.encoder",
    "propagation.propagator",
    "propagation.spool",
    "confidence.signals",
)

# While tests are collected: the first backward pass of a process counts the devices, and knows of none that come later.
_setup_privateuseone_for_python_backend(NAME)


@contextmanager
def fake_device() -> Iterator[tuple[torch.device, Counter[str]]]:
    """Yield the device, and how often the program has waited for it, by name."""
    waits: Counter[str] = Counter()

    def host_values(tensor: Tensor, waiting: str) -> list[float]:
        waits[waiting] += 1
        return [0.0] * len(tensor)

    def host_tensor(tensor: Tensor, waiting: str) -> Tensor:
        waits[waiting] += 1
        return torch.zeros(tensor.shape, dtype=tensor.dtype)

    with pytest.MonkeyPatch.context() as patch:
        for reader in READERS:
            patch.setattr(f"timecycle.{reader}.host_values", host_values, raising=False)
            patch.setattr(f"timecycle.{reader}.host_tensor", host_tensor, raising=False)
        patch.setattr(torch, "Generator", _HostGenerator)
        patch.setattr(FakeTensorMode, "__deepcopy__", lambda mode, _: mode, raising=False)  # copies stay fakes of it
        patch.setattr(nn.Module, "_apply", _apply)
        patch.setattr(step, "_normalisation", step._normalisation.__wrapped__)  # keep no fakes
        patch.setattr(tiles, "_cached_window_mask", tiles._window_mask)
        with _Placing(FakeTensorMode(allow_non_fake_inputs=True)):
            yield torch.device(NAME), waits


class OnDevice:
    """An encoder whose features are on a device."""

    name, sha256, description, thread_safe = "on-device", "", "", False

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def encode(self, image: np.ndarray) -> FeatureMap:
        shape = image.shape[0] // 8, image.shape[1] // 8
        grid = grid_over(*image.shape[:2], cells=shape, stride_px=8, first_px=0)
        return FeatureMap(torch.zeros(*shape, 16, device=self.device), grid)


class _HostGenerator(torch.Generator):
    """The device has no generators of its own."""

    def __new__(cls, _device: torch.device | None = None) -> "_HostGenerator":
        return super().__new__(cls)


class _Placing(TorchFunctionMode):
    """Makes fakes of what is created on the device or copied to it; torch would look for real memory there."""

    def __init__(self, fakes: FakeTensorMode) -> None:
        super().__init__()
        self.fakes = fakes

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        kwargs = dict(kwargs or {})
        if any(_is_device(value) for value in (*args[1:], *kwargs.values())):
            if func is torch.tensor:  # a fake of a constant keeps its value, which would be copied for real
                constant = torch.tensor(*args, **{name: kwargs[name] for name in kwargs.keys() - {"device"}})
                with self.fakes:
                    return torch.empty(constant.shape, dtype=constant.dtype, device=NAME)
            with self.fakes:
                return func(*tree_map(self._fake, args), **kwargs)
        if any(isinstance(value, FakeTensor) for value in tree_leaves((args, kwargs))):
            if func is Tensor.to:  # the device of another tensor
                args = tree_map(self._fake, args)
            with self.fakes:  # what the function creates inside is a fake too
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    def _fake(self, value: Any) -> Any:
        is_real = isinstance(value, Tensor) and not isinstance(value, FakeTensor)
        return self.fakes.from_tensor(value) if is_real else value


def _is_device(value: object) -> bool:
    return isinstance(value, torch.device | str) and str(value).startswith(NAME)


def _apply(module: nn.Module, change: Callable[[Tensor], Tensor], _recurse: bool = True) -> nn.Module:
    """Replace parameters instead of swapping their content, which fakes refuse."""
    for one in module.modules():
        for name, parameter in one._parameters.items():
            if parameter is not None:
                one._parameters[name] = nn.Parameter(change(parameter.detach()), parameter.requires_grad)
        for name, buffer in one._buffers.items():
            if buffer is not None:
                one._buffers[name] = change(buffer)
    return module
