"""Encoder phi: ResNet-18 or -50 without res5 and with res4 at stride 1, so that a feature cell is 8 pixels wide
(section 3.2, appendix A.1); and its batch-norm statistics.

Parameters have torchvision's names, so ImageNet weights load as they are; `layer4` and `fc` do not exist here.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from timecycle.errors import SettingsError
from timecycle.grid import Grid, grid_over

STRIDE_PX = 8
FIRST_PX = 0  # every strided layer has an odd kernel with half of it as padding, so output c is centred on input 2c

_MOST_CHANNELS = 65536  # of a head; a file that asks for more is wrong or malicious

Architecture = Literal["resnet18", "resnet50"]
Padding = Literal["zeros", "reflect", "replicate"]
Layer = Literal["res2", "res3", "res4"]  # as the paper counts; torchvision's layer1, layer2 and layer3

_NOISE_IMAGES = 4
_NOISE_PX = 192


@dataclass(frozen=True, kw_only=True)
class ResNetConfig:
    architecture: Architecture = "resnet18"  # or resnet50
    padding: Padding = "zeros"  # zeros let features know the border; reflect and replicate hide it
    head_channels: int | None = None  # of a last 1x1 convolution; the 2019 release has 512
    head_relu: bool = True  # only with a head
    last: Layer = "res4"  # the last layer that is used, as the paper counts; res2, res3 or res4
    columns: bool = False  # the head takes all layers from res2 on; early layers have smaller receptive fields
    # Used in propagation, and in training where that is asked for:
    centred: bool = False  # subtract the image's mean descriptor, which does not tell its cells apart
    fine: float = 0.0  # weight of res2 features concatenated to the learned ones; 1 is an equal weight
    colour: float = 0.0  # weight of the cell's mean colour concatenated to them

    def __post_init__(self) -> None:
        for name, kind in (("architecture", Architecture), ("padding", Padding), ("last", Layer)):
            choices = get_args(kind)
            if getattr(self, name) not in choices:
                raise SettingsError(f"{name} is {getattr(self, name)!r}", remedy=f"choose one of {', '.join(choices)}")
        head = self.head_channels
        if head is not None and (type(head) is not int or not 1 <= head <= _MOST_CHANNELS):
            raise SettingsError(f"head_channels is {head!r}", remedy=f"set it to 1 to {_MOST_CHANNELS}, or to None")
        for name in ("fine", "colour"):
            if type(getattr(self, name)) not in (int, float) or not 0 <= getattr(self, name) <= 100:
                remedy = "give 0 for none, 1 for as much as the last layer"
                raise SettingsError(f"{name} is {getattr(self, name)!r}", remedy=remedy)
        for name in ("head_relu", "columns", "centred"):
            if type(getattr(self, name)) is not bool:
                raise SettingsError(f"{name} is {getattr(self, name)!r}", remedy="set it to true or false")
        if self.columns and self.head_channels is None:
            raise SettingsError("columns is set without a head that takes them", remedy="set head_channels too")


class ResNet(nn.Module):
    """Maps images, normalised as for ImageNet, to descriptors of unit length at every eighth pixel."""

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        self.config = config
        block, depths = _ARCHITECTURES[config.architecture]
        padding = config.padding
        self.conv1 = _conv(3, 64, kernel=7, stride=2, padding=padding)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _layer(block, 64, 64, depths[0], stride=1, padding=padding)
        widths = [64 * block.expansion]
        if config.last != "res2":
            self.layer2 = _layer(block, widths[-1], 128, depths[1], stride=2, padding=padding)
            widths.append(128 * block.expansion)
        if config.last == "res4":
            self.layer3 = _layer(block, widths[-1], 256, depths[2], stride=1, padding=padding)
            widths.append(256 * block.expansion)
        width = widths[-1]
        inputs = sum(widths) if config.columns else width
        self.head = nn.Conv2d(inputs, config.head_channels, 1, bias=False) if config.head_channels else None
        concatenated = (widths[0] if config.fine else 0) + (3 if config.colour else 0)
        self.channels = (config.head_channels or width) + concatenated

    def forward(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        return F.normalize(self.activations(images).float(), dim=1)

    def activations(self, images: Float[Tensor, "b 3 H W"], *, colour: bool = True) -> Float[Tensor, "b c h w"]:
        """Compute descriptors for propagation before they are scaled to unit length, without their colour if asked."""
        config, layers = self.config, self._layers(images)
        learned = self._head(layers)
        weight = config.colour if colour else 0.0
        if not (config.centred or config.fine or weight):
            return learned
        # Blocks are normalised before they are weighted, so that weights mean the same for all networks and images.
        blocks = [self._normalised(learned)]
        if config.fine:
            blocks.append(config.fine**0.5 * self._normalised(layers["res2"]))
        if weight:
            # The receptive field of learned features is far larger than a cell, in which thin objects get lost.
            blocks.append(weight**0.5 * F.normalize(_mean_colours(images), dim=1).to(learned.dtype))
        return torch.cat(blocks, dim=1)

    def learned(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        """Compute the network's own features, without anything concatenated."""
        return self._head(self._layers(images))

    def _layers(self, images: Float[Tensor, "b 3 H W"]) -> dict[Layer, Float[Tensor, "b _ h w"]]:
        """Compute the layers that the settings need, first to last, with cells of 8 pixels."""
        config = self.config
        x = F.relu(self.bn1(self.conv1(images)), inplace=True)
        x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        x = self.layer1(x)
        layers: dict[Layer, Float[Tensor, "b _ h w"]] = {}
        if config.last == "res2" or config.columns or config.fine:
            # Cells of res2 are 4 pixels wide; every second one is averaged with its neighbours onto a cell of res3.
            layers["res2"] = F.avg_pool2d(x, kernel_size=3, stride=2, padding=1, count_include_pad=False)
        if config.last != "res2":
            layers["res3"] = self.layer2(x)
        if config.last == "res4":
            layers["res4"] = self.layer3(layers["res3"])
        return layers

    def _head(self, layers: dict[Layer, Float[Tensor, "b _ h w"]]) -> Float[Tensor, "b c h w"]:
        x = torch.cat(list(layers.values()), dim=1) if self.config.columns else layers[self.config.last]
        if self.head is not None:
            x = self.head(x)
            x = F.relu(x) if self.config.head_relu else x
        return x

    def _normalised(self, features: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Scale descriptors to unit length and, if set, subtract their image's mean."""
        features = F.normalize(features, dim=1)
        if not self.config.centred:
            return features
        return F.normalize(features - features.mean(dim=(2, 3), keepdim=True), dim=1)


def _mean_colours(images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b 3 h w"]:
    """Return the mean colour of the pixels around every cell's centre."""
    return F.avg_pool2d(images, STRIDE_PX + 1, STRIDE_PX, STRIDE_PX // 2, count_include_pad=False)


class BasicBlock(nn.Module):
    """Residual block of two 3x3 convolutions (ResNet-18)."""

    expansion = 1

    def __init__(self, inputs: int, width: int, *, stride: int, padding: Padding) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, kernel=3, stride=stride, padding=padding)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, kernel=3, stride=1, padding=padding)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h2 w2"]:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y.add_(self.downsample(x)), inplace=True)


class Bottleneck(nn.Module):
    """Residual block of 1x1, 3x3 (with the stride) and 1x1 convolutions (ResNet-50)."""

    expansion = 4

    def __init__(self, inputs: int, width: int, *, stride: int, padding: Padding) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, kernel=3, stride=stride, padding=padding)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.downsample = _shortcut(inputs, width * self.expansion, stride)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h2 w2"]:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y.add_(self.downsample(x)), inplace=True)


