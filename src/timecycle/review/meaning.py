"""What a correction means in the run it corrects: which of the run's objects a mask shows, or that none is there."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from timecycle.errors import LabelError
from timecycle.labels import Keypoints, Labels, Masks
from timecycle.labels.colour_names import colour_in_words, colours_in_words
from timecycle.labels.fitting import absent_where_empty, name_of, refuse_empty
from timecycle.labels.notes import frames_in_words, note
from timecycle.labels.palette import colour_of
from timecycle.propagation.propagate import space_of


def as_in_run(
    corrections: Mapping[int, Labels],
    known: Callable[[int], Labels],
    annotated: Collection[int],
    numbers: Sequence[int],
    *,
    object_id: int | None = None,
    colours: Mapping[int, int] | None = None,
) -> dict[int, Labels]:
    """Return the corrections with the ids of the run; `known` gives the labels of its `annotated` frames.

    `numbers` are what people call the frames. A mask of one object means the run's object where that has one only,
    whatever values and colours it was saved with, and `object_id` where that is given, which may be new. Colours mean
    the objects that were drawn in them (`colours` of the run, 0xRRGGBB) or that label files show in them. Other
    colours and ids that the run does not have are asked about.
    """
    now = {index: known(index) for index in annotated}
    objects = space_of(now).objects
    ids = [int(name) for name in objects] if all(isinstance(labels, Masks) for labels in now.values()) else []
    run = _Run(ids, colours or {})
    meant = {index: _renumbered(numbers[index], given, run, object_id) for index, given in corrections.items()}
    meant = absent_where_empty(meant, objects, numbers, or_else="; if that is not meant, take it back with --undo")
    _note_unchanged({index: given for index, given in meant.items() if index not in annotated}, known, numbers)
    refuse_empty(now | meant, numbers)
    return meant


@dataclass(frozen=True)
class _Run:
    """The objects of a run of masks, and the colours (0xRRGGBB) in which they were annotated."""

    ids: Collection[int]
    drawn: Mapping[int, int]

    @property
    def colours(self) -> dict[int, int]:
        """What colours mean: as annotated, and as label files show the objects."""
        shown = {identity: colour_of(identity) for identity in self.ids if identity < 256}
        return {(red << 16) | (green << 8) | blue: i for i, (red, green, blue) in shown.items()} | dict(self.drawn)


def _note_unchanged(corrections: Mapping[int, Labels], known: Callable[[int], Labels], numbers: Sequence[int]) -> None:
    """Say so where a correction is what was propagated: confirmed, or an edit that was not saved."""
    same = [numbers[index] for index, given in corrections.items() if _is_same(given, known(index))]
    if same:
        note(f"the labels of {frames_in_words(same)} are what was propagated: they count as confirmed")


def _is_same(one: Labels, other: Labels) -> bool:
    if isinstance(one, Keypoints) and isinstance(other, Keypoints):
        return one.names == other.names and np.array_equal(one.xy, other.xy, equal_nan=True)
    return isinstance(one, Masks) and isinstance(other, Masks) and np.array_equal(one.ids, other.ids)


def _renumbered(number: int, labels: Labels, run: _Run, object_id: int | None) -> Labels:
    if not isinstance(labels, Masks):
        if object_id is not None:
            raise LabelError(f"--object was given for {labels.kind}", remedy="leave it out: it says what a mask shows")
        return labels
    drawn = [int(value) for value in np.unique(labels.ids[labels.ids > 0])]
    if object_id is None and (not drawn or _is_clear(labels, drawn, run)):
        return labels
    name = name_of(number, labels)
    if object_id is not None:
        _check_object(name, drawn, object_id)
        if len(drawn) > 1:
            raise LabelError(
                f"{name} shows more than one object, of which --object {object_id} names one",
                remedy="draw that object alone, or leave out --object and use the ids or colours of the run",
            )
        return _with_ids(labels, {drawn[0]: object_id})
    if labels.colours and run.colours.keys() >= labels.colours.keys():
        return _with_ids(labels, {i: run.colours[code] for code, i in labels.colours.items()})
    if len(run.ids) == 1 and (len(drawn) == 1 or labels.colours):
        (only,) = run.ids
        note(f"{name} is read as object {only}, the only one of the run; to add an object, give --object ID")
        return _with_ids(labels, dict.fromkeys(drawn, only))
    raise _question(name, labels, drawn, run)


def _with_ids(labels: Masks, table: Mapping[int, int]) -> Masks:
    ids = np.zeros_like(labels.ids)
    for drawn, meant in table.items():
        ids[labels.ids == drawn] = meant
    return dataclasses.replace(labels, ids=ids, coloured=False, colours={})


def _check_object(name: str, drawn: Collection[int], object_id: int) -> None:
    if not 1 <= object_id <= 65535:
        raise LabelError(f"there is no object {object_id}", remedy="number objects between 1 and 65535")
    if not drawn:
        raise LabelError(
            f"{name} is empty, which says that every object is absent, not object {object_id} alone",
            remedy="leave out --object; or, for one object, give a mask of all the others with --complete",
        )


def _is_clear(labels: Masks, drawn: Collection[int], run: _Run) -> bool:
    """Whether the mask's ids are the run's: one that it has tells how the others, which are new, are numbered."""
    own = labels.coloured or not run.drawn.keys().isdisjoint(labels.colours)
    return not own and any(value in run.ids for value in drawn)


def _question(name: str, labels: Masks, drawn: Sequence[int], run: _Run) -> LabelError:
    unknown = sorted(labels.colours.keys() - run.colours.keys())
    if unknown:
        return LabelError(
            f"{name} has the colour {colour_in_words(unknown[0])}, which is none of the run's objects: "
            f"{colours_in_words(run.colours)}",
            remedy=f"paint in the run's colours{_ON_A_COPY}"
            + (_WHICH.format(min(run.ids)) if len(labels.colours) == 1 else ""),
        )
    objects = ", ".join(map(str, run.ids))
    if len(drawn) > 1:
        return LabelError(
            f"{name} shows objects as the values {', '.join(map(str, drawn))}, which does not tell which of the run's "
            f"objects {objects} they are",
            remedy=f"use the run's values{_ON_A_COPY}",
        )
    shown = "in black" if labels.coloured else f"as the value {drawn[0]}"
    return LabelError(
        f"{name} shows an object {shown}, but the run's objects are {objects}",
        remedy=f"say which it is with --object {min(run.ids)}, or a new id to add an object (object_id= in Python)",
    )


# Never in labels/ itself: what was propagated there would be lost, and no correction could be undone.
_ON_A_COPY = ", on a copy of the frame's label file (`timecycle check` writes copies of the frames to fix to review/)"
_WHICH = "; or say which object it is with --object {}"
