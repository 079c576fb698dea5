"""The interface of every kind of label: its file, its picture, and the channels of its label maps."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int, Shaped
from PIL import Image
from torch import Tensor

from timecycle.display import inline_picture
from timecycle.errors import LabelError
from timecycle.grid import Grid
from timecycle.labels.drawing import RGB, Picture, colour_of
from timecycle.labels.label_map import Decide, Extent, LabelValues, upsample_argmax
from timecycle.video.frame import Frame, rgb_of

# What an annotation says of an object: it is in view, something hides it, or it is not in the frame at all.
Presence = Literal["visible", "occluded", "absent"]
_GREY = 64  # behind labels that are shown without their frame

Objects = frozenset[str] | None  # names of objects; None: all objects of the video
Ids = Int[np.ndarray, "height width"]
Points = Float32[np.ndarray, "points 2"]

_SMALLEST = 1e-30  # of a sum that is divided by: nothing known stays nothing


class Labels(ABC):
    """The labels of one frame, at image size: one of Masks, Parts, Keypoints, Texture and Coordinates.

    Every kind has `read(path)`, `write(path)`, `show(image)`, and the attributes that hold its arrays.
    """

    kind: ClassVar[str]
    suffix: ClassVar[str]  # of the file that `write` makes
    empty_remedy: ClassVar[str] = "annotate an object on at least one frame"
    numbered: ClassVar[bool] = False  # objects are called by their ids
    correctable: ClassVar[bool] = True  # False for kinds that refer to the one frame that was annotated

    @abstractmethod
    def size(self) -> tuple[int, int] | None:
        """Return (height, width) in pixels, or None for labels without an image (keypoints)."""

    def is_empty(self) -> bool:
        """Return whether no object is on the frame."""
        return False

    def resized(self, height_px: int, width_px: int) -> "Self | None":
        """Return the labels at another size, by nearest neighbour; None for kinds that cannot be resized."""
        return None

    def resampled(self, rows: Ids, columns: Ids) -> "Self | None":
        """Return labels whose pixels take the ids at these rows and columns; None for kinds without ids."""
        return None

    def moved(self, move: Callable[[Points], Points]) -> Self:
        """Return the labels with their points moved; labels without points stay as they are."""
        return self

    @abstractmethod
    def write(self, path: str | Path) -> None:
        """Write the labels to a file from which `read` restores them exactly."""

    def write_grey(self, path: str | Path) -> None:
        """Write the ids as plain grey values; kinds without such a file are written as ever."""
        self.write(path)

    @classmethod
    def in_colours(cls, path: Path) -> bytes:
        """Return a label file for editing: grey ids in colours, files of other kinds as they are."""
        return path.read_bytes()

    @classmethod  # noqa: B027 (most kinds have no table)
    def write_table(cls, path: Path, label_files: Mapping[int, Path]) -> None:
        """Collect the label files of all frames, given by frame number, in one table; only keypoints have one."""

    @classmethod
    @abstractmethod
    def read(cls, path: str | Path) -> Self:
        """Read the labels of one frame from a file."""

    @classmethod
    @abstractmethod
    def space(cls, annotations: Sequence[Any]) -> "Space":
        """Return the label space that holds every object of these annotations of one kind."""

    def annotated_objects(self) -> Objects:
        """Return the objects that this annotation constrains; other objects keep being propagated."""
        return None

    def restricted_to(self, objects: Objects) -> Self:
        """Return an annotation of these objects alone."""
        return self.as_exhaustive() if objects is None else self._restricted_to(objects)

    def _restricted_to(self, objects: frozenset[str]) -> Self:
        return self

    def as_exhaustive(self) -> Self:
        """Return an annotation by which every object that is not on the frame is absent."""
        return self

    def merged_with(self, annotation: Self) -> Self:
        """Return these labels with the objects of another annotation of the frame that they do not annotate."""
        merged: Self = self.space([annotation, self]).restore_annotated(self, annotation)
        return merged

    def is_same(self, other: Self) -> bool:
        """Return whether labels are known to equal others, visibility and confidence aside."""
        return False

    def accuracy(self, name: str, ground_truth: Self, *, tolerance_px: float) -> float | None:
        """Return the accuracy of an object, from 0 to 1; None where neither labels show the object.

        It is the intersection over union of a mask. A keypoint is right, to within the tolerance, or wrong.
        """
        raise LabelError(f"{self.kind} cannot be corrected", remedy="propagate again from a better frame")

    def with_run_ids(
        self, objects: Sequence[str], colours: Mapping[int, int], *, object_id: int | None, name: str
    ) -> Self:
        """Return a correction with the object ids of its run: only masks have ids of their own to be understood.

        objects: of the run. colours: ids by the colour (0xRRGGBB) in which they were annotated.
        object_id: of the one object that is shown, where the user gave it. name: what to call the correction.
        """
        if object_id is not None:
            raise LabelError(f"--object was given for {self.kind}", remedy="leave it out: it is for masks only")
        return self

    def own_colours(self) -> Mapping[int, int]:
        """Return ids by colour (0xRRGGBB), where only this annotation defines what its colours mean."""
        return {}

    def instances(self) -> Ids | None:
        """Return the part instance of every pixel; None for other kinds."""
        return None

    def with_confidence(self, values: Mapping[str, float], *, unseen: Container[str]) -> Self:
        """Return keypoints with a confidence each, those named in `unseen` hidden; other labels as they are."""
        return self

    @abstractmethod
    def overlay(self, image: Picture) -> Picture:
        """Draw the labels over their frame."""

    def show(self, image: Frame | Picture | None = None) -> Image.Image:
        """Return a picture of the labels over `image`, the frame they belong to; without it, over plain grey."""
        if image is not None:
            return Image.fromarray(self.overlay(rgb_of(image)))
        size = self.size()
        if size is None:
            raise LabelError(f"{self.kind} alone have no picture", remedy="pass their frame: labels.show(video[0])")
        return Image.fromarray(self.overlay(np.full((*size, 3), _GREY, np.uint8)))

    def _repr_html_(self) -> str | None:
        return None if self.size() is None else inline_picture(self.show(), caption=repr(self))

    def outline(self, image: Picture, name: str) -> Picture:
        """Outline one object on a picture of its frame; objects that are not there change nothing."""
        return image

    def legend(self) -> dict[str, RGB]:
        """Return the colour of every object in `overlay`; empty for kinds that have colours of their own."""
        return {}

    @classmethod
    def object_colour(cls, name: str, index: int = 0) -> RGB:
        """Return the colour of an object by its name, or by its index from 0 among the objects of the video."""
        return colour_of(1 + index)

    @classmethod
    def display_name(cls, name: str, names: Mapping[str, str]) -> str:
        """Return what pages and pictures call an object: a given name, or else its id or its own name."""
        return name


@runtime_checkable
class Space(Protocol):
    """A label space: what the channels of a video's label maps mean."""

    @property
    def channels(self) -> int: ...

    @property
    def exclusive(self) -> bool:
        """True where channels compete for a cell: channel 0 is the background and all channels sum to one."""
        ...

    @property
    def stretchable(self) -> bool:
        """True where a channel is an intensity, so that stretching it to [0, 1] keeps its meaning."""
        ...

    @property
    def divisible(self) -> bool:
        """True where a feature cell may hold a block of labels: they are drawn by pixels, not weights of a point."""
        ...

    def annotated_channels(self, labels: Any) -> Bool[Tensor, " channels"]:
        """Return which channels an annotation constrains; the other channels keep being propagated."""
        ...

    def encode(self, labels: Any, grid: Grid) -> LabelValues:
        """Pool labels at image size into a label map on the feature grid."""
        ...

    def decode(self, values: LabelValues, grid: Grid, decide: Decide = upsample_argmax) -> Any:
        """Turn a label map into labels at image size; `decide` draws the outlines of kinds that have ids."""
        ...

    @property
    def objects(self) -> tuple[str, ...]:
        """The names of the objects: ids of masks or parts, names of points, or the one texture or frame."""
        ...

    def extent(self, values: LabelValues) -> Extent:
        """Return how much of every cell each of the `objects` covers, 0 to 1."""
        ...

    def presence(self, labels: Any) -> tuple[Presence | None, ...]:
        """Return what an annotation says of each of the `objects`; None for one that it does not annotate."""
        ...

    def restore_annotated(self, annotation: Any, decoded: Any) -> Any:
        """Replace annotated objects in decoded labels by the exact annotation."""
        ...

    def extended(self, labels: Any) -> "Space":
        """Return this space with channels appended for objects of `labels` that it lacks."""
        ...


