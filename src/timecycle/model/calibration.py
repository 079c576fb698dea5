"""Batch norm statistics for random weights: without them a random network is a worse one than it has to be."""

import copy

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from timecycle.model.resnet import ResNet
from timecycle.model.statistics import remembering

_IMAGES = 4
_SIZE_PX = 192


@torch.no_grad()
def calibrated(model: ResNet, *, seed: int) -> ResNet:
    """A copy whose batch norms have the statistics of natural-looking noise, a pure function of model and seed.

    Freshly made batch norms assume inputs of mean 0 and variance 1, which random convolutions do not give. Noise
    whose spectrum falls as 1/frequency, as that of photographs does, stands in for footage: no data is needed.
    """
    model = copy.deepcopy(model).train()
    with remembering(model, None) as norms:
        for norm in norms:
            norm.reset_running_stats()
        model(_pink_noise(seed))
    return model.eval()


def _pink_noise(seed: int) -> Float[Tensor, "images 3 height width"]:
    """Noise of mean 0 and variance 1 per channel, in the units of normalised images; channels mostly agree."""
    noise = np.random.default_rng(seed).standard_normal((_IMAGES, 3, _SIZE_PX, _SIZE_PX))
    noise = 0.9 * noise[:, :1] + 0.44 * noise  # photographs are nearly grey
    frequency = np.fft.fftfreq(_SIZE_PX)
    distance = np.hypot(frequency[:, None], frequency[None, :])
    distance[0, 0] = np.inf  # no brightness of the whole image
    pink = np.fft.ifft2(np.fft.fft2(noise) / distance).real
    pink /= pink.std(axis=(0, 2, 3), keepdims=True)
    return torch.from_numpy(pink).float()
