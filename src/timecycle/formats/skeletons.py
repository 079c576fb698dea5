"""Keypoints of several individuals: `mouse1/nose` is the point `nose` of the individual `mouse1`."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from timecycle.formats.video_labels import LabelsByFrame
from timecycle.labels import Keypoints

_SEPARATOR = "/"


@dataclass(frozen=True)
class Skeletons:
    """The individuals and the parts of their bodies in the names of points; one individual without a name has ""."""

    individuals: tuple[str, ...]
    parts: tuple[str, ...]

    @classmethod
    def of_names(cls, names: Mapping[str, None]) -> "Skeletons":
        """Split names at their first slash, if every name has one."""
        split = [name.split(_SEPARATOR, 1) for name in names]
        if split and all(len(one) == 2 and all(one) for one in split):
            individuals, parts = (tuple(dict.fromkeys(one[i] for one in split)) for i in (0, 1))
            return cls(individuals, parts)
        return cls(("",), tuple(names))

    @classmethod
    def of(cls, labels: LabelsByFrame) -> "Skeletons":
        """Return the individuals and parts of all frames, in the order in which they appear."""
        names: dict[str, None] = {}
        for one in labels.values():
            if isinstance(one, Keypoints):
                names |= dict.fromkeys(one.names)
        return cls.of_names(names)

    def name(self, individual: str, part: str) -> str:
        """Return the name of a point."""
        return f"{individual}{_SEPARATOR}{part}" if individual else part

    def split(self, points: Keypoints) -> dict[str, Keypoints]:
        """Return all parts of each individual that has a point on the frame; missing parts have no position."""
        found = {}
        position = {name: i for i, name in enumerate(points.names)}
        for individual in self.individuals:
            indices = [position.get(self.name(individual, part)) for part in self.parts]
            if all(i is None for i in indices):
                continue
            xy = np.array([points.xy[i] if i is not None else (np.nan, np.nan) for i in indices], np.float32)
            visible = np.array([i is not None and bool(points.visible[i]) for i in indices], bool)
            confidence = None
            if points.confidence is not None:
                confidence = np.array([np.nan if i is None else points.confidence[i] for i in indices], np.float32)
            found[individual] = Keypoints(self.parts, xy, visible, confidence)
        return found


def join_instances(instances: Mapping[str, Keypoints], *, several: bool) -> Keypoints:
    """Return the points of all individuals as one set; with `several`, names begin with the individual's."""
    names: list[str] = []
    for individual, points in instances.items():
        names += [f"{individual}{_SEPARATOR}{name}" if several else name for name in points.names]
    if not instances:
        return Keypoints((), np.zeros((0, 2), np.float32), np.zeros(0, bool))
    confidences = [
        np.full(len(one.names), np.nan, np.float32) if one.confidence is None else one.confidence
        for one in instances.values()
    ]
    confidence = np.concatenate(confidences)
    return Keypoints(
        tuple(names),
        np.concatenate([one.xy for one in instances.values()]),
        np.concatenate([one.visible for one in instances.values()]),
        None if np.isnan(confidence).all() else confidence,
    )