def listed(names: Sequence[str], most: int = 6) -> str:
    """Join names into one short line for messages."""
    shown = [name if len(name) <= 24 else f"{name[:23]}…" for name in names[:most]]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(shown) or "none") + more


def counted(names: Sequence[str], noun: str) -> str:
    """Count and list names in one short line: "2 objects: 1, 2"."""
    return f"{len(names) or 'no'} {noun}{'' if len(names) == 1 else 's'}{': ' if names else ''}" + (
        listed(names) if names else ""
    )


def nearest(
    array: Shaped[np.ndarray, "height width *channels"], height_px: int, width_px: int
) -> Shaped[np.ndarray, "height_px width_px *channels"]:
    """Resize an array of pixels by nearest neighbour: each new pixel takes the value at its centre."""
    rows = ((np.arange(height_px) + 0.5) * array.shape[0] / height_px).astype(np.int64)
    columns = ((np.arange(width_px) + 0.5) * array.shape[1] / width_px).astype(np.int64)
    return np.asarray(array[rows[:, None], columns])


def second_annotation(kind: str) -> LabelError:
    """Return the error for a second annotation of a kind whose pixels all refer to one annotated frame."""
    return LabelError(
        f"{kind} were given for more than one frame",
        remedy="give one frame: a second would erase the first wherever it is empty; run twice for two",
    )


