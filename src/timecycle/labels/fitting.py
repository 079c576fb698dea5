"""Annotations as they are meant on a video: at its size, and about objects that are on some frame.

Everything that takes annotations, from the command line or from Python, goes through here. `numbers` are what people
call the frames: the numbers of image files, otherwise the indices.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from timecycle.errors import LabelError
from timecycle.labels.masks import Masks
from timecycle.labels.notes import frames_in_words, note
from timecycle.labels.parts import Parts
from timecycle.labels.space import Labels


def fit_sizes(
    labels: Mapping[int, Labels], height_px: int, width_px: int, numbers: Sequence[int] | None = None
) -> dict[int, Labels]:
    """Bring labels of exactly proportional size to the video's own; refuse other sizes."""
    fitted = {index: _fitted(_called(index, numbers), given, height_px, width_px) for index, given in labels.items()}
    resized = [index for index, given in labels.items() if fitted[index] is not given]
    for size in dict.fromkeys(labels[index].size() for index in resized):
        same = [_called(index, numbers) for index in resized if labels[index].size() == size]
        height, width = size or (0, 0)
        note(
            f"the labels of {frames_in_words(same)} are {width}x{height}: resized to the video's "
            f"{width_px}x{height_px} by nearest neighbour"
        )
    return fitted


def refuse_empty(labels: Mapping[int, Labels], numbers: Sequence[int] | None = None) -> None:
    """Refuse annotations that hold no object on any frame."""
    if all(given.is_empty() for given in labels.values()):
        first = labels[min(labels)]
        name = name_of(_called(min(labels), numbers), first)
        problem = (
            f"{name} holds no object"
            if len(labels) == 1
            else f"none of the {len(labels)} annotated frames holds an object, beginning with {name}"
        )
        raise LabelError(problem, remedy=_HOW_TO_DRAW.get(first.kind, "annotate an object on at least one frame"))


def absent_where_empty(
    labels: Mapping[int, Labels],
    objects: Iterable[str],
    numbers: Sequence[int] | None = None,
    *,
    or_else: str = "",
) -> dict[int, Labels]:
    """Take a mask on which nothing is annotated to mean that no object is on its frame, and say so; `or_else` says what
    to do if it is not."""
    said = {index: given for index, given in labels.items() if isinstance(given, Masks | Parts) and given.is_empty()}
    empty = [index for index, given in said.items() if not given.complete]
    if empty:
        names = ", ".join(objects)
        note(
            f"nothing is annotated on {frames_in_words(_called(index, numbers) for index in empty)}: "
            f"object{'s' if ',' in names else ''} {names} {'are' if ',' in names else 'is'} absent there{or_else}"
        )
    return {index: complete(given) if index in empty else given for index, given in labels.items()}


def note_two_whites(labels: Mapping[int, Labels]) -> None:
    """Say so where one mask holds 255 alone and another 1 alone: two ways of saving one object, or two objects."""
    alone: dict[int, str] = {}
    for index, mask in sorted(labels.items()):
        values = np.unique(mask.ids[mask.ids > 0]).tolist() if isinstance(mask, Masks) else []
        if len(values) == 1:
            alone.setdefault(values[0], name_of(index, mask))
    if {1, 255} <= alone.keys():
        note(
            f"{alone[255]} shows object 255 and {alone[1]} object 1: two objects; "
            "if they are one, give both masks the same value"
        )


def complete(labels: Labels) -> Labels:
    """Labels that say of every object whether it is on their frame."""
    return dataclasses.replace(labels, complete=True) if isinstance(labels, Masks | Parts) else labels


def name_of(number: int, labels: Labels) -> str:
    """The file that labels were read from, or the frame they were given for."""
    path = getattr(labels, "path", None)
    return str(path) if path else f"the annotation of frame {number}"


_HOW_TO_DRAW = {
    Masks.kind: "draw the object in white or in a colour, or give its pixels any id above 0; black is background",
    "keypoints": "place at least one visible point",
    "texture": "paint some pixels: all of them are transparent",
}


def _called(index: int, numbers: Sequence[int] | None) -> int:
    return index if numbers is None else numbers[index]


def _fitted(number: int, labels: Labels, height_px: int, width_px: int) -> Labels:
    size = labels.size()
    if size is None or size == (height_px, width_px):
        return labels
    resized = labels.resized(height_px, width_px) if is_proportional(size, (height_px, width_px)) else None
    if resized is None:
        raise other_size(number, size, (height_px, width_px))
    return resized


def other_size(number: int, size: tuple[int, int], frame: tuple[int, int]) -> LabelError:
    """The error for labels whose size (height, width) is not that of their frame."""
    return LabelError(
        f"the labels of frame {number} are {size[1]}x{size[0]} but the frame is {frame[1]}x{frame[0]}",
        remedy="draw them on the frame itself, or resize them with nearest neighbour",
    )


def is_proportional(size: tuple[int, int], frame: tuple[int, int]) -> bool:
    """Whether one size is the other times a factor, both sides rounded to whole pixels.

    The factor is that of the long sides: rounding them moves the short side by half a pixel at most, and rounding
    that by another half.
    """
    small, large = sorted((size, frame), key=max)
    factor = max(small) / max(large)
    return all(abs(side - factor * whole) <= 1 for side, whole in zip(small, large, strict=True))
