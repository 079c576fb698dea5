"""phi: ResNet-18 or -50 without res5, res4 at stride 1, so that one cell is 8 pixels (section 3.2, appendix A.1).

Parameters carry torchvision's names, so ImageNet weights load as they are; `layer4` and `fc` do not exist here.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from timecycle.errors import SettingsError
from timecycle.grid import Grid, grid_over

STRIDE_PX = 8
FIRST_PX = 0  # every strided layer has an odd kernel padded by half of it, so output c stays centred on input 2c

_MOST_CHANNELS = 65536  # of a head: more is a mistake, or a trap

Architecture = Literal["resnet18", "resnet50"]
Padding = Literal["zeros", "reflect", "replicate"]
Layer = Literal["res2", "res3", "res4"]  # as the paper counts; torchvision's layer1, layer2 and layer3


@dataclass(frozen=True, kw_only=True)
class ResNetConfig:
    architecture: Architecture = "resnet18"
    padding: Padding = "zeros"  # reflect and replicate hide the border, which zeros give away to the features
    head_channels: int | None = None  # a last 1x1 convolution; the 2019 release has 512 of them
    head_relu: bool = True  # only with a head
    last: Layer = "res4"
    columns: bool = False  # the head sees all layers from res2 on: the first ones look at less of the image
    # What labels are carried by, and learning knows nothing of:
    centred: bool = False  # a picture's mean descriptor is taken away: what all cells share tells none from the others
    fine: float = 0.0  # weight of res2's own cells beside the last layer's, which see farther; 1 is as much
    colour: float = 0.0  # weight of the cell's own mean colour beside them

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
            raise SettingsError("columns are set without a head to see them", remedy="set head_channels too")


class ResNet(nn.Module):
    """Images, normalised as for ImageNet, to descriptors of length 1 at every eighth pixel."""

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
        seen = sum(widths) if config.columns else width
        self.head = nn.Conv2d(seen, config.head_channels, 1, bias=False) if config.head_channels else None
        beside = (widths[0] if config.fine else 0) + (3 if config.colour else 0)
        self.channels = (config.head_channels or width) + beside

    def forward(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        return F.normalize(self.activations(images).float(), dim=1)

    def activations(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        """The last feature map, with what stands beside it, before its descriptors are scaled to length 1."""
        config, layers = self.config, self._layers(images)
        learned = self._head(layers)
        if not (config.centred or config.fine or config.colour):
            return learned
        # Each part has length 1 before it is weighed, so that weights mean the same for all networks and pictures.
        parts = [self._part(learned)]
        if config.fine:
            parts.append(config.fine**0.5 * self._part(layers["res2"]))
        if config.colour:
            # What is learned sees far beyond a cell: thin things need the cell itself.
            parts.append(config.colour**0.5 * F.normalize(_mean_colours(images), dim=1).to(learned.dtype))
        return torch.cat(parts, dim=1)

    def learned(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        """What the network alone makes of pictures: learning goes by this."""
        return self._head(self._layers(images))

    def _layers(self, images: Float[Tensor, "b 3 H W"]) -> dict[Layer, Float[Tensor, "b _ h w"]]:
        """The layers that are needed, first to last, with cells of 8 pixels."""
        config = self.config
        x = F.relu(self.bn1(self.conv1(images)), inplace=True)
        x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        x = self.layer1(x)
        layers: dict[Layer, Float[Tensor, "b _ h w"]] = {}
        if config.last == "res2" or config.columns or config.fine:
            # Cells of res2 are 4 pixels; every second one, with its neighbours, lies where a cell of res3 does.
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

    def _part(self, cells: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Descriptors of length 1, without their picture's mean if that is asked for."""
        cells = F.normalize(cells, dim=1)
        return F.normalize(cells - cells.mean(dim=(2, 3), keepdim=True), dim=1) if self.config.centred else cells


def _mean_colours(images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b 3 h w"]:
    """Of the pixels around every cell's centre."""
    return F.avg_pool2d(images, STRIDE_PX + 1, STRIDE_PX, STRIDE_PX // 2, count_include_pad=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut (ResNet-18)."""

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
    """1x1, 3x3 (which carries the stride), 1x1 around a shortcut (ResNet-50)."""

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
    """The grid of the encoder's features on a square picture."""
    cells = -(-side_px // STRIDE_PX)
    return grid_over(side_px, side_px, cells=(cells, cells), stride_px=STRIDE_PX, first_px=FIRST_PX)


def random_resnet(config: ResNetConfig, *, seed: int) -> ResNet:
    """Kaiming-initialised weights (fan out), a pure function of the seed; global random state is left alone."""
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
    """Identity where shapes agree; torchvision then has no `downsample`, so neither has the state."""
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
