"""Instance masks: an object id per pixel, 0 for the background. Ids are kept exactly, up to 65535."""

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
from timecycle.grid import Grid
from timecycle.labels.mask_file import MaskFile, note_numbers, read_mask_files, write_ids
from timecycle.labels.soft import Extent, SoftMap, pool, upsample_argmax
from timecycle.labels.space import Labels, Presence, listed, nearest

_CHANNELS_AT_ONCE = 16  # one-hot planes of a 480p image held together: 26 MB


@dataclass(frozen=True, eq=False)
class Masks(Labels):
    """Object ids of one frame.

    An annotated frame constrains only the objects on it; other objects keep being propagated. With `complete` it
    constrains all of them, so an object that is not on it is absent. So is every object where nothing is annotated.
    """

    ids: UInt16[np.ndarray, "height width"]
    complete: bool = False
    deep: bool = False  # write 16 bits even where all ids of this frame fit in 8: one run, one kind of file
    path: Path | None = field(default=None, repr=False, compare=False)  # the file they were read from, to name it
    coloured: bool = field(default=False, repr=False, compare=False)  # ids only number colours (see mask_file.py)
    colours: Mapping[int, int] = field(default_factory=dict, repr=False, compare=False)  # (0xRRGGBB) that became ids
    kind: ClassVar[str] = "masks"
    suffix: ClassVar[str] = ".png"

    def __post_init__(self) -> None:
        if self.ids.dtype != np.uint16 or self.ids.ndim != 2:
            raise LabelError(
                f"a mask is an array of {self.ids.dtype} with {self.ids.ndim} dimensions",
                remedy="make masks of any array (height, width) of ids with Masks.of(array)",
            )

    @classmethod
    def of(cls, array: Shaped[np.ndarray, "height width"], *, complete: bool = False) -> "Masks":
        """Masks from any integer or boolean array."""
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
        return cls(np.ascontiguousarray(array, dtype=np.uint16), complete)

    @classmethod
    def of_box(cls, height_px: int, width_px: int, box: tuple[float, float, float, float]) -> "Masks":
        """Object 1 fills the box (x0, y0, x1, y1), its edges included."""
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
        """Masks from an image: palette and grey values are the ids; colours become ids by `colours_in`'s rule."""
        (file,) = read_mask_files([path], colours=colours)
        if not colours and len(file.colours) > 1:
            note_numbers([file])
        return cls.of_file(file)

    @classmethod
    def of_file(cls, file: MaskFile) -> "Masks":
        """Masks that remember the file they came from."""
        return cls(file.ids, path=file.path, coloured=file.coloured, colours=file.colours)

    def write(self, path: str | Path, *, grey: bool = False) -> None:
        """Write a palette PNG or, with `grey`, a plain grey one; always 16-bit grey where an id is above 255."""
        write_ids(path, self.ids, deep=self.deep or bool(self.ids.max(initial=0) > 255), grey=grey)

    def __repr__(self) -> str:
        height, width = self.ids.shape
        objects = [str(i) for i in np.unique(self.ids) if i]
        return f"Masks({width}x{height}, objects {listed(objects)}{', complete' if self.complete else ''})"

    def size(self) -> tuple[int, int]:
        height, width = self.ids.shape
        return height, width

    def is_empty(self) -> bool:
        return not self.ids.any()

    def resized(self, height_px: int, width_px: int) -> "Masks":
        return dataclasses.replace(self, ids=nearest(self.ids, height_px, width_px))

    @classmethod
    def space(cls, labelled: Sequence["Masks"]) -> "MaskSpace":
        present = {int(i) for labels in labelled for i in np.unique(labels.ids)}
        return MaskSpace((0, *sorted(present - {0})))


@dataclass(frozen=True)
class MaskSpace:
    """Channel c is object ids[c]; ids[0] is the background."""

    ids: tuple[int, ...]
    exclusive: ClassVar[bool] = True
    stretchable: ClassVar[bool] = True

    @property
    def channels(self) -> int:
        return len(self.ids)

    def speaks(self, labels: Masks) -> Bool[Tensor, " channels"]:
        drawn = set(np.unique(labels.ids).tolist()) | {0}
        return torch.tensor([labels.complete or i in drawn for i in self.ids])

    def to_soft(self, labels: Masks, grid: Grid) -> SoftMap:
        return pool_ids(labels.ids.astype(np.int64), self.ids, grid)

    def from_soft(self, soft: SoftMap, grid: Grid) -> Masks:
        table = np.array(self.ids, np.uint16)
        return Masks(table[upsample_argmax(soft, grid).numpy()], deep=self._deep)

    @property
    def objects(self) -> tuple[str, ...]:
        return tuple(str(i) for i in self.ids[1:])

    def extent(self, soft: SoftMap) -> Extent:
        return soft[..., 1:]

    def presence(self, labels: Masks) -> tuple[Presence | None, ...]:
        drawn = set(np.unique(labels.ids).tolist())
        return tuple("visible" if i in drawn else "absent" if labels.complete else None for i in self.ids[1:])

    def put_back(self, given: Masks, decided: Masks) -> Masks:
        silent = np.where(np.isin(decided.ids, np.unique(given.ids)), 0, decided.ids)
        ids = given.ids if given.complete else np.where(given.ids > 0, given.ids, silent).astype(np.uint16)
        return Masks(ids, deep=self._deep)

    @property
    def _deep(self) -> bool:
        return max(self.ids) > 255

    def widened(self, labels: Masks) -> "MaskSpace":
        new = set(np.unique(labels.ids).tolist()) - set(self.ids)
        return MaskSpace((*self.ids, *sorted(new)))


def pool_ids(ids: Int[np.ndarray, "height width"], order: Sequence[int], grid: Grid) -> SoftMap:
    """For every cell, the exact share of its area that each id of `order` covers."""
    pixels = torch.from_numpy(ids)
    parts = [
        pool((pixels == torch.tensor(order[i : i + _CHANNELS_AT_ONCE])[:, None, None]).float(), grid)
        for i in range(0, len(order), _CHANNELS_AT_ONCE)
    ]
    return torch.cat(parts, dim=-1)
