"""Instance masks: an object id per pixel, 0 for the background. Ids up to 65535 are kept exactly."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped, UInt16
from torch import Tensor

from timecycle.errors import LabelError
from timecycle.files import atomic_write
from timecycle.grid import Grid
from timecycle.labels.drawing import Picture, outline_region, tint
from timecycle.labels.label_map import Extent, LabelValues, pool, upsample_argmax
from timecycle.labels.mask_file import MaskFile, ids_png, note_colours, read_mask_files
from timecycle.labels.palette import RGB, colour_of
from timecycle.labels.space import Labels, Objects, Presence, listed, nearest

_CHANNELS_AT_ONCE = 16  # one-hot planes of a 480p image held together: 26 MB


@dataclass(frozen=True, eq=False)
class Masks(Labels):
    """Object ids of one frame.

    An annotated frame constrains only the objects annotated on it; other objects keep being propagated. An
    `exhaustive` one constrains all objects: those that are not on it are absent. A mask without any object means that
    all objects are absent.
    """

    ids: UInt16[np.ndarray, "height width"]
    exhaustive: bool = False
    sixteen_bit: bool = False  # write 16 bits even if all ids of this frame fit in 8: one kind of file per run
    path: Path | None = field(default=None, repr=False, compare=False)  # the file they were read from, for messages
    coloured: bool = field(default=False, repr=False, compare=False)  # ids only number colours (see `MaskFile`)
    colours: Mapping[int, int] = field(default_factory=dict, repr=False, compare=False)  # ids by colour (0xRRGGBB)
    kind: ClassVar[str] = "masks"
    suffix: ClassVar[str] = ".png"
    empty_remedy: ClassVar[str] = (
        "draw the object in white or in a colour, or give its pixels any id above 0; black is background"
    )

    def __post_init__(self) -> None:
        if self.ids.dtype != np.uint16 or self.ids.ndim != 2:
            raise LabelError(
                f"a mask is an array of {self.ids.dtype} with {self.ids.ndim} dimensions",
                remedy="make masks of any array (height, width) of ids with Masks.of(array)",
            )

    @classmethod
    def of(cls, array: Shaped[np.ndarray, "height width"], *, exhaustive: bool = False) -> "Masks":
        """Make masks from any integer or boolean array."""
        if array.dtype != bool and not np.issubdtype(array.dtype, np.integer):
            raise LabelError(
                f"a mask has values of type {array.dtype}",
                remedy="give object ids as whole numbers: threshold probabilities first",
            )
        if array.size and (array.min() < 0 or array.max() > 65535):
            raise LabelError(
                f"a mask has ids from {array.min()} to {array.max()}",
                remedy="number the objects between 1 and 65535, the background 0",
            )
        return cls(np.ascontiguousarray(array, dtype=np.uint16), exhaustive)

    @classmethod
    def of_box(cls, height_px: int, width_px: int, box: tuple[float, float, float, float]) -> "Masks":
        """Make object 1 fill the box (x0, y0, x1, y1), edges included."""
        x0, y0, x1, y1 = box
        x, y = np.meshgrid(np.arange(width_px), np.arange(height_px))
        inside = (x >= x0) & (x <= x1) & (y >= y0) & (y <= y1)
        if not inside.any():
            raise LabelError(
                f"the box {x0:g},{y0:g},{x1:g},{y1:g} holds no pixel of the {width_px}x{height_px} frame",
                remedy="give it as x0,y0,x1,y1 in pixels, left top before right bottom",
            )
        return cls.of(inside)

    @classmethod
    def read(cls, path: str | Path, *, colours: Sequence[int] = ()) -> "Masks":
        """Read masks from an image: palette and grey values are ids, colours are numbered as in `colours_in`."""
        (file,) = read_mask_files([path], colours=colours)
        if not colours and len(file.colours) > 1:
            note_colours([file])
        return cls.of_file(file)

    @classmethod
    def of_file(cls, file: MaskFile) -> "Masks":
        """Make masks that keep the path and the colours of their file."""
        return cls(file.ids, path=file.path, coloured=file.coloured, colours=file.colours)

    def write(self, path: str | Path, *, grey: bool = False) -> None:
        """Write a palette PNG or, with `grey`, a grey PNG; always 16-bit grey if an id is above 255."""
        sixteen_bit = self.sixteen_bit or bool(self.ids.max(initial=0) > 255)
        with atomic_write(path) as file:
            file.write(ids_png(self.ids, sixteen_bit=sixteen_bit, grey=grey))

    def __repr__(self) -> str:
        height, width = self.ids.shape
        objects = [str(i) for i in np.unique(self.ids) if i]
        return f"Masks({width}x{height}, objects {listed(objects)}{', exhaustive' if self.exhaustive else ''})"

    def size(self) -> tuple[int, int]:
        height, width = self.ids.shape
        return height, width

    def is_empty(self) -> bool:
        return not self.ids.any()

    def resized(self, height_px: int, width_px: int) -> "Masks":
        return dataclasses.replace(self, ids=nearest(self.ids, height_px, width_px))

    def annotated_objects(self) -> Objects:
        return None if self.exhaustive else frozenset(self.space([self]).objects)

    def _restricted_to(self, objects: frozenset[str]) -> "Masks":
        kept = np.isin(self.ids, [int(name) for name in objects])
        return dataclasses.replace(self, ids=np.where(kept, self.ids, 0).astype(np.uint16))

    def as_exhaustive(self) -> "Masks":
        return dataclasses.replace(self, exhaustive=True)

    def overlay(self, image: Picture) -> Picture:
        return tint(image, self.ids, outline=self.ids)

    def outline(self, image: Picture, name: str) -> Picture:
        return outline_region(image, self.ids == int(name))

    def legend(self) -> dict[str, RGB]:
        return {str(i): colour_of(i) for i in np.unique(self.ids).tolist() if i}

    @classmethod
    def object_colour(cls, name: str, index: int = 0) -> RGB:
        return colour_of(int(name))

    @classmethod
    def space(cls, annotations: Sequence["Masks"]) -> "MaskSpace":
        present = {int(i) for masks in annotations for i in np.unique(masks.ids)}
        return MaskSpace((0, *sorted(present - {0})))


@dataclass(frozen=True)
class MaskSpace:
    """Channel c is the object ids[c]; ids[0] is the background."""

    ids: tuple[int, ...]
    exclusive: ClassVar[bool] = True
    stretchable: ClassVar[bool] = True
    divisible: ClassVar[bool] = True

    @property
    def channels(self) -> int:
        return len(self.ids)

    def annotated_channels(self, labels: Masks) -> Bool[Tensor, " channels"]:
        annotated = set(np.unique(labels.ids).tolist()) | {0}
        return torch.tensor([labels.exhaustive or i in annotated for i in self.ids])

    def encode(self, labels: Masks, grid: Grid) -> LabelValues:
        return pool_ids(labels.ids.astype(np.int64), self.ids, grid)

    def decode(self, values: LabelValues, grid: Grid) -> Masks:
        table = np.array(self.ids, np.uint16)
        return Masks(table[upsample_argmax(values, grid).numpy()], sixteen_bit=self._sixteen_bit)

    @property
    def objects(self) -> tuple[str, ...]:
        return tuple(str(i) for i in self.ids[1:])

    def extent(self, values: LabelValues) -> Extent:
        return values[..., 1:]

    def presence(self, labels: Masks) -> tuple[Presence | None, ...]:
        visible = set(np.unique(labels.ids).tolist())
        return tuple("visible" if i in visible else "absent" if labels.exhaustive else None for i in self.ids[1:])

    def restore_annotated(self, annotation: Masks, decoded: Masks) -> Masks:
        ids = annotation.ids
        if not annotation.exhaustive:
            other = np.where(np.isin(decoded.ids, np.unique(ids)), 0, decoded.ids)
            ids = np.where(ids > 0, ids, other).astype(np.uint16)
        return Masks(ids, sixteen_bit=self._sixteen_bit)

    @property
    def _sixteen_bit(self) -> bool:
        return max(self.ids) > 255

    def extended(self, labels: Masks) -> "MaskSpace":
        new = set(np.unique(labels.ids).tolist()) - set(self.ids)
        return MaskSpace((*self.ids, *sorted(new)))


def pool_ids(ids: Int[np.ndarray, "height width"], order: Sequence[int], grid: Grid) -> LabelValues:
    """Return the exact share of every cell's area that each id of `order` covers."""
    pixels = torch.from_numpy(ids)
    chunks = [
        pool((pixels == torch.tensor(order[i : i + _CHANNELS_AT_ONCE])[:, None, None]).float(), grid)
        for i in range(0, len(order), _CHANNELS_AT_ONCE)
    ]
    return torch.cat(chunks, dim=-1)
