"""Coordinates: the position of every pixel on the annotated frame. Propagated, they are long-range optical flow."""

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
from timecycle.labels.drawing import Picture, mix
from timecycle.labels.file import check_label_file
from timecycle.labels.label_map import Decide, Extent, LabelValues, pool, upsample, upsample_argmax
from timecycle.labels.space import Labels, Presence, second_annotation
from timecycle.video.frame import DEFAULT_MAX_PIXELS

_LATTICE_PX = 32  # spacing of the lattice in overlays


@dataclass(frozen=True, eq=False)
class Coordinates(Labels):
    """For every pixel, the (x, y) on the annotated frame of the surface point it shows."""

    xy: Float32[np.ndarray, "height width 2"]
    kind: ClassVar[str] = "coordinates"
    suffix: ClassVar[str] = ".npy"
    correctable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.xy.dtype != np.float32 or self.xy.ndim != 3 or self.xy.shape[2] != 2:
            raise LabelError(
                f"coordinates are an array of {self.xy.dtype} with the shape {self.xy.shape}",
                remedy="give x and y of every pixel as float32 (height, width, 2): Coordinates.of_image(height, width)",
            )

    @classmethod
    def of_image(cls, height_px: int, width_px: int) -> "Coordinates":
        """Return the coordinates of the annotated frame: every pixel has its own position."""
        x, y = np.meshgrid(np.arange(width_px, dtype=np.float32), np.arange(height_px, dtype=np.float32))
        return cls(np.stack([x, y], axis=-1))

    @classmethod
    def read(cls, path: str | Path) -> "Coordinates":
        check_label_file(Path(path))
        try:
            # Memory-mapped, so that a forged header cannot allocate more memory than the file has.
            stored = np.load(path, allow_pickle=False, mmap_mode="r")
            if not isinstance(stored, np.ndarray) or stored.dtype.kind not in "fiu":
                raise ValueError("it is not one array of numbers")
            if stored.ndim != 3 or stored.shape[2] != 2 or stored.size > 2 * DEFAULT_MAX_PIXELS:
                raise ValueError(f"its shape is {stored.shape}")
            with np.errstate(over="ignore"):
                array = np.array(stored, np.float32, order="C")
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
        return f"Coordinates({width}x{height} px)"

    def size(self) -> tuple[int, int]:
        height, width, _ = self.xy.shape
        return height, width

    def overlay(self, image: Picture) -> Picture:
        """Colour every pixel by its position on the annotated frame, and draw a lattice that shows the deformation."""
        height, width, _ = image.shape
        position = self.xy / np.array([width, height], np.float32)
        hue = np.stack([position[..., 0], position[..., 1], 1 - position[..., 0]], axis=-1).clip(0, 1) * 255
        tinted = mix(image, hue.astype(np.uint8), np.float32(0.4))
        line = (np.abs((self.xy + _LATTICE_PX / 2) % _LATTICE_PX - _LATTICE_PX / 2) < 1).any(axis=-1)
        tinted[line] = 255
        return tinted

    @classmethod
    def space(cls, annotations: Sequence["Coordinates"]) -> "CoordinateSpace":
        if len(annotations) > 1:
            raise second_annotation("coordinates")
        return CoordinateSpace()


@dataclass(frozen=True)
class CoordinateSpace:
    """Channel 0 is x and channel 1 is y, both in pixels of the annotated frame."""

    channels: ClassVar[int] = 2
    exclusive: ClassVar[bool] = False
    stretchable: ClassVar[bool] = False
    divisible: ClassVar[bool] = False

    def annotated_channels(self, labels: Coordinates) -> Bool[Tensor, " channels"]:
        return torch.ones(self.channels, dtype=torch.bool)

    def encode(self, labels: Coordinates, grid: Grid) -> LabelValues:
        height, width = labels.size()
        own = Coordinates.of_image(height, width).xy
        displacement = torch.from_numpy(labels.xy - own).permute(2, 0, 1).contiguous()
        return pool(displacement, grid) + grid.centres()

    def decode(self, values: LabelValues, grid: Grid, decide: Decide = upsample_argmax) -> Coordinates:
        # The displacement is interpolated, not the position: beyond the centres of the outer cells interpolation is
        # constant, which is right for a displacement but not for a position.
        displacement = upsample(values - grid.centres(), grid).permute(1, 2, 0).contiguous().numpy()
        return Coordinates(displacement + Coordinates.of_image(grid.y.pixels, grid.x.pixels).xy)

    @property
    def objects(self) -> tuple[str, ...]:
        return ("frame",)

    def extent(self, values: LabelValues) -> Extent:
        return torch.ones_like(values[..., :1])

    def presence(self, labels: Coordinates) -> tuple[Presence | None, ...]:
        return ("visible",)

    def restore_annotated(self, annotation: Coordinates, decoded: Coordinates) -> Coordinates:
        return annotation

    def extended(self, labels: Coordinates) -> "CoordinateSpace":
        raise second_annotation("coordinates")
