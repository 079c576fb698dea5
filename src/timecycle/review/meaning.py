"""What a correction means in the run it corrects: which of the run's objects a mask shows, or that none is there."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from timecycle.errors import LabelError
from timecycle.labels import Keypoints, Labels, Masks
from timecycle.labels.fitting import absent_where_empty, name_of, refuse_empty
from timecycle.labels.notes import frames_in_words, note
from timecycle.propagation.propagate import space_of


def as_in_run(
    corrections: Mapping[int, Labels],
    known: Callable[[int], Labels],
    annotated: Collection[int],
    numbers: Sequence[int],
    *,
    object_id: int | None = None,
) -> dict[int, Labels]:
    """Return the corrections with the ids of the run; `known` gives the labels of its `annotated` frames.

    `numbers` are what people call the frames.

    A mask of one object means the run's object where that has one only, whatever value it was saved with, and
    `object_id` where that is given, which may be new. Other ids that the run does not have are asked about.
    """
    now = {index: known(index) for index in annotated}
    objects = space_of(now).objects
    ids = [int(name) for name in objects] if all(isinstance(labels, Masks) for labels in now.values()) else []
    meant = {index: _renumbered(numbers[index], given, ids, object_id) for index, given in corrections.items()}
    meant = absent_where_empty(meant, objects, numbers)
    _note_unchanged({index: given for index, given in meant.items() if index not in annotated}, known, numbers)
    refuse_empty(now | meant, numbers)
    return meant


def _note_unchanged(corrections: Mapping[int, Labels], known: Callable[[int], Labels], numbers: Sequence[int]) -> None:
    """Say so where a correction is what was propagated: confirmed, or an edit that was not saved."""
    same = [numbers[index] for index, given in corrections.items() if _is_same(given, known(index))]
    if same:
        note(f"the labels of {frames_in_words(same)} are what was propagated: they count as confirmed")


def _is_same(one: Labels, other: Labels) -> bool:
    if isinstance(one, Keypoints) and isinstance(other, Keypoints):
        return one.names == other.names and np.array_equal(one.xy, other.xy, equal_nan=True)
    return isinstance(one, Masks) and isinstance(other, Masks) and np.array_equal(one.ids, other.ids)


def _renumbered(number: int, labels: Labels, ids: Collection[int], object_id: int | None) -> Labels:
    if not isinstance(labels, Masks):
        if object_id is not None:
            raise LabelError(f"--object was given for {labels.kind}", remedy="leave it out: it says what a mask shows")
        return labels
    drawn = [int(value) for value in np.unique(labels.ids[labels.ids > 0])]
    if object_id is None and (not drawn or _is_clear(labels, drawn, ids)):
        return labels
    name = name_of(number, labels)
    if object_id is not None:
        _check_object(name, drawn, object_id)
    if object_id is None and len(drawn) == len(ids) == 1:
        (object_id,) = ids
        note(f"{name} is read as object {object_id}, the only one of the run; to add an object, give --object ID")
    if object_id is None or len(drawn) > 1:
        raise _question(name, labels, drawn, ids)
    return dataclasses.replace(labels, ids=np.where(labels.ids > 0, np.uint16(object_id), np.uint16(0)), coloured=False)


def _check_object(name: str, drawn: Collection[int], object_id: int) -> None:
    if not 1 <= object_id <= 65535:
        raise LabelError(f"there is no object {object_id}", remedy="number objects between 1 and 65535")
    if not drawn:
        raise LabelError(
            f"{name} is empty, which says that every object is absent, not object {object_id} alone",
            remedy="leave out --object; or, for one object, give a mask of all the others with --complete",
        )


def _is_clear(labels: Masks, drawn: Collection[int], ids: Collection[int]) -> bool:
    """Whether the mask's ids are the run's: one that it has tells how the others, which are new, are numbered."""
    return not labels.coloured and any(value in ids for value in drawn)


def _question(name: str, labels: Masks, drawn: Sequence[int], ids: Collection[int]) -> LabelError:
    objects = ", ".join(map(str, ids))
    if len(drawn) > 1:
        shown = "colours of its own" if labels.coloured else f"the values {', '.join(map(str, drawn))}"
        return LabelError(
            f"{name} shows objects as {shown}, which does not tell which of the run's objects {objects} they are",
            remedy="edit the frame's file in the run's labels/ folder and save a palette PNG",
        )
    shown = "a colour of its own" if labels.coloured else f"the value {drawn[0]}"
    return LabelError(
        f"{name} shows an object as {shown}, but the run's objects are {objects}",
        remedy=f"say which it is with --object {min(ids)}, or a new id to add an object (object_id= in Python)",
    )
