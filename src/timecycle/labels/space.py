"""What every kind of label offers the engine: a file form, and a way to soft maps and back."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from timecycle.errors import LabelError
from timecycle.grid import Grid
from timecycle.labels.soft import Extent, SoftMap

# What an annotation says of an object: it is in view, something hides it, or it is not in the frame at all.
Presence = Literal["visible", "occluded", "absent"]


class Labels(ABC):
    """The labels of one frame, at image size."""

    kind: ClassVar[str]
    suffix: ClassVar[str]  # of the file `write` makes

    @abstractmethod
    def size(self) -> tuple[int, int] | None:
        """(height, width) in pixels, or None where the labels have no image (keypoints)."""

    def is_empty(self) -> bool:
        """Whether no object is on the frame."""
        return False

    def resized(self, height_px: int, width_px: int) -> "Self | None":
        """The labels at another size, by nearest neighbour; None where they cannot be resized."""
        return None

    @abstractmethod
    def write(self, path: str | Path) -> None:
        """Write the labels so that `read` gives them back exactly."""

    @classmethod
    @abstractmethod
    def read(cls, path: str | Path) -> Self:
        """The labels of a file."""

    @classmethod
    @abstractmethod
    def space(cls, labelled: Sequence[Any]) -> "Space":
        """The channels that hold everything these frames of the same kind are labelled with."""


@runtime_checkable
class Space(Protocol):
    """What the channels of a video's soft maps mean."""

    @property
    def channels(self) -> int: ...

    @property
    def exclusive(self) -> bool:
        """True where channels compete for a cell: channel 0 is the background and all sum to one."""
        ...

    @property
    def stretchable(self) -> bool:
        """True where a channel is an intensity, so that stretching it to [0, 1] keeps its meaning."""
        ...

    def speaks(self, labels: Any) -> Bool[Tensor, " channels"]:
        """Which channels this labelled frame decides; the others are only carried through it."""
        ...

    def to_soft(self, labels: Any, grid: Grid) -> SoftMap: ...

    def from_soft(self, soft: SoftMap, grid: Grid) -> Any: ...

    @property
    def objects(self) -> tuple[str, ...]:
        """What a person would point at, by name: an object, a part, a point, the painted surface."""
        ...

    def extent(self, soft: SoftMap) -> Extent:
        """How much of every cell each of the `objects` covers, 0 to 1."""
        ...

    def presence(self, labels: Any) -> tuple[Presence | None, ...]:
        """What this annotated frame says of each of the `objects`; None for one that is not annotated on it."""
        ...

    def put_back(self, given: Any, decided: Any) -> Any:
        """The decided labels with everything that was given put back exactly as it was drawn."""
        ...

    def widened(self, labels: Any) -> "Space":
        """This space with channels added, at the end, for objects of `labels` it did not have."""
        ...


def listed(names: Sequence[str], most: int = 6) -> str:
    """The names on one short line, for people."""
    shown = [name if len(name) <= 24 else f"{name[:23]}…" for name in names[:most]]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(shown) or "none") + more


def nearest(
    array: Shaped[np.ndarray, "height width *channels"], height_px: int, width_px: int
) -> Shaped[np.ndarray, "height_px width_px *channels"]:
    """An array of pixels at another size: each new pixel takes the value at its centre."""
    rows = ((np.arange(height_px) + 0.5) * array.shape[0] / height_px).astype(np.int64)
    columns = ((np.arange(width_px) + 0.5) * array.shape[1] / width_px).astype(np.int64)
    return np.asarray(array[rows[:, None], columns])


def two_drawings(kind: str) -> LabelError:
    """The refusal of a second drawing of a kind whose every pixel refers to the one frame it was drawn on."""
    return LabelError(
        f"{kind} were given for more than one frame",
        remedy="give one frame: a second would wipe out the first wherever it is empty; run twice for two",
    )


def combine(given: SoftMap, carried: SoftMap, *, speaks: Bool[Tensor, " channels"], exclusive: bool) -> SoftMap:
    """`given` where the labelled frame speaks, `carried` elsewhere; given objects push carried ones aside."""
    mixed = torch.where(speaks, given, carried)
    if not exclusive or bool(speaks.all()):
        return mixed
    objects = mixed[..., 1:]
    spoken = objects * speaks[1:]
    room = (1 - spoken.sum(dim=-1, keepdim=True)).clamp_min(0)
    silent = objects * ~speaks[1:]
    return settle(torch.cat([mixed[..., :1], spoken + silent * room], dim=-1))


def fill_unknown(soft: SoftMap, other: SoftMap, *, knows: Bool[Tensor, " channels"], exclusive: bool) -> SoftMap:
    """`soft` with the channels it does not know taken from `other`; objects only where it has background."""
    if not exclusive:
        return torch.where(knows, soft, other)
    background, objects = soft[..., :1], soft[..., 1:]
    taken = background * other[..., 1:] * ~knows[1:]
    return torch.cat([background - taken.sum(dim=-1, keepdim=True), objects * knows[1:] + taken], dim=-1)


def settle(soft: SoftMap) -> SoftMap:
    """Objects scaled to share a cell where they claim more than all of it; the background takes the rest."""
    objects = soft[..., 1:].clamp_min(0)
    claimed = objects.sum(dim=-1, keepdim=True)
    return torch.cat([(1 - claimed).clamp_min(0), objects / claimed.clamp_min(1)], dim=-1)


def is_of_points(space: Space) -> bool:
    """Whether objects are points, whose weight is spread over cells that they never cover wholly."""
    return not space.exclusive and len(space.objects) == space.channels


def silence(soft: SoftMap, space: Space, silent: Bool[Tensor, " objects"]) -> SoftMap:
    """The soft labels without some of the objects: background in their place, or no weight where there is none."""
    if not bool(silent.any()):
        return soft
    channels = space.channels - 1 if space.exclusive else space.channels
    if len(silent) == channels:
        kept = soft * torch.cat([torch.ones(space.channels - channels, dtype=torch.bool), ~silent])
        return settle(kept) if space.exclusive else kept
    nothing = torch.zeros_like(soft)
    if space.exclusive:
        nothing[..., 0] = 1
    return nothing
