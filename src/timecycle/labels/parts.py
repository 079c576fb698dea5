"""Parts: a part class and a person per pixel; label maps have one channel per pair of both."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt16
from torch import Tensor

from timecycle.errors import LabelError
from timecycle.grid import Grid
from timecycle.labels.drawing import Picture, outline_region, tint
from timecycle.labels.label_map import Extent, LabelValues, upsample_argmax
from timecycle.labels.masks import Masks, pool_ids
from timecycle.labels.palette import RGB, colour_of
from timecycle.labels.space import Labels, Objects, Presence, listed, nearest

_PEOPLE = 1000  # file value = part * 1000 + person, the convention of Cityscapes' instance images


@dataclass(frozen=True, eq=False)
class Parts(Labels):
    """Part class and person of every pixel; (0, 0) is the background. `exhaustive` is as for masks."""

    part: UInt16[np.ndarray, "height width"]
    person: UInt16[np.ndarray, "height width"]
    exhaustive: bool = False
    path: Path | None = field(default=None, repr=False, compare=False)  # the file they were read from, for messages
    kind: ClassVar[str] = "parts"
    suffix: ClassVar[str] = ".png"

    @property
    def pairs(self) -> Int[np.ndarray, "height width"]:
        """Part * 1000 + person, the value in the file."""
        return self.part.astype(np.int64) * _PEOPLE + self.person.astype(np.int64)

    @classmethod
    def read(cls, path: str | Path) -> "Parts":
        """Read parts from a 16-bit PNG whose values are part * 1000 + person."""
        part, person = np.divmod(Masks.read(path).ids, _PEOPLE)
        if ((part == 0) & (person > 0)).any():
            raise LabelError(
                f"{path} has values below {_PEOPLE}, which name no part",
                remedy=f"write part * {_PEOPLE} + person in a 16-bit PNG, or pass --kind masks",
            )
        return cls(part.astype(np.uint16), person.astype(np.uint16), path=Path(path))

    def write(self, path: str | Path) -> None:
        if self.pairs.max(initial=0) > 65535 or self.person.max(initial=0) >= _PEOPLE:
            raise LabelError(
                f"{Path(path).name} cannot hold part {self.part.max()} of person {self.person.max()}",
                remedy="number parts up to 64 and people up to 999",
            )
        Masks.of(self.pairs).write(path)

    def __repr__(self) -> str:
        height, width = self.part.shape
        pairs = [str(pair) for pair in np.unique(self.pairs) if pair]
        return f"Parts({width}x{height}, parts {listed(pairs)}{', exhaustive' if self.exhaustive else ''})"

    def size(self) -> tuple[int, int]:
        height, width = self.part.shape
        return height, width

    def is_empty(self) -> bool:
        return not self.pairs.any()

    def resized(self, height_px: int, width_px: int) -> "Parts":
        part, person = (nearest(array, height_px, width_px) for array in (self.part, self.person))
        return replace(self, part=part, person=person)

    def annotated_objects(self) -> Objects:
        return None if self.exhaustive else frozenset(self.space([self]).objects)

    def _restricted_to(self, objects: frozenset[str]) -> "Parts":
        kept = np.isin(self.pairs, [int(name) for name in objects])
        part, person = (np.where(kept, array, 0).astype(np.uint16) for array in (self.part, self.person))
        return replace(self, part=part, person=person)

    def as_exhaustive(self) -> "Parts":
        return replace(self, exhaustive=True)

    def overlay(self, image: Picture) -> Picture:
        return tint(image, self.part, outline=self.pairs)

    def outline(self, image: Picture, name: str) -> Picture:
        return outline_region(image, self.pairs == int(name))

    def legend(self) -> dict[str, RGB]:
        return {str(pair): self.object_colour(str(pair)) for pair in np.unique(self.pairs).tolist() if pair}

    @classmethod
    def object_colour(cls, name: str, index: int = 0) -> RGB:
        return colour_of(int(name) // _PEOPLE)

    @classmethod
    def space(cls, annotations: Sequence["Parts"]) -> "PartSpace":
        present = {int(pair) for parts in annotations for pair in np.unique(parts.pairs)}
        return PartSpace((0, *sorted(present - {0})))


@dataclass(frozen=True)
class PartSpace:
    """Channel c is the pair pairs[c] = part * 1000 + person; pairs[0] is the background."""

    pairs: tuple[int, ...]
    exclusive: ClassVar[bool] = True
    stretchable: ClassVar[bool] = True
    divisible: ClassVar[bool] = True

    @property
    def channels(self) -> int:
        return len(self.pairs)

    def annotated_channels(self, labels: Parts) -> Bool[Tensor, " channels"]:
        # One annotated part constrains the whole person: their other parts are then known to be hidden.
        people = set(np.unique(labels.person[labels.pairs > 0]).tolist())
        return torch.tensor([labels.exhaustive or pair == 0 or pair % _PEOPLE in people for pair in self.pairs])

    def encode(self, labels: Parts, grid: Grid) -> LabelValues:
        return pool_ids(labels.pairs, self.pairs, grid)

    def decode(self, values: LabelValues, grid: Grid) -> Parts:
        part, person = np.divmod(np.array(self.pairs)[upsample_argmax(values, grid).numpy()], _PEOPLE)
        return Parts(part.astype(np.uint16), person.astype(np.uint16))

    @property
    def objects(self) -> tuple[str, ...]:
        return tuple(str(pair) for pair in self.pairs[1:])

    def extent(self, values: LabelValues) -> Extent:
        return values[..., 1:]

    def presence(self, labels: Parts) -> tuple[Presence | None, ...]:
        pairs = set(np.unique(labels.pairs).tolist())
        people = {pair % _PEOPLE for pair in pairs - {0}}

        def presence_of(pair: int) -> Presence | None:
            if pair in pairs:
                return "visible"
            if pair % _PEOPLE in people:  # the person is in view, but this part is not
                return "occluded"
            return "absent" if labels.exhaustive else None

        return tuple(presence_of(pair) for pair in self.pairs[1:])

    def restore_annotated(self, annotation: Parts, decoded: Parts) -> Parts:
        if annotation.exhaustive:
            return annotation
        is_annotated = np.isin(decoded.person, np.unique(annotation.person[annotation.pairs > 0]))
        keep = (annotation.pairs == 0) & ~is_annotated
        return Parts(np.where(keep, decoded.part, annotation.part), np.where(keep, decoded.person, annotation.person))

    def extended(self, labels: Parts) -> "PartSpace":
        new = set(np.unique(labels.pairs).tolist()) - set(self.pairs)
        return PartSpace((*self.pairs, *sorted(new)))
