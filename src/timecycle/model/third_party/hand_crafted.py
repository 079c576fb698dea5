"""Hand-crafted features, the baselines that any learned encoder has to beat: mean RGB and dense SIFT of each cell."""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import UInt8

from timecycle.extras import import_extra
from timecycle.grid import grid_over
from timecycle.labels.label_map import pool
from timecycle.model.encoder import FeatureMap
from timecycle.model.inference import IMAGENET_MEAN, IMAGENET_STD
from timecycle.model.resnet import STRIDE_PX

_RGB_FIRST_PX = (STRIDE_PX - 1) / 2  # a cell is centred on its block of pixels

_SIFT_FIRST_PX = 4  # OpenCV rounds positions to whole pixels, so half a pixel would be lost
_SIFT_PX = 16 / 3  # OpenCV's bins are 1.5 sizes wide: 4 bins of 8 pixels are 32 pixels around each cell


class RgbEncoder:
    """The mean colour of every block of 8x8 pixels, scaled to unit length like the output of a network."""

    name = "rgb"
    sha256 = "0" * 64  # there are no weights
    description = "mean RGB of 8x8 pixels, normalised as for ImageNet"

    def encode(self, image: UInt8[np.ndarray, "height width 3"]) -> FeatureMap:
        height, width, _ = image.shape
        cells = (max(height // STRIDE_PX, 1), max(width // STRIDE_PX, 1))
        grid = grid_over(height, width, cells=cells, stride_px=STRIDE_PX, first_px=_RGB_FIRST_PX)
        pixels = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1) / 255
        colours = (pool(pixels, grid) - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)
        return FeatureMap(F.normalize(colours, dim=-1), grid)


class SiftEncoder:
    """SIFT descriptors of 32x32 pixels around every block of 8x8 pixels."""

    name = "sift"
    sha256 = "0" * 64  # there are no weights

    def __init__(self) -> None:
        self._cv2 = import_extra("cv2", extra="eval")
        self._sift = self._cv2.SIFT_create()
        geometry = f"cells on pixel {_SIFT_FIRST_PX} + {STRIDE_PX} c"
        self.description = f"upright SIFT of 32x32 pixels, {geometry}, OpenCV {self._cv2.__version__}"

    def encode(self, image: UInt8[np.ndarray, "height width 3"]) -> FeatureMap:
        height, width, _ = image.shape
        cells = (max(height // STRIDE_PX, 1), max(width // STRIDE_PX, 1))
        grid = grid_over(height, width, cells=cells, stride_px=STRIDE_PX, first_px=_SIFT_FIRST_PX)
        grey = self._cv2.cvtColor(np.ascontiguousarray(image), self._cv2.COLOR_RGB2GRAY)
        points = [self._cv2.KeyPoint(float(x), float(y), _SIFT_PX, 0.0) for x, y in grid.centres().flatten(0, 1)]
        _, descriptors = self._sift.compute(grey, points)
        sift = torch.from_numpy(descriptors).reshape(*cells, -1)
        # A flat patch has no gradients: its SIFT is zero. This channel makes flat patches similar only to each other.
        flat = sift.abs().sum(dim=-1, keepdim=True) == 0
        return FeatureMap(F.normalize(torch.cat([sift, flat.float()], dim=-1), dim=-1), grid)
