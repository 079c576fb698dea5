"""The interface of all encoders: one image in, one feature map out."""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from timecycle.device import host_values
from timecycle.errors import WeightsError
from timecycle.grid import Grid


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """One descriptor of unit length per feature cell, and the grid of the cells on the encoded image."""

    cells: Float[Tensor, "rows columns channels"]
    grid: Grid

    def __repr__(self) -> str:
        rows, columns, channels = self.cells.shape
        over = f"{self.grid.x.pixels}x{self.grid.y.pixels} px"
        return f"FeatureMap({columns}x{rows} cells of {channels} channels over {over}, on {self.cells.device})"


def validate_features(features: FeatureMap, encoder: "Encoder") -> FeatureMap:
    """Return the features of an encoder, or refuse them if they do not fit their grid or are not finite."""
    cells, grid = features.cells, features.grid
    if cells.ndim != 3 or cells.shape[:2] != (grid.y.cells, grid.x.cells) or cells.shape[2] < 1:
        raise WeightsError(
            f"the encoder {encoder.name} returned features of shape {tuple(cells.shape)} for a grid of "
            f"{grid.y.cells} rows and {grid.x.cells} columns",
            remedy="return rows x columns x channels, and the grid that grid_over makes for them",
        )
    # The sum is checked first, which takes a tenth of the time: unless it overflows, it is finite where all cells are.
    if not math.isfinite(host_values(cells.sum()[None], "features")[0]) and not cells.isfinite().all():
        raise WeightsError(
            f"the encoder {encoder.name} returned features that are not finite",
            remedy="check its weights with `timecycle weights verify`, or pass --precision fp32",
        )
    return features


@runtime_checkable
class Encoder(Protocol):
    """Anything that turns an image into a feature map can propagate labels.

    An encoder on the CPU whose `encode` may be called by several threads at once may set `thread_safe = True`:
    several frames are then encoded at a time.
    """

    @property
    def name(self) -> str:
        """The name in records and reports."""
        ...

    @property
    def sha256(self) -> str:
        """The checksum of the weights: results of different weights are never mixed."""
        ...

    @property
    def description(self) -> str:
        """How features are computed (architecture, precision ...): results that differ in it are never mixed."""
        ...

    def encode(self, image: UInt8[np.ndarray, "height width 3"]) -> FeatureMap:
        """Compute the feature map of an RGB image of any size; descriptors have unit length."""
        ...
