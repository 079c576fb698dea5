"""Colour alone: each cell is the mean RGB of its pixels. The least that any learned encoder has to beat."""

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from timecycle.grid import grid_over
from timecycle.labels.soft import pool
from timecycle.model.encoder import FeatureMap
from timecycle.model.resnet import STRIDE_PX

FIRST_PX = (STRIDE_PX - 1) / 2  # a cell is the block of pixels it stands on


class RgbEncoder:
    """The mean colour of every block of 8x8 pixels."""

    name = "rgb"
    sha256 = "0" * 64  # there are no weights
    form = "mean RGB of 8x8 pixels on the unit sphere"

    def encode(self, image: UInt8[np.ndarray, "height width 3"]) -> FeatureMap:
        height, width, _ = image.shape
        cells = (max(height // STRIDE_PX, 1), max(width // STRIDE_PX, 1))
        grid = grid_over(height, width, cells=cells, stride_px=STRIDE_PX, first_px=FIRST_PX)
        pixels = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1).float()
        return FeatureMap(_on_sphere(pool(pixels / 255 - 0.5, grid)), grid)


def _on_sphere(colours: Float[Tensor, "rows columns 3"]) -> Float[Tensor, "rows columns 4"]:
    """Colours as seen from mid-grey, with the fourth number that makes their length one.

    Scaled to length one by themselves they would lose their brightness: black and white would be opposites, but
    every grey between them one or the other. No colour is further than sqrt(3)/2 from mid-grey, so the fourth number
    exists for all.
    """
    rest = (1 - colours.square().sum(dim=-1, keepdim=True)).sqrt()
    return torch.cat([colours, rest], dim=-1)