def combine(
    annotated: LabelValues, propagated: LabelValues, *, annotated_channels: Bool[Tensor, " channels"], exclusive: bool
) -> LabelValues:
    """Merge an annotation into a propagated label map: annotated channels replace propagated ones.

    In exclusive spaces propagated objects keep the share of a cell that annotated objects leave.
    """
    replaced = annotated_channels.to(annotated.device)
    merged = torch.where(replaced, annotated, propagated)
    if not exclusive or bool(annotated_channels.all()):
        return merged
    objects = merged[..., 1:]
    fixed = objects * replaced[1:]
    room = (1 - fixed.sum(dim=-1, keepdim=True)).clamp_min(0)
    other = objects * ~replaced[1:]
    return normalise(torch.cat([merged[..., :1], fixed + other * room], dim=-1))


def fill_unknown(
    values: LabelValues, other: LabelValues, *, known: Bool[Tensor, " channels"], exclusive: bool
) -> LabelValues:
    """Take unknown channels from `other`; in exclusive spaces only where `values` has background."""
    if not exclusive:
        return torch.where(known, values, other)
    background, objects = values[..., :1], values[..., 1:]
    taken = background * other[..., 1:] * ~known[1:]
    return torch.cat([background - taken.sum(dim=-1, keepdim=True), objects * known[1:] + taken], dim=-1)


def normalise(values: LabelValues) -> LabelValues:
    """Scale objects that claim more than a whole cell down to it, and give the rest to the background."""
    objects = values[..., 1:].clamp_min(0)
    claimed = objects.sum(dim=-1, keepdim=True)
    return torch.cat([(1 - claimed).clamp_min(0), objects / claimed.clamp_min(1)], dim=-1)


def sharpen(values: LabelValues, power: float) -> LabelValues:
    """Raise a distribution to a power: the order of the channels stays, and what is certain stays as it is."""
    if power == 1:
        return values
    raised = values.pow(power)
    return raised / raised.sum(dim=-1, keepdim=True).clamp_min(_SMALLEST)


def is_point_space(space: Space) -> bool:
    """Return whether objects are points: their weight is spread over cells that they never cover wholly."""
    return not space.exclusive and len(space.objects) == space.channels


def remove_objects(values: LabelValues, space: Space, removed: Bool[Tensor, " objects"]) -> LabelValues:
    """Replace some objects of a label map by background, or by no weight where there is no background channel."""
    if not bool(removed.any()):
        return values
    channels = space.channels - 1 if space.exclusive else space.channels
    if len(removed) == channels:
        kept = values * torch.cat([torch.ones(space.channels - channels, dtype=torch.bool), ~removed])
        return normalise(kept) if space.exclusive else kept
    nothing = torch.zeros_like(values)
    if space.exclusive:
        nothing[..., 0] = 1
    return nothing