_ARCHITECTURES: dict[Architecture, tuple[type[BasicBlock] | type[Bottleneck], tuple[int, int, int]]] = {
    "resnet18": (BasicBlock, (2, 2, 2)),
    "resnet50": (Bottleneck, (3, 4, 6)),
}


def grid_of(side_px: int) -> Grid:
    """Return the grid of the encoder's features on a square image."""
    cells = -(-side_px // STRIDE_PX)
    return grid_over(side_px, side_px, cells=(cells, cells), stride_px=STRIDE_PX, first_px=FIRST_PX)


def random_resnet(config: ResNetConfig, *, seed: int) -> ResNet:
    """Make a ResNet with Kaiming weights (fan out) from a seed; global random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed every accelerator
        model = ResNet(config)
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def _conv(inputs: int, outputs: int, *, kernel: int, stride: int, padding: Padding) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, padding_mode=padding, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Make the identity where shapes agree: like torchvision's, the state then has no `downsample`."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False),
        nn.BatchNorm2d(outputs),
    )


def _layer(
    block: type[BasicBlock] | type[Bottleneck],
    inputs: int,
    width: int,
    depth: int,
    *,
    stride: int,
    padding: Padding,
) -> nn.Sequential:
    first = block(inputs, width, stride=stride, padding=padding)
    rest = [block(width * block.expansion, width, stride=1, padding=padding) for _ in range(depth - 1)]
    return nn.Sequential(first, *rest)


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
    noise = np.random.default_rng(seed).standard_normal((_NOISE_IMAGES, 3, _NOISE_PX, _NOISE_PX))
    noise = 0.9 * noise[:, :1] + 0.44 * noise  # channels are correlated: photographs are nearly grey
    frequency = np.fft.fftfreq(_NOISE_PX)
    distance = np.hypot(frequency[:, None], frequency[None, :])
    distance[0, 0] = np.inf  # removes the image's mean
    pink = np.fft.ifft2(np.fft.fft2(noise) / distance).real
    pink /= pink.std(axis=(0, 2, 3), keepdims=True)
    return torch.from_numpy(pink).float()
