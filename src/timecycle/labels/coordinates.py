"""Coordinates: every pixel carries its own place on the labelled frame. Carried along, they are long-range flow."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float32
from torch import Tensor

from timecycle.errors import LabelError
from timecycle.files import atomic_write
from timecycle.grid import Grid
from timecycle.labels.file import check_label_file
from timecycle.labels.soft import Extent, SoftMap, pool, upsample
from timecycle.labels.space import Labels, Presence, two_drawings
from timecycle.video.frame import DEFAULT_MAX_PIXELS


@dataclass(frozen=True, eq=False)
class Coordinates(Labels):
    """For every pixel, the (x, y) on the labelled frame of what it shows."""

    xy: Float32[np.ndarray, "height width 2"]
    kind: ClassVar[str] = "coordinates"
    suffix: ClassVar[str] = ".npy"

    def __post_init__(self) -> None:
        if self.xy.dtype != np.float32 or self.xy.ndim != 3 or self.xy.shape[2] != 2:
            raise LabelError(
                f"coordinates are an array of {self.xy.dtype} with the shape {self.xy.shape}",
                remedy="give x and y of every pixel as float32 (height, width, 2): Coordinates.of_image(height, width)",
            )

    @classmethod
    def of_image(cls, height_px: int, width_px: int) -> "Coordinates":
        """The labelled frame itself: every pixel shows its own place."""
        x, y = np.meshgrid(np.arange(width_px, dtype=np.float32), np.arange(height_px, dtype=np.float32))
        return cls(np.stack([x, y], axis=-1))

    @classmethod
    def read(cls, path: str | Path) -> "Coordinates":
        check_label_file(Path(path))
        try:
            # Mapped, so that memory is taken only for what is there, whatever the header says.
            held = np.load(path, allow_pickle=False, mmap_mode="r")
            if not isinstance(held, np.ndarray) or held.dtype.kind not in "fiu":
                raise ValueError("it is not one array of numbers")
            if held.ndim != 3 or held.shape[2] != 2 or held.size > 2 * DEFAULT_MAX_PIXELS:
                raise ValueError(f"its shape is {held.shape}")
            with np.errstate(over="ignore"):
                array = np.array(held, np.float32, order="C")
            if not np.isfinite(array).all():
                raise ValueError("it has values that are not finite")
        except Exception as error:  # readers of damaged files raise nearly anything
            raise LabelError(
                f"cannot read {path} as coordinates: {error}",
                remedy="give a float32 .npy of shape (height, width, 2)",
            ) from error
        return cls(array)

    def write(self, path: str | Path) -> None:
        with atomic_write(path) as file:
            np.save(file, self.xy)

    def __repr__(self) -> str:
        height, width, _ = self.xy.shape
        return f"Coordinates({width}x{height})"

    def size(self) -> tuple[int, int]:
        height, width, _ = self.xy.shape
        return height, width

    @classmethod
    def space(cls, labelled: Sequence["Coordinates"]) -> "CoordinateSpace":
        if len(labelled) > 1:
            raise two_drawings("coordinates")
        return CoordinateSpace()


@dataclass(frozen=True)
class CoordinateSpace:
    """Channel 0 is x, channel 1 is y, both in pixels of the labelled frame."""

    channels: ClassVar[int] = 2
    exclusive: ClassVar[bool] = False
    stretchable: ClassVar[bool] = False

    def speaks(self, labels: Coordinates) -> Bool[Tensor, " channels"]:
        return torch.ones(self.channels, dtype=torch.bool)

    def to_soft(self, labels: Coordinates, grid: Grid) -> SoftMap:
        height, width = labels.size()
        own = Coordinates.of_image(height, width).xy
        moved = torch.from_numpy(labels.xy - own).permute(2, 0, 1).contiguous()
        return pool(moved, grid) + grid.centres()

    def from_soft(self, soft: SoftMap, grid: Grid) -> Coordinates:
        # The displacement is interpolated, not the place: it stays constant beyond the outer cells' centres,
        # where a place would stop growing.
        moved = upsample(soft - grid.centres(), grid).permute(1, 2, 0).contiguous().numpy()
        return Coordinates(moved + Coordinates.of_image(grid.y.pixels, grid.x.pixels).xy)

    @property
    def objects(self) -> tuple[str, ...]:
        return ("frame",)

    def extent(self, soft: SoftMap) -> Extent:
        return torch.ones_like(soft[..., :1])

    def presence(self, labels: Coordinates) -> tuple[Presence | None, ...]:
        return ("visible",)

    def put_back(self, given: Coordinates, decided: Coordinates) -> Coordinates:
        return given

    def widened(self, labels: Coordinates) -> "CoordinateSpace":
        raise two_drawings("coordinates")
