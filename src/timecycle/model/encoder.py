"""The encoder as the rest of the package sees it: one image in, one feature map out."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from timecycle.errors import WeightsError
from timecycle.grid import Grid


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """One descriptor of length 1 per cell, and where the cells lie on the image that was encoded."""

    cells: Float[Tensor, "rows columns channels"]
    grid: Grid

    def __repr__(self) -> str:
        rows, columns, channels = self.cells.shape
        over = f"{self.grid.x.pixels}x{self.grid.y.pixels} px"
        return f"FeatureMap({columns}x{rows} cells of {channels} channels over {over}, on {self.cells.device})"


def checked(features: FeatureMap, encoder: "Encoder") -> FeatureMap:
    """The features an encoder gave, refused where labels could not follow them or only seem to."""
    cells, grid = features.cells, features.grid
    if cells.ndim != 3 or cells.shape[:2] != (grid.y.cells, grid.x.cells) or cells.shape[2] < 1:
        raise WeightsError(
            f"the encoder {encoder.name} gave features of {tuple(cells.shape)} for a grid of "
            f"{grid.y.cells} rows and {grid.x.cells} columns",
            remedy="make them rows x columns x channels, with the grid that grid_over gives for them",
        )
    # Of a sum first, which takes a tenth of the time: it is finite where all of its parts are, but for an overflow.
    if not cells.sum().isfinite() and not cells.isfinite().all():
        raise WeightsError(
            f"the encoder {encoder.name} gave features that are no numbers",
            remedy="examine its weights with `timecycle weights verify`, or pass --precision fp32",
        )
    return features


@runtime_checkable
class Encoder(Protocol):
    """Anything that turns an image into a feature map can carry labels.

    One that computes on the CPU, and whose `encode` several threads may call at once, may say `shareable = True`:
    frames are then encoded several at a time.
    """

    @property
    def name(self) -> str: ...

    @property
    def sha256(self) -> str:
        """Identifies the weights: results made with different weights are never mixed."""
        ...

    @property
    def form(self) -> str:
        """How the weights are run (architecture, precision ...): another form gives slightly other features."""
        ...

    def encode(self, image: UInt8[np.ndarray, "height width 3"]) -> FeatureMap:
        """The feature map of an RGB image of any size; descriptors have length 1."""
        ...
