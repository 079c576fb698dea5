"""Mean RGB of each cell: the baseline that any learned encoder has to beat."""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import UInt8

from timecycle.grid import grid_over
from timecycle.labels.label_map import pool
from timecycle.model.encoder import FeatureMap
from timecycle.model.inference import IMAGENET_MEAN, IMAGENET_STD
from timecycle.model.resnet import STRIDE_PX

FIRST_PX = (STRIDE_PX - 1) / 2  # a cell is centred on its block of pixels


class RgbEncoder:
    """The mean colour of every block of 8x8 pixels, scaled to unit length like the output of a network."""

    name = "rgb"
    sha256 = "0" * 64  # there are no weights
    description = "mean RGB of 8x8 pixels, normalised as for ImageNet"

    def encode(self, image: UInt8[np.ndarray, "height width 3"]) -> FeatureMap:
        height, width, _ = image.shape
        cells = (max(height // STRIDE_PX, 1), max(width // STRIDE_PX, 1))
        grid = grid_over(height, width, cells=cells, stride_px=STRIDE_PX, first_px=FIRST_PX)
        pixels = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1) / 255
        colours = (pool(pixels, grid) - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)
        return FeatureMap(F.normalize(colours, dim=-1), grid)
