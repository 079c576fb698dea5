"""The memory bank: annotated frames and the last few frames. Its size never depends on the video's length."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.confidence.estimator import ConfidenceEstimator
from timecycle.confidence.history import History
from timecycle.confidence.signals import Signals
from timecycle.labels.label_map import LabelMap
from timecycle.matching.neighbours import Packing
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.frame_encoder import RgbImage
from timecycle.propagation.settings import PropagateConfig

Channels = Bool[Tensor, " channels"]


@dataclass(frozen=True, eq=False)
class MemoryFrame:
    """A reference frame: its features and its label map."""

    index: int
    features: FeatureMap
    labels: LabelMap  # its values are on the device of the features
    annotated: Channels | None = None  # of an annotated frame: the channels that its annotation decides (on the CPU)
    packing: Packing = field(default_factory=Packing)  # of the features

    @cached_property
    def label_blocks(self) -> Float[Tensor, "cells labels"]:
        """All labels of each feature cell in a row, as votes need them."""
        return self.labels.blocks()

    def __repr__(self) -> str:
        rows, columns, _ = self.features.cells.shape
        return f"MemoryFrame({self.index}, {columns}x{rows} cells{', annotated' if self.is_annotated else ''})"

    @property
    def is_annotated(self) -> bool:
        return self.annotated is not None


@dataclass
class Memory:
    """The reference frames that new frames are matched to.

    They are annotated frames (the first one, and the latest that are still needed), the last `past_frames` frames and,
    of the frames before these, one of every `older_interval`, up to `older_frames`.
    """

    past_frames: int
    anchor_frames: int
    older_frames: int = 0
    older_interval: int = 1
    anchors: list[MemoryFrame] = field(default_factory=list)
    past: list[MemoryFrame] = field(default_factory=list)  # newest first, the older ones last

    def __iter__(self) -> Iterator[MemoryFrame]:
        """Yield annotated frames first, then past frames, newest first; this order breaks ties between equal scores."""
        yield from self.anchors
        anchors = {id(frame) for frame in self.anchors}
        yield from (frame for frame in self.past if id(frame) not in anchors)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def add(self, frame: MemoryFrame) -> None:
        """Add a frame, and drop what it makes superfluous."""
        if frame.annotated is not None:
            self._forget_propagated(frame.annotated)
        past = [frame, *self.past]
        older = [one for one in past[self.past_frames :] if self._is_kept_longer(one)]
        self.past = [*past[: self.past_frames], *older[: self.older_frames]]
        if frame.is_annotated:
            self.anchors.append(frame)
            if len(self.anchors) > self.anchor_frames:
                self.anchors.remove(self._least_needed())

    @property
    def recent(self) -> list[MemoryFrame]:
        """The last `past_frames` frames, newest first."""
        return self.past[: self.past_frames]

    def _is_kept_longer(self, frame: MemoryFrame) -> bool:
        """Return whether a frame is one of every `older_interval` frames.

        They are counted from an annotated frame, not from the start of the video: a part of a video that begins with
        an annotated frame then keeps the same ones.
        """
        start = self.anchors[-1].index if self.anchors else 0
        return (frame.index - start) % self.older_interval == 0

    def _forget_propagated(self, annotated: Channels) -> None:
        """Forget what was only propagated about objects that are annotated now: an annotation must win."""
        kept = {id(frame): _without_propagated(frame, annotated) for frame in (*self.anchors, *self.past)}
        self.anchors = [kept[id(frame)] for frame in self.anchors]
        self.past = [kept[id(frame)] for frame in self.past if bool(kept[id(frame)].labels.known.any())]

    def _least_needed(self) -> MemoryFrame:
        """Return the oldest annotated frame whose every object another one shows; keep the newest and, if possible,
        the first."""
        candidates = self.anchors[1:-1] or self.anchors[:-1] or self.anchors
        for frame in candidates:
            others = [other.annotated for other in self.anchors if other is not frame and other.annotated is not None]
            if frame.annotated is None or not bool((frame.annotated & ~torch.stack(others).any(dim=0)).any()):
                return frame
        return candidates[0]


def memory_signals(
    estimator: ConfidenceEstimator,
    frame: MemoryFrame,
    labels: LabelMap,
    *,
    memory: Memory,
    history: History,
    config: PropagateConfig,
    image: RgbImage,
) -> Signals:
    """Compute the signals of a frame with this label map, compared with the oldest other recent frame."""
    past = next((other for other in reversed(memory.recent) if other.index != frame.index), None)
    grid = frame.features.grid
    window = config.window(grid, annotated=False)
    return estimator.signals(
        frame.index,
        frame.features,
        frame.packing,
        labels,
        history=history,
        past=None if past is None else estimator.comparison_frame(past.features, past.labels, past.packing, window),
        annotation_window=config.window(grid, annotated=True),
        image=image,
    )


def _without_propagated(frame: MemoryFrame, channels: Channels) -> MemoryFrame:
    """Return the frame without what was propagated, and not annotated on it, about these channels."""
    removed = channels if frame.annotated is None else channels & ~frame.annotated
    if not bool(removed.any()):
        return frame
    values = frame.labels.values * ~removed.to(frame.labels.values.device)
    labels = replace(frame.labels, known=frame.labels.known & ~removed, values=values)
    return replace(frame, labels=labels)
