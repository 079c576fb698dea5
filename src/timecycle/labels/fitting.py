"""Validate annotations of a video: resize them to its frames and refuse those without any object.

All annotations, from the command line and from Python, pass through here. `numbers` are the frame numbers of the
video for messages: those of its image files, or the indices.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from timecycle.errors import LabelError
from timecycle.labels.file import frames_in_words, note
from timecycle.labels.masks import IdLabels
from timecycle.labels.space import Labels


def fit_sizes(
    labels: Mapping[int, Labels], height_px: int, width_px: int, numbers: Sequence[int] | None = None
) -> dict[int, Labels]:
    """Resize labels of proportional size to the size of the video; refuse other sizes."""
    fitted = {index: _fitted(_number(index, numbers), one, height_px, width_px) for index, one in labels.items()}
    resized = [index for index, one in labels.items() if fitted[index] is not one]
    for size in dict.fromkeys(labels[index].size() for index in resized):
        same = [_number(index, numbers) for index in resized if labels[index].size() == size]
        height, width = size or (0, 0)
        note(
            f"the labels of {frames_in_words(same)} are {width}x{height}: resized to the video's "
            f"{width_px}x{height_px} by nearest neighbour"
        )
    return fitted


def refuse_empty(labels: Mapping[int, Labels], numbers: Sequence[int] | None = None) -> None:
    """Refuse annotations without an object on any frame."""
    if all(one.is_empty() for one in labels.values()):
        first = labels[min(labels)]
        name = name_of(_number(min(labels), numbers), first)
        problem = (
            f"{name} holds no object"
            if len(labels) == 1
            else f"none of the {len(labels)} annotated frames holds an object, beginning with {name}"
        )
        raise LabelError(problem, remedy=first.empty_remedy)


def absent_where_empty(
    labels: Mapping[int, Labels],
    objects: Iterable[str],
    numbers: Sequence[int] | None = None,
    *,
    or_else: str = "",
) -> dict[int, Labels]:
    """Read a mask without any object as "all objects are absent from this frame", with a note.

    `or_else` is appended to the note: what to do if this is not meant.
    """
    empty = [
        index for index, one in labels.items() if isinstance(one, IdLabels) and one.is_empty() and not one.exhaustive
    ]
    if empty:
        names = ", ".join(objects)
        note(
            f"nothing is annotated on {frames_in_words(_number(index, numbers) for index in empty)}: "
            f"object{'s' if ',' in names else ''} {names} {'are' if ',' in names else 'is'} absent there{or_else}"
        )
    return {index: one.as_exhaustive() if index in empty else one for index, one in labels.items()}


def note_ambiguous_white(labels: Mapping[int, Labels]) -> None:
    """Note where one mask has only id 255 and another only id 1: one object saved in two ways, or two objects."""
    alone: dict[int, str] = {}
    for index, mask in sorted(labels.items()):
        values = np.setdiff1d(mask.object_ids, [0]).tolist() if isinstance(mask, IdLabels) else []
        if len(values) == 1:
            alone.setdefault(values[0], name_of(index, mask))
    if {1, 255} <= alone.keys():
        note(
            f"{alone[255]} shows object 255 and {alone[1]} object 1: two objects; "
            "if they are one, give both masks the same value"
        )


def name_of(number: int, labels: Labels) -> str:
    """Return the path that labels were read from, or else name their frame."""
    path = getattr(labels, "path", None)
    return str(path) if path else f"the annotation of frame {number}"


def _number(index: int, numbers: Sequence[int] | None) -> int:
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
    """Return the error for labels whose size (height, width) is not that of their frame."""
    return LabelError(
        f"the labels of frame {number} are {size[1]}x{size[0]} but the frame is {frame[1]}x{frame[0]}",
        remedy="draw them on the frame itself, or resize them with nearest neighbour",
    )


def is_proportional(size: tuple[int, int], frame: tuple[int, int]) -> bool:
    """Return whether one size is the other times a factor, with both sides rounded to whole pixels.

    The factor is taken from the long sides: rounding them moves the short side by at most half a pixel, and rounding
    the short side moves it by at most another half.
    """
    small, large = sorted((size, frame), key=max)
    factor = max(small) / max(large)
    return all(abs(side - factor * whole) <= 1 for side, whole in zip(small, large, strict=True))
