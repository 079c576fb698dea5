"""Object ids of corrections: find out which objects of the run a corrected mask shows, without guessing."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from timecycle.errors import LabelError
from timecycle.labels import Keypoints, Labels, Masks
from timecycle.labels.fitting import absent_where_empty, name_of, refuse_empty
from timecycle.labels.notes import frames_in_words, note
from timecycle.labels.palette import colour_in_words, colour_of, colours_in_words
from timecycle.propagation.video import space_of


def with_run_ids(
    corrections: Mapping[int, Labels],
    current_labels: Callable[[int], Labels],
    annotated: Collection[int],
    numbers: Sequence[int],
    *,
    object_id: int | None = None,
    colours: Mapping[int, int] | None = None,
) -> dict[int, Labels]:
    """Return the corrections with the object ids of the run.

    `current_labels` returns the labels that a frame has now, `annotated` are the annotated frames of the run, and
    `numbers` the numbers of its frames. A mask of one object shows the object `object_id` where that is given, which
    may be new. In a run of one object it shows that object, whatever values and colours it was saved with. Colours
    stand for the objects that were annotated in them (`colours` of the run, 0xRRGGBB) or that label files show in
    them. Other colours and ids are refused with a question.
    """
    now = {index: current_labels(index) for index in annotated}
    objects = space_of(now).objects
    ids = [int(name) for name in objects] if all(isinstance(labels, Masks) for labels in now.values()) else []
    run = _RunObjects(ids, colours or {})
    result = {index: _with_ids(numbers[index], labels, run, object_id) for index, labels in corrections.items()}
    result = absent_where_empty(result, objects, numbers, or_else="; if that is not meant, take it back with --undo")
    _note_unchanged({i: labels for i, labels in result.items() if i not in annotated}, current_labels, numbers)
    refuse_empty(now | result, numbers)
    return result


@dataclass(frozen=True)
class _RunObjects:
    """The objects of a run of masks, and the colours (0xRRGGBB) in which they were annotated."""

    ids: Collection[int]
    annotated_colours: Mapping[int, int]

    @property
    def colours(self) -> dict[int, int]:
        """Object ids by colour: as annotated, and as label files show the objects."""
        shown = {identity: colour_of(identity) for identity in self.ids if identity < 256}
        codes = {(red << 16) | (green << 8) | blue: identity for identity, (red, green, blue) in shown.items()}
        return codes | dict(self.annotated_colours)


def _note_unchanged(
    corrections: Mapping[int, Labels], current_labels: Callable[[int], Labels], numbers: Sequence[int]
) -> None:
    """Note corrections that equal the propagated labels: confirmed, or edited but not saved."""
    same = [numbers[index] for index, labels in corrections.items() if _is_same(labels, current_labels(index))]
    if same:
        note(f"the labels given for {frames_in_words(same)} equal the propagated ones: they count as confirmed")


def _is_same(one: Labels, other: Labels) -> bool:
    if isinstance(one, Keypoints) and isinstance(other, Keypoints):
        return one.names == other.names and np.array_equal(one.xy, other.xy, equal_nan=True)
    return isinstance(one, Masks) and isinstance(other, Masks) and np.array_equal(one.ids, other.ids)


def _with_ids(number: int, labels: Labels, run: _RunObjects, object_id: int | None) -> Labels:
    if not isinstance(labels, Masks):
        if object_id is not None:
            raise LabelError(f"--object was given for {labels.kind}", remedy="leave it out: it is for masks only")
        return labels
    values = [int(value) for value in np.unique(labels.ids[labels.ids > 0])]
    if object_id is None and (not values or _has_run_ids(labels, values, run)):
        return labels
    name = name_of(number, labels)
    if object_id is not None:
        _check_object_id(name, values, object_id)
        return _replace_ids(labels, {values[0]: object_id})
    if labels.colours and run.colours.keys() >= labels.colours.keys():
        return _replace_ids(labels, {value: run.colours[code] for code, value in labels.colours.items()})
    if len(run.ids) == 1 and (len(values) == 1 or labels.colours):
        (only,) = run.ids
        note(f"{name} is read as object {only}, the only one of the run; to add an object, give --object ID")
        return _replace_ids(labels, dict.fromkeys(values, only))
    raise _unclear(name, labels, values, run)


def _replace_ids(labels: Masks, table: Mapping[int, int]) -> Masks:
    ids = np.zeros_like(labels.ids)
    for value, identity in table.items():
        ids[labels.ids == value] = identity
    return dataclasses.replace(labels, ids=ids, coloured=False, colours={})


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


def _has_run_ids(labels: Masks, values: Collection[int], run: _RunObjects) -> bool:
    """Return whether the mask uses the run's ids: it has one of them, so its other ids are new objects."""
    in_own_colours = labels.coloured or not run.annotated_colours.keys().isdisjoint(labels.colours)
    return not in_own_colours and any(value in run.ids for value in values)


def _unclear(name: str, labels: Masks, values: Sequence[int], run: _RunObjects) -> LabelError:
    unknown = sorted(labels.colours.keys() - run.colours.keys())
    if unknown:
        return LabelError(
            f"{name} has the colour {colour_in_words(unknown[0])}, which is none of the run's objects: "
            f"{colours_in_words(run.colours)}",
            remedy=f"paint in the run's colours{_ON_A_COPY}"
            + (f"; or name the object with --object {min(run.ids)}" if len(labels.colours) == 1 else ""),
        )
    objects = ", ".join(map(str, run.ids))
    if len(values) > 1:
        return LabelError(
            f"{name} shows objects as the values {', '.join(map(str, values))}, none of which is an object of the run: "
            f"{objects}",
            remedy=f"use the run's values{_ON_A_COPY}",
        )
    shown = "in black" if labels.coloured else f"as the value {values[0]}"
    return LabelError(
        f"{name} shows an object {shown}, but the run's objects are {objects}",
        remedy=f"name the object with --object {min(run.ids)}, or a new id to add an object (object_id= in Python)",
    )


# Never in labels/ itself: the propagated labels there would be lost, and no correction could be undone.
_ON_A_COPY = ", on a copy of the frame's label file (`timecycle check` writes copies of the frames to fix to review/)"
