"""Parts: a part class and a person per pixel; label maps have one channel per pair of both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, UInt16
from torch import Tensor

from timecycle.errors import LabelError
from timecycle.grid import Grid
from timecycle.labels.drawing import RGB, Picture, colour_of, tint
from timecycle.labels.label_map import Decide, LabelValues, upsample_argmax
from timecycle.labels.masks import IdLabels, IdSpace, Masks, UInt16Pixels
from timecycle.labels.space import Ids, Presence, counted

_PEOPLE = 1000  # file value = part * 1000 + person, the convention of Cityscapes' instance images


@dataclass(frozen=True, eq=False)
class Parts(IdLabels):
    """Part class and person of every pixel; (0, 0) is the background. `exhaustive` is as for masks."""

    part: UInt16[np.ndarray, "height width"]
    person: UInt16[np.ndarray, "height width"]
    exhaustive: bool = False
    path: Path | None = field(default=None, repr=False, compare=False)  # the file they were read from, for messages
    kind: ClassVar[str] = "parts"
    suffix: ClassVar[str] = ".png"

    @property
    def pairs(self) -> Ids:
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
        exhaustive = "; exhaustive" if self.exhaustive else ""
        return f"Parts({counted(pairs, 'part')}; {width}x{height} px{exhaustive})"

    @property
    def object_ids(self) -> Ids:
        return self.pairs

    def instances(self) -> Ids:
        return self.pairs

    def _each(self, change: Callable[[UInt16Pixels], UInt16Pixels]) -> "Parts":
        return replace(self, part=change(self.part), person=change(self.person))

    def overlay(self, image: Picture) -> Picture:
        return tint(image, self.part, outline=self.pairs)

    @classmethod
    def object_colour(cls, name: str, index: int = 0) -> RGB:
        return colour_of(int(name) // _PEOPLE)

    @classmethod
    def display_name(cls, name: str, names: Mapping[str, str]) -> str:
        return names.get(name, f"part {name}")

    @classmethod
    def space(cls, annotations: Sequence["Parts"]) -> "PartSpace":
        return PartSpace.of(annotations)


class PartSpace(IdSpace):
    """The channels of parts, whose ids are pairs: part * 1000 + person."""

    def annotated_channels(self, labels: Parts) -> Bool[Tensor, " channels"]:
        # One annotated part constrains the whole person: their other parts are then known to be hidden.
        people = set(np.unique(labels.person[labels.pairs > 0]).tolist())
        return torch.tensor([labels.exhaustive or pair == 0 or pair % _PEOPLE in people for pair in self.ids])

    def decode(self, values: LabelValues, grid: Grid, decide: Decide = upsample_argmax) -> Parts:
        part, person = np.divmod(np.array(self.ids)[decide(values, grid).numpy()], _PEOPLE)
        return Parts(part.astype(np.uint16), person.astype(np.uint16))

    def presence(self, labels: Parts) -> tuple[Presence | None, ...]:
        pairs = set(np.unique(labels.pairs).tolist())
        people = {pair % _PEOPLE for pair in pairs - {0}}

        def presence_of(pair: int) -> Presence | None:
            if pair in pairs:
                return "visible"
            if pair % _PEOPLE in people:  # the person is in view, but this part is not
                return "occluded"
            return "absent" if labels.exhaustive else None

        return tuple(presence_of(pair) for pair in self.ids[1:])

    def restore_annotated(self, annotation: Parts, decoded: Parts) -> Parts:
        if annotation.exhaustive:
            return annotation
        is_annotated = np.isin(decoded.person, np.unique(annotation.person[annotation.pairs > 0]))
        keep = (annotation.pairs == 0) & ~is_annotated
        return Parts(np.where(keep, decoded.part, annotation.part), np.where(keep, decoded.person, annotation.person))
