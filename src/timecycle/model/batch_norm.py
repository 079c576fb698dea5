"""Batch-norm statistics: a momentum set for a while, and statistics for random weights, which lack them."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from timecycle.model.resnet import ResNet

_IMAGES = 4
_SIZE_PX = 192


@contextmanager
def batch_norm_momentum(model: nn.Module, momentum: float | None) -> Iterator[list[nn.BatchNorm2d]]:
    """Set the momentum of all batch norms within the context: 0 keeps their statistics, None averages all batches."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = momentum
    try:
        yield norms
    finally:
        for norm, usual in zip(norms, before, strict=True):
            norm.momentum = usual


@torch.no_grad()
def with_batch_norm_statistics(model: ResNet, *, seed: int) -> ResNet:
    """Return a copy with the batch-norm statistics of pink noise, a pure function of model and seed.

    New batch norms assume inputs of mean 0 and variance 1, which random convolutions do not give. Noise whose spectrum
    falls as 1/frequency, like that of photographs, stands in for footage, so no data is needed.
    """
    model = copy.deepcopy(model).train()
    with batch_norm_momentum(model, None) as norms:
        for norm in norms:
            norm.reset_running_stats()
        model(_pink_noise(seed))
    return model.eval()


def _pink_noise(seed: int) -> Float[Tensor, "images 3 height width"]:
    """Make noise of mean 0 and variance 1 per channel, in the units of normalised images."""
    noise = np.random.default_rng(seed).standard_normal((_IMAGES, 3, _SIZE_PX, _SIZE_PX))
    noise = 0.9 * noise[:, :1] + 0.44 * noise  # channels are correlated: photographs are nearly grey
    frequency = np.fft.fftfreq(_SIZE_PX)
    distance = np.hypot(frequency[:, None], frequency[None, :])
    distance[0, 0] = np.inf  # removes the image's mean
    pink = np.fft.ifft2(np.fft.fft2(noise) / distance).real
    pink /= pink.std(axis=(0, 2, 3), keepdims=True)
    return torch.from_numpy(pink).float()
