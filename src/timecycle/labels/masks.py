"""Instance masks: an object id per pixel, 0 for the background. Ids are kept exactly, up to 65535."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped, UInt8, UInt16
from PIL import Image
from torch import Tensor

from timecycle.errors import LabelError
from timecycle.files import atomic_write
from timecycle.grid import Grid
from timecycle.labels.image import open_image
from timecycle.labels.palette import palette
from timecycle.labels.soft import Extent, SoftMap, pool, upsample_argmax
from timecycle.labels.space import Labels

_CHANNELS_AT_ONCE = 16  # one-hot planes of a 480p image held together: 26 MB


@dataclass(frozen=True, eq=False)
class Masks(Labels):
    """Object ids of one frame.

    A frame speaks only for the objects drawn on it: the others are carried through it. With `complete` it speaks
    for all of them, so an object that is not drawn is not there.
    """

    ids: UInt16[np.ndarray, "height width"]
    complete: bool = False
    deep: bool = False  # write 16 bits even where all ids of this frame fit in 8: one run, one kind of file
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
    def read(cls, path: Path, *, colours: Sequence[int] = ()) -> "Masks":
        """Masks from an image: palette and grey values are the ids; colours become ids by `colours_in`'s rule."""
        return cls(_read_ids(Path(path), colours))

    def write(self, path: Path) -> None:
        """A palette PNG, or a 16-bit grey PNG where an id is above 255."""
        if self.deep or self.ids.max(initial=0) > 255:
            image = Image.fromarray(self.ids)
        else:
            image = Image.fromarray(self.ids.astype(np.uint8))
            image.putpalette(palette().tobytes())
        with atomic_write(path) as file:
            # Level 1 compresses these flat images nearly as well as the default, several times faster.
            image.save(file, format="PNG", compress_level=1)

    def size(self) -> tuple[int, int]:
        height, width = self.ids.shape
        return height, width

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

    def shows(self, labels: Masks) -> Bool[Tensor, " objects"]:
        return self.speaks(labels)[1:]

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


def colours_in(paths: Iterable[Path]) -> tuple[int, ...]:
    """The colours (0xRRGGBB) of RGB masks that are not in the palette, in a fixed order.

    They are numbered 1, 2, ... in this order. Files read together must be numbered together, or the same colour
    would mean one object in one file and another in the next.
    """
    found: set[int] = set()
    numbered: Path | None = None
    for path in paths:
        with open_image(Path(path)) as image:
            if image.mode in _COLOUR_MODES:
                found |= {int(code) for code in np.unique(_codes(_rgba(image)))}
            else:
                numbered = Path(path)
    if found <= set(_palette_ids()):
        return ()
    if numbered is not None:
        raise LabelError(
            f"{numbered} numbers its objects but other masks show them as colours of their own",
            remedy="save all masks the same way: palette PNGs, or RGB with one colour per object",
        )
    return tuple(sorted(found - {0}))


_COLOUR_MODES = ("RGB", "RGBA", "PA", "CMYK", "YCbCr", "LAB", "HSV")


def _read_ids(path: Path, colours: Sequence[int]) -> UInt16[np.ndarray, "height width"]:
    with open_image(path) as image:
        if image.format in ("JPEG", "MPO"):
            raise LabelError(
                f"{path} is a JPEG, whose compression invents values around every outline",
                remedy="save the mask as a PNG",
            )
        if image.mode in ("P", "1"):
            return np.array(image).astype(np.uint16)
        if image.mode in ("L", "LA"):
            grey = np.array(image).reshape(image.height, image.width, -1)
            _refuse_soft_edges(path, grey)
            return np.where(grey[..., -1] == 0, 0, grey[..., 0]).astype(np.uint16)
        if image.mode.startswith("I"):
            return _whole_ids(path, np.array(image).astype(np.int64))
        if image.mode in _COLOUR_MODES:
            rgba = _rgba(image)
            _refuse_soft_edges(path, rgba)
            codes = _codes(rgba)
            table = _palette_ids()
            if colours or not {int(code) for code in np.unique(codes)} <= set(table):
                table = {0: 0} | {code: 1 + i for i, code in enumerate(colours or colours_in([path]))}
            values, inverse = np.unique(codes, return_inverse=True)
            strange = [int(v) for v in values if int(v) not in table]
            if strange:
                raise LabelError(
                    f"{path} has the colour #{strange[0]:06x}, which stands for no object",
                    remedy="read masks that belong together with colours=colours_in(all of them)",
                )
            return np.array([table[int(v)] for v in values], np.uint16)[inverse.reshape(codes.shape)]
        raise LabelError(
            f"{path} is an image of mode {image.mode}, whose values are not object ids",
            remedy="save the mask as a palette, grey or RGB PNG",
        )


def _rgba(image: Image.Image) -> UInt8[np.ndarray, "height width 4"]:
    """Colour and alpha; a transparent pixel has no colour, whatever the file holds there."""
    rgba = np.array(image.convert("RGBA"))
    rgba[rgba[..., 3] == 0] = 0
    return rgba


def _codes(rgba: UInt8[np.ndarray, "height width 4"]) -> Int[np.ndarray, "height width"]:
    """Colours as 0xRRGGBB."""
    red, green, blue = (rgba[..., channel].astype(np.int64) for channel in range(3))
    return (red << 16) | (green << 8) | blue


def _palette_ids() -> dict[int, int]:
    return {(int(r) << 16) | (int(g) << 8) | int(b): i for i, (r, g, b) in enumerate(palette())}


def _whole_ids(path: Path, values: Int[np.ndarray, "height width"]) -> UInt16[np.ndarray, "height width"]:
    try:
        return Masks.of(values).ids
    except LabelError as error:
        raise LabelError(f"{path}: {error.problem}", remedy=error.remedy) from error


def _refuse_soft_edges(path: Path, values: UInt8[np.ndarray, "height width channels"]) -> None:
    """Anti-aliasing invents values along edges: read as ids they would be objects of their own.

    A hard edge goes from one value to the next at once. A soft one passes through values in between, each a pixel
    wide and between those on its two sides in every channel. Hard masks have such pixels too, where one object is
    squeezed between two others, but they are few (below 5 % of all steps for a thousand objects on a small image,
    above 10 % for anti-aliased outlines), or of one value (an outline with an id of its own). A thin object on a
    plain ground is not between its two sides.
    """
    steps = passes = 0
    passing = np.zeros(values.shape[:2], bool)
    for axis in (0, 1):
        # Views with the axis first: what is marked in `found` is marked in `passing`.
        found = np.moveaxis(passing, axis, 0)
        step = np.sign(np.diff(np.moveaxis(values, axis, 0).astype(np.int16), axis=0))
        moves = np.asarray((step != 0).any(axis=-1))
        between = moves[:-1] & moves[1:] & (step[:-1] * step[1:] >= 0).all(axis=-1)
        found[1:-1] |= between
        steps += int(moves.sum())
        passes += int(between.sum())
    if passes <= 0.08 * steps:
        return
    invented = len(np.unique(values[passing], axis=0))
    count = len(np.unique(values.reshape(-1, values.shape[-1]), axis=0))
    if invented >= (3 if count - invented > 2 else 2):
        raise LabelError(
            f"{path} has soft edges: {invented} of its {count} values lie between those on both sides of an outline",
            remedy="draw with a hard brush (anti-aliasing off) and resize with nearest neighbour; "
            "if every value is an object, save a palette PNG",
        )
