"""Parts: a part class and a person per pixel, carried as one channel per pair."""

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
from timecycle.labels.masks import Masks, pool_ids
from timecycle.labels.soft import Extent, SoftMap, upsample_argmax
from timecycle.labels.space import Labels, Presence, listed, nearest

_PEOPLE = 1000  # file value = part * 1000 + person, the convention of Cityscapes' instance images


@dataclass(frozen=True, eq=False)
class Parts(Labels):
    """Part class and person of every pixel; (0, 0) is the background."""

    part: UInt16[np.ndarray, "height width"]
    person: UInt16[np.ndarray, "height width"]
    complete: bool = False
    path: Path | None = field(default=None, repr=False, compare=False)  # the file they were read from, to name it
    kind: ClassVar[str] = "parts"
    suffix: ClassVar[str] = ".png"

    @property
    def pairs(self) -> Int[np.ndarray, "height width"]:
        """Part and person in one number, as the file holds it."""
        return self.part.astype(np.int64) * _PEOPLE + self.person.astype(np.int64)

    @classmethod
    def read(cls, path: str | Path) -> "Parts":
        """Parts from a 16-bit PNG whose values are part * 1000 + person."""
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

    @staticmethod
    def part_of(pair: int) -> int:
        """The part of a value of the file."""
        return pair // _PEOPLE

    def __repr__(self) -> str:
        height, width = self.part.shape
        pairs = [str(pair) for pair in np.unique(self.pairs) if pair]
        return f"Parts({width}x{height}, parts {listed(pairs)}{', complete' if self.complete else ''})"

    def size(self) -> tuple[int, int]:
        height, width = self.part.shape
        return height, width

    def is_empty(self) -> bool:
        return not self.pairs.any()

    def resized(self, height_px: int, width_px: int) -> "Parts":
        part, person = (nearest(array, height_px, width_px) for array in (self.part, self.person))
        return replace(self, part=part, person=person)

    @classmethod
    def space(cls, labelled: Sequence["Parts"]) -> "PartSpace":
        present = {int(i) for labels in labelled for i in np.unique(labels.pairs)}
        return PartSpace((0, *sorted(present - {0})))


@dataclass(frozen=True)
class PartSpace:
    """Channel c is the pair pairs[c] = part * 1000 + person; pairs[0] is the background."""

    pairs: tuple[int, ...]
    exclusive: ClassVar[bool] = True
    stretchable: ClassVar[bool] = True

    @property
    def channels(self) -> int:
        return len(self.pairs)

    def speaks(self, labels: Parts) -> Bool[Tensor, " channels"]:
        # One drawn part speaks for the whole person: their other parts are then known to be hidden.
        people = set(np.unique(labels.person[labels.pairs > 0]).tolist())
        return torch.tensor([labels.complete or pair == 0 or pair % _PEOPLE in people for pair in self.pairs])

    def to_soft(self, labels: Parts, grid: Grid) -> SoftMap:
        return pool_ids(labels.pairs, self.pairs, grid)

    def from_soft(self, soft: SoftMap, grid: Grid) -> Parts:
        part, person = np.divmod(np.array(self.pairs)[upsample_argmax(soft, grid).numpy()], _PEOPLE)
        return Parts(part.astype(np.uint16), person.astype(np.uint16))

    @property
    def objects(self) -> tuple[str, ...]:
        return tuple(str(pair) for pair in self.pairs[1:])

    def extent(self, soft: SoftMap) -> Extent:
        return soft[..., 1:]

    def presence(self, labels: Parts) -> tuple[Presence | None, ...]:
        pairs = set(np.unique(labels.pairs).tolist())
        people = {pair % _PEOPLE for pair in pairs - {0}}

        def of(pair: int) -> Presence | None:
            if pair in pairs:
                return "visible"
            if pair % _PEOPLE in people:  # the person is in view, this part of them is not
                return "occluded"
            return "absent" if labels.complete else None

        return tuple(of(pair) for pair in self.pairs[1:])

    def put_back(self, given: Parts, decided: Parts) -> Parts:
        if given.complete:
            return given
        silent = ~np.isin(decided.person, np.unique(given.person[given.pairs > 0]))
        keep = (given.pairs == 0) & silent
        return Parts(np.where(keep, decided.part, given.part), np.where(keep, decided.person, given.person))

    def widened(self, labels: Parts) -> "PartSpace":
        new = set(np.unique(labels.pairs).tolist()) - set(self.pairs)
        return PartSpace((*self.pairs, *sorted(new)))
