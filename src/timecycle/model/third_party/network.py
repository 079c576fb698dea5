"""Any network as an encoder, given the scaling of its input and the geometry of its cells."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from timecycle.device import Device, pick_device
from timecycle.grid import grid_over
from timecycle.model.encoder import FeatureMap
from timecycle.model.inference import IMAGENET_MEAN, IMAGENET_STD, Precision
from timecycle.model.weights import hash_state, refuse_not_finite


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Cell c of the network's output is centred on pixel `first_px + c * stride_px`."""

    stride_px: float
    first_px: float

    def __str__(self) -> str:
        return f"cells on pixel {self.first_px:g} + {self.stride_px:g} c"


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The input scaling of the network: (pixel - mean) / std, with pixels from 0 to 255."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


IMAGENET_SCALING = Scaling(
    mean=(IMAGENET_MEAN[0] * 255, IMAGENET_MEAN[1] * 255, IMAGENET_MEAN[2] * 255),
    std=(IMAGENET_STD[0] * 255, IMAGENET_STD[1] * 255, IMAGENET_STD[2] * 255),
)


class NetworkEncoder:
    """A network with its input scaling and its geometry as an encoder."""

    def __init__(
        self,
        model: nn.Module,
        *,
        name: str,
        geometry: Geometry,
        scaling: Scaling,
        device: Device = "auto",
        precision: Precision = "fp32",
    ) -> None:
        refuse_not_finite(name, model.state_dict())
        self.name = name
        self.sha256 = hash_state(model.state_dict())
        self.device = pick_device(device)
        self.thread_safe = self.device.type == "cpu"
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.description = f"{name}, {geometry}, {precision} on {self.device.type}, torch {torch.__version__}"
        self._geometry = geometry
        model = model.eval().requires_grad_(False)
        self._model = model.to(self.device, self.dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._mean = torch.tensor(scaling.mean, device=self.device)
        self._std = torch.tensor(scaling.std, device=self.device)

    @torch.inference_mode()
    def encode(self, image: UInt8[np.ndarray, "height width 3"]) -> FeatureMap:
        height, width, _ = image.shape
        activations = self._model(self._scaled(image))
        cells = F.normalize(activations[0].float().permute(1, 2, 0), dim=-1).contiguous()
        grid = grid_over(
            height,
            width,
            cells=(cells.shape[0], cells.shape[1]),
            stride_px=self._geometry.stride_px,
            first_px=self._geometry.first_px,
        )
        return FeatureMap(cells, grid)

    def _scaled(self, image: UInt8[np.ndarray, "height width 3"]) -> Float[Tensor, "1 3 height width"]:
        pixels = torch.from_numpy(np.ascontiguousarray(image)).to(self.device)
        return ((pixels - self._mean) / self._std).permute(2, 0, 1)[None].to(self.dtype)


class Padded(nn.Module):
    """Pads images to a multiple of the patch by repeating the last row and column, so that no pixel is left out."""

    def __init__(self, network: nn.Module, multiple_px: int) -> None:
        super().__init__()
        self.network = network
        self.multiple_px = multiple_px

    def forward(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        below, right = (-images.shape[2] % self.multiple_px, -images.shape[3] % self.multiple_px)
        features: Tensor = self.network(F.pad(images, (0, right, 0, below), mode="replicate"))
        return features


@torch.inference_mode()
def measure_geometry(network: nn.Module, side_px: int) -> Geometry:
    """Measure the stride and derive the centre of the first cell from the first convolution.

    Kernels side by side give cells that tile the image. Overlapping kernels are padded so that the first cell is
    centred on pixel 0.
    """
    stride = side_px / network(torch.zeros(1, 3, side_px, side_px)).shape[-1]
    first = next(module for module in network.modules() if isinstance(module, nn.Conv2d))
    tiles = tuple(first.kernel_size) == tuple(first.stride)
    return Geometry(stride_px=stride, first_px=(stride - 1) / 2 if tiles else 0)
