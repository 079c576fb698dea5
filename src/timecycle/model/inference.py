"""ResNets prepared for inference: batch norm folded into the convolutions, channels last, fp32 or bf16."""

import copy
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from timecycle.device import Device, pick_device
from timecycle.errors import VideoError
from timecycle.grid import grid_over
from timecycle.model.encoder import FeatureMap
from timecycle.model.resnet import FIRST_PX, STRIDE_PX, BasicBlock, Bottleneck, ResNet

Precision = Literal["fp32", "bf16"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class ResNetEncoder:
    """A ResNet as an encoder.

    Descriptors agree with those of the module in training to 1e-4 in fp32, and to a cosine of 0.99 in bf16 (ResNet-18).
    """

    def __init__(
        self, model: ResNet, *, name: str, sha256: str, device: Device = "auto", precision: Precision = "fp32"
    ) -> None:
        self.name = name
        self.sha256 = sha256
        self.device = pick_device(device)
        self.thread_safe = self.device.type == "cpu"
        self.description = f"{model.config}, {precision} on {self.device.type}, torch {torch.__version__}"
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self._model = fold_batch_norm(model).to(self.device, self.dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._mean = torch.tensor(IMAGENET_MEAN, device=self.device)
        self._std = torch.tensor(IMAGENET_STD, device=self.device)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {self.description})"

    @torch.inference_mode()
    def encode(self, image: UInt8[np.ndarray, "height width 3"]) -> FeatureMap:
        height, width, _ = image.shape
        if self._model.config.padding == "reflect" and min(height, width) <= STRIDE_PX:
            raise VideoError(
                f"an image of {width}x{height} is too small for an encoder with reflect padding",
                remedy=f"use images of more than {STRIDE_PX} pixels a side, or an encoder with another padding",
            )
        activations = self._model.activations(self._normalised(image))
        cells = F.normalize(activations[0].float().permute(1, 2, 0), dim=-1).contiguous()
        shape = (cells.shape[0], cells.shape[1])
        return FeatureMap(cells, grid_over(height, width, cells=shape, stride_px=STRIDE_PX, first_px=FIRST_PX))

    def _normalised(self, image: UInt8[np.ndarray, "height width 3"]) -> Float[Tensor, "1 3 height width"]:
        pixels = torch.from_numpy(np.ascontiguousarray(image)).to(self.device)
        # (height, width, 3) viewed as (1, 3, height, width) is channels last already: no copy.
        return ((pixels / 255 - self._mean) / self._std).permute(2, 0, 1)[None].to(self.dtype)


def fold_batch_norm(model: ResNet) -> ResNet:
    """Return a copy in which every batch norm is folded into the convolution before it."""
    folded = copy.deepcopy(model).eval().requires_grad_(False)
    _fold_pair(folded, "conv1", "bn1")
    for module in folded.modules():
        if isinstance(module, BasicBlock | Bottleneck):
            for i in (1, 2, 3):
                if hasattr(module, f"conv{i}"):
                    _fold_pair(module, f"conv{i}", f"bn{i}")
            if isinstance(module.downsample, nn.Sequential):
                _fold_pair(module.downsample, "0", "1")
    return folded


def _fold_pair(parent: nn.Module, conv: str, norm: str) -> None:
    fused = fuse_conv_bn_eval(getattr(parent, conv), getattr(parent, norm))
    setattr(parent, conv, fused)
    setattr(parent, norm, nn.Identity())
