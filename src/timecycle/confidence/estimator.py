"""Estimate the confidence of every frame during propagation, from feature maps that are there anyway."""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from timecycle.confidence.fusion import Confidence, WeightSet, certain, estimate
from timecycle.confidence.history import History
from timecycle.confidence.signals import ComparisonFrame, Signals, compute_signals, margins
from timecycle.grid import Grid
from timecycle.labels.guided import guide_of, mean_colours
from timecycle.labels.label_map import LabelMap, LabelValues
from timecycle.labels.space import Labels, Presence, Space, is_point_space, sharpen
from timecycle.matching.neighbours import Packing
from timecycle.matching.window import Window
from timecycle.model.encoder import FeatureMap

_MAX_ANNOTATED = 6  # frames to compare with: two for each object, more where objects were annotated on different frames


@dataclass(kw_only=True, eq=False)
class ConfidenceEstimator:
    """Compares frames with the oldest frame in memory and with the nearest annotated frames, which it encodes again."""

    space: Space
    labels: Mapping[int, Labels]  # the annotations, by frame
    encode: Callable[[int], FeatureMap]  # of a frame by its index, with the grid of the frame at its own size
    sharpening: float = 1.0  # of the label maps
    _annotated_frames: OrderedDict[int, ComparisonFrame] = field(default_factory=OrderedDict)
    _presence: dict[int, tuple[Presence | None, ...]] = field(init=False)  # of the objects on each annotated frame
    _annotated: dict[int, Bool[Tensor, " objects"]] = field(init=False)  # which objects are annotated there
    _frames_of_object: list[list[int]] = field(init=False)  # on which each object is annotated, ascending

    def __post_init__(self) -> None:
        self._presence = {index: self.space.presence(labels) for index, labels in self.labels.items()}
        self._annotated = {
            index: torch.tensor([one is not None for one in presence], dtype=torch.bool)
            for index, presence in self._presence.items()
        }
        frames = sorted(self._annotated)
        self._frames_of_object = [
            [frame for frame in frames if bool(self._annotated[frame][i])] for i in range(len(self.space.objects))
        ]

    @property
    def weight_set(self) -> WeightSet:
        """Which fitted weights apply: those of labels with an outline, or of points."""
        return "point" if is_point_space(self.space) or self.space.objects == ("frame",) else "region"

    def history_after(self, index: int, labels: LabelMap, before: History | None) -> History:
        """Return the history after a frame whose label map comes from one pass alone."""
        votes = self.space.extent(self._votes(labels.of_cells()))
        history = before or History.begin(votes.shape[2])
        return history.after(margins(votes, points=is_point_space(self.space)), self._annotated.get(index))

    def signals(
        self,
        index: int,
        features: FeatureMap,
        packing: Packing,
        labels: LabelMap,
        *,
        history: History,
        past: ComparisonFrame | None,
        annotation_window: Window | None,
        image: UInt8[np.ndarray, "height width 3"] | None = None,
    ) -> Signals:
        """Compute the signals of a frame from its features, its label map and its image."""
        values = labels.of_cells().to(features.cells.device)
        return compute_signals(
            features.cells,
            self.space.extent(values),
            votes=self.space.extent(self._votes(values)),
            packing=packing,
            history=history,
            past=past,
            annotated=[replace(frame, window=annotation_window) for frame in self._nearest_annotated(index)],
            colours=None if image is None else mean_colours(guide_of(image), features.grid.rescaled(*image.shape[:2])),
            points=is_point_space(self.space),
        )

    def confidence(
        self, index: int, signals: Signals | None, grid: Grid, *, known: Bool[Tensor, " channels"]
    ) -> Confidence | None:
        """Return the confidence of a frame; None where nothing is known, before the first annotation."""
        presence = self._presence.get(index)
        annotated = [one for one in presence or () if one is not None]
        if presence is not None and len(annotated) == len(presence):
            return certain(self.space.objects, annotated, grid)
        if signals is None:
            return None
        return estimate(
            signals,
            self.space.objects,
            grid,
            weight_set=self.weight_set,
            known=self._known_objects(known),
            presence=presence,
            before_annotation=[bool(frames) and index < frames[0] for frames in self._frames_of_object],
        )

    def per_object(self, channels: Float[Tensor, " channels"]) -> Float[Tensor, " objects"]:
        """Convert a value per channel into one per object."""
        objects = len(self.space.objects)
        return channels[len(channels) - objects :] if objects >= len(channels) - 1 else channels.mean().expand(objects)

    def is_fully_annotated(self, index: int) -> bool:
        """Return whether all objects are annotated on a frame, which then needs no signals."""
        return index in self._annotated and bool(self._annotated[index].all())

    def comparison_frame(
        self, features: FeatureMap, labels: LabelMap, packing: Packing, window: Window | None
    ) -> ComparisonFrame:
        """Make a frame to compare with, from its features and its label map."""
        extent = self.space.extent(labels.of_cells()).flatten(0, 1)
        return ComparisonFrame(features.cells, extent, packing, window, self._known_objects(labels.known.cpu()))

    def _votes(self, values: LabelValues) -> LabelValues:
        """Return labels as they were before sharpening, which hides how clear the votes were."""
        return sharpen(values, 1 / self.sharpening) if self.space.exclusive else values

    def _known_objects(self, channels: Bool[Tensor, " channels"]) -> Bool[Tensor, " objects"]:
        return self.per_object(channels.float()) > 0

    def _nearest_annotated(self, index: int) -> list[ComparisonFrame]:
        """Return the two nearest annotated frames of each object, the nearest of all objects first."""
        nearest: dict[int, Bool[Tensor, " objects"]] = {}
        pairs = [two_nearest(frames, index) for frames in self._frames_of_object]
        for rank in range(2):
            for i, frames in enumerate(pairs):
                if rank < len(frames) and (frames[rank] in nearest or len(nearest) < _MAX_ANNOTATED):
                    objects = nearest.setdefault(frames[rank], torch.zeros(len(pairs), dtype=torch.bool))
                    objects[i] = True
        return [replace(self._annotated_frame(frame), objects=objects) for frame, objects in nearest.items()]

    def _annotated_frame(self, index: int) -> ComparisonFrame:
        if index not in self._annotated_frames:
            features = self.encode(index)
            values = self.space.encode(self.labels[index], features.grid).to(features.cells.device)
            extent = self.space.extent(values).flatten(0, 1)
            self._annotated_frames[index] = ComparisonFrame(
                features.cells, extent, Packing(), None, torch.ones(extent.shape[1], dtype=torch.bool)
            )
            while len(self._annotated_frames) > _MAX_ANNOTATED:
                self._annotated_frames.popitem(last=False)
        self._annotated_frames.move_to_end(index)
        return self._annotated_frames[index]


def two_nearest(frames: Sequence[int], index: int) -> list[int]:
    """Return the nearest of the ascending `frames` before and after `index`, or two on one side, nearest first.

    One annotated frame alone can agree with wrong labels: where an object fills the image, everything that follows
    looks like part of it. A second one shows the difference.
    """
    stop, start = bisect_left(frames, index), bisect_right(frames, index)
    if stop and start < len(frames):
        pair = [frames[stop - 1], frames[start]]
    else:
        pair = [*frames[max(stop - 2, 0) : stop], *frames[start : start + 2]]
    return sorted(pair, key=lambda frame: abs(frame - index))
