"""An encoder that knows the synthetic world: descriptors of the surface points that pixels show."""

import hashlib

import numpy as np
import torch

from timecycle.grid import grid_over
from timecycle.model.encoder import FeatureMap
from timecycle.synthetic import World, surface_descriptors


class OracleEncoder:
    """Finds which frame an image is by its bytes, and describes the surface seen at each cell's centre."""

    name = "oracle"
    sha256 = "0" * 64
    form = "exact"

    def __init__(self, world: World, *, stride_px: int = 8, first_px: float = 0.0) -> None:
        self.world, self.stride_px, self.first_px = world, stride_px, first_px
        self._index = {_digest(world.frame(t)): t for t in range(len(world))}
        self._known: dict[int, FeatureMap] = {}

    def encode(self, image: np.ndarray) -> FeatureMap:
        index = self._index[_digest(image)]
        if index not in self._known:
            self._known[index] = self._encode(image, index)
        return self._known[index]

    def _encode(self, image: np.ndarray, index: int) -> FeatureMap:
        height, width, _ = image.shape
        ys, xs = self._centres(height), self._centres(width)
        grid = grid_over(height, width, cells=(len(ys), len(xs)), stride_px=self.stride_px, first_px=self.first_px)
        seen = self.world.surface(index)[np.ix_(ys, xs)]
        # Smooth over three cells, so that a point seen for the first time resembles its neighbours on the surface.
        features = surface_descriptors(seen, channels=64, length_px=3.0 * self.stride_px)
        return FeatureMap(torch.from_numpy(np.ascontiguousarray(features.transpose(1, 2, 0))), grid)

    def _centres(self, pixels: int) -> np.ndarray:
        return np.arange(self.first_px, pixels, self.stride_px).astype(int)


def _digest(image: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()


def iou(found: np.ndarray, truth: np.ndarray) -> float:
    """Overlap of two sets of pixels; 1 where both are empty."""
    either = (found | truth).sum()
    return 1.0 if either == 0 else float((found & truth).sum() / either)
