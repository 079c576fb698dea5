"""Which objects an annotation is about, and an annotation cut down to some of them."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from timecycle.labels.fitting import complete
from timecycle.labels.keypoints import Keypoints
from timecycle.labels.masks import Masks
from timecycle.labels.parts import Parts
from timecycle.labels.space import Labels

Objects = frozenset[str] | None  # by name; None: all objects there are


def annotated_objects(labels: Labels) -> Objects:
    """The objects that an annotation constrains; others keep being propagated through its frame."""
    if isinstance(labels, Masks | Parts) and not labels.complete:
        return frozenset(type(labels).space([labels]).objects)  # type: ignore[list-item]
    return frozenset(labels.names) if isinstance(labels, Keypoints) else None


def only(labels: Labels, objects: Objects) -> Labels:
    """The labels of these objects, as an annotation of no others."""
    if objects is None:
        return complete(labels)
    if isinstance(labels, Masks):
        return replace(labels, ids=np.where(_is_of(labels.ids, objects), labels.ids, 0).astype(np.uint16))
    if isinstance(labels, Parts):
        kept = _is_of(labels.pairs, objects)
        return replace(
            labels,
            part=np.where(kept, labels.part, 0).astype(np.uint16),
            person=np.where(kept, labels.person, 0).astype(np.uint16),
        )
    if isinstance(labels, Keypoints):
        places = [place for place, name in enumerate(labels.names) if name in objects]
        return Keypoints(tuple(labels.names[place] for place in places), labels.xy[places], labels.visible[places])
    return labels


def _is_of(values: np.ndarray, objects: Collection[str]) -> np.ndarray:
    return np.isin(values, [int(name) for name in objects])
