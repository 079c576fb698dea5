"""Instance masks: an object id per pixel, 0 for the background. Ids up to 65535 are kept exactly."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped, UInt16
from torch import Tensor

from timecycle.errors import LabelError
from timecycle.files import atomic_write
from timecycle.grid import Grid
from timecycle.labels.drawing import RGB, Picture, colour_in_words, colour_of, colours_in_words, outline_region, tint
from timecycle.labels.file import note
from timecycle.labels.label_map import Decide, Extent, LabelValues, pool, upsample_argmax
from timecycle.labels.mask_file import MaskFile, ids_png, note_colours, read_mask_files
from timecycle.labels.space import Ids, Labels, Objects, Presence, counted, nearest

UInt16Pixels = UInt16[np.ndarray, "height width"]

_CHANNELS_AT_ONCE = 16  # one-hot planes of a 480p image held together: 26 MB


class IdLabels(Labels):
    """Labels with the id of an object at every pixel, 0 for the background: masks and parts."""

    exhaustive: bool
    numbered: ClassVar[bool] = True

    @property
    @abstractmethod
    def object_ids(self) -> Ids:
        """The id of the object at every pixel."""

    def size(self) -> tuple[int, int]:
        height, width = self.object_ids.shape
        return height, width

    def is_empty(self) -> bool:
        return not self.object_ids.any()

    def annotated_objects(self) -> Objects:
        return None if self.exhaustive else frozenset(self.space([self]).objects)

    def as_exhaustive(self) -> Self:
        return dataclasses.replace(self, exhaustive=True)  # type: ignore[type-var]

    @abstractmethod
    def _each(self, change: Callable[[UInt16Pixels], UInt16Pixels]) -> Self:
        """Return the labels with every array of ids changed."""

    def resized(self, height_px: int, width_px: int) -> Self:
        return self._each(lambda ids: nearest(ids, height_px, width_px))

    def resampled(self, rows: Ids, columns: Ids) -> Self:
        return self._each(lambda ids: ids[rows, columns])

    def _restricted_to(self, objects: frozenset[str]) -> Self:
        kept = np.isin(self.object_ids, [int(name) for name in objects])
        return self._each(lambda ids: np.where(kept, ids, 0).astype(np.uint16))

    def accuracy(self, name: str, ground_truth: Self, *, tolerance_px: float) -> float | None:
        one, other = (labels.object_ids == int(name) for labels in (self, ground_truth))
        union = (one | other).sum()
        return float((one & other).sum() / union) if union else None

    def outline(self, image: Picture, name: str) -> Picture:
        return outline_region(image, self.object_ids == int(name))

    def legend(self) -> dict[str, RGB]:
        return {str(i): self.object_colour(str(i)) for i in np.unique(self.object_ids).tolist() if i}


@dataclass(frozen=True, eq=False)
class Masks(IdLabels):
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

    def write_grey(self, path: str | Path) -> None:
        self.write(path, grey=True)

    @classmethod
    def in_colours(cls, path: Path) -> bytes:
        ids = cls.read(path).ids
        return path.read_bytes() if ids.max(initial=0) > 255 else ids_png(ids)

    def __repr__(self) -> str:
        height, width = self.ids.shape
        objects = [str(i) for i in np.unique(self.ids) if i]
        exhaustive = "; exhaustive" if self.exhaustive else ""
        return f"Masks({counted(objects, 'object')}; {width}x{height} px{exhaustive})"

    @property
    def object_ids(self) -> Ids:
        return self.ids.astype(np.int64)

    def _each(self, change: Callable[[UInt16Pixels], UInt16Pixels]) -> "Masks":
        return dataclasses.replace(self, ids=change(self.ids))

    def is_same(self, other: "Masks") -> bool:
        return np.array_equal(self.ids, other.ids)

    def own_colours(self) -> Mapping[int, int]:
        return self.colours if self.coloured else {}

    def with_run_ids(
        self, objects: Sequence[str], colours: Mapping[int, int], *, object_id: int | None, name: str
    ) -> "Masks":
        """Find out which objects of the run a corrected mask shows, without guessing.

        A mask of one object shows the object `object_id` where that is given, which may be new. In a run of one object
        it shows that object, whatever values and colours it was saved with. Colours stand for the objects that were
        annotated in them or that label files show in them. Other colours and ids are refused with a question.
        """
        run_ids = [int(one) for one in objects]
        values = [int(value) for value in np.unique(self.ids[self.ids > 0])]
        in_own_colours = self.coloured or not colours.keys().isdisjoint(self.colours)
        # A mask with one of the run's ids uses those; its other ids are new objects.
        in_run_ids = not in_own_colours and any(value in run_ids for value in values)
        if object_id is None and (not values or in_run_ids):
            return self
        if object_id is not None:
            _check_object_id(name, values, object_id)
            if object_id not in run_ids:
                note(f"object {object_id} of {name} is new: the run has {', '.join(objects)}")
            return self._renumbered({values[0]: object_id})
        shown = {identity: colour_of(identity) for identity in run_ids if identity < 256}
        codes = {(red << 16) | (green << 8) | blue: identity for identity, (red, green, blue) in shown.items()}
        known = codes | dict(colours)
        if self.colours and known.keys() >= self.colours.keys():
            return self._renumbered({value: known[code] for code, value in self.colours.items()})
        if len(run_ids) == 1 and (len(values) == 1 or self.colours):
            note(f"{name} is read as object {run_ids[0]}, the only one of the run; to add an object, give --object ID")
            return self._renumbered(dict.fromkeys(values, run_ids[0]))
        raise _unclear_ids(name, self, values, run_ids, known)

    def _renumbered(self, table: Mapping[int, int]) -> "Masks":
        ids = np.zeros_like(self.ids)
        for value, identity in table.items():
            ids[self.ids == value] = identity
        return dataclasses.replace(self, ids=ids, coloured=False, colours={})

    def overlay(self, image: Picture) -> Picture:
        return tint(image, self.ids, outline=self.ids)

    @classmethod
    def object_colour(cls, name: str, index: int = 0) -> RGB:
        return colour_of(int(name))

    @classmethod
    def display_name(cls, name: str, names: Mapping[str, str]) -> str:
        return names.get(name, f"object {name}")

    @classmethod
    def space(cls, annotations: Sequence["Masks"]) -> "MaskSpace":
        return MaskSpace.of(annotations)


@dataclass(frozen=True)
class IdSpace:
    """Channel c is the object ids[c]; ids[0] is the background."""

    ids: tuple[int, ...]
    exclusive: ClassVar[bool] = True
    stretchable: ClassVar[bool] = True
    divisible: ClassVar[bool] = True

    @classmethod
    def of(cls, annotations: Sequence[IdLabels]) -> Self:
        present = {int(i) for labels in annotations for i in np.unique(labels.object_ids)}
        return cls((0, *sorted(present - {0})))

    @property
    def channels(self) -> int:
        return len(self.ids)

    def encode(self, labels: IdLabels, grid: Grid) -> LabelValues:
        return pool_ids(labels.object_ids, self.ids, grid)

    @property
    def objects(self) -> tuple[str, ...]:
        return tuple(str(i) for i in self.ids[1:])

    def extent(self, values: LabelValues) -> Extent:
        return values[..., 1:]

    def extended(self, labels: IdLabels) -> Self:
        new = set(np.unique(labels.object_ids).tolist()) - set(self.ids)
        return type(self)((*self.ids, *sorted(new)))


class MaskSpace(IdSpace):
    """The channels of masks."""

    def annotated_channels(self, labels: Masks) -> Bool[Tensor, " channels"]:
        annotated = set(np.unique(labels.ids).tolist()) | {0}
        return torch.tensor([labels.exhaustive or i in annotated for i in self.ids])

    def decode(self, values: LabelValues, grid: Grid, decide: Decide = upsample_argmax) -> Masks:
        table = np.array(self.ids, np.uint16)
        return Masks(table[decide(values, grid).numpy()], sixteen_bit=self._sixteen_bit)

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


def _check_object_id(name: str, values: Collection[int], object_id: int) -> None:
    if not 1 <= object_id <= 65535:
        raise LabelError(f"{object_id} cannot be an object id", remedy="number objects between 1 and 65535")
    if not values:
        raise LabelError(
            f"{name} is empty, which says that every object is absent, not object {object_id} alone",
            remedy="leave out --object; or, for one object, give a mask of all the others with --exhaustive",
        )
    if len(values) > 1:
        raise LabelError(
            f"{name} shows more than one object, but --object {object_id} names one",
            remedy="annotate that object alone, or leave out --object and use the ids or colours of the run",
        )


def _unclear_ids(
    name: str, masks: Masks, values: Sequence[int], run_ids: Sequence[int], colours: Mapping[int, int]
) -> LabelError:
    unknown = sorted(masks.colours.keys() - colours.keys())
    if unknown:
        return LabelError(
            f"{name} has the colour {colour_in_words(unknown[0])}, which is none of the run's objects: "
            f"{colours_in_words(colours)}",
            remedy=f"paint in the run's colours{_ON_A_COPY}"
            + (f"; or name the object with --object {min(run_ids)}" if len(masks.colours) == 1 else ""),
        )
    objects = ", ".join(map(str, run_ids))
    if len(values) > 1:
        return LabelError(
            f"{name} shows objects as the values {', '.join(map(str, values))}, none of which is an object of the run: "
            f"{objects}",
            remedy=f"use the run's values{_ON_A_COPY}",
        )
    shown = "in black" if masks.coloured else f"as the value {values[0]}"
    return LabelError(
        f"{name} shows an object {shown}, but the run's objects are {objects}",
        remedy=f"name the object with --object {min(run_ids)}, or a new id to add an object (object_id= in Python)",
    )


# Never in labels/ itself: the propagated labels there would be lost, and no correction could be undone.
_ON_A_COPY = ", on a copy of the frame's label file (`timecycle check` writes copies of the frames to fix to review/)"


def pool_ids(ids: Int[np.ndarray, "height width"], order: Sequence[int], grid: Grid) -> LabelValues:
    """Return the exact share of every cell's area that each id of `order` covers."""
    pixels = torch.from_numpy(ids)
    chunks = [
        pool((pixels == torch.tensor(order[i : i + _CHANNELS_AT_ONCE])[:, None, None]).float(), grid)
        for i in range(0, len(order), _CHANNELS_AT_ONCE)
    ]
    return torch.cat(chunks, dim=-1)
