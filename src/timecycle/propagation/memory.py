"""Who is remembered: labelled frames, and the last few frames. Its size never depends on the video's length."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.labels.soft import SoftMap
from timecycle.propagation.neighbours import Packing


@dataclass(frozen=True, eq=False)
class Remembered:
    """A frame that votes: its features, its soft labels and the channels it knows anything about."""

    index: int
    cells: Float[Tensor, "rows columns features"]
    soft: SoftMap
    knows: Bool[Tensor, " channels"]
    speaks: Bool[Tensor, " channels"] | None = None  # of a labelled frame: the channels its labels decide (on the CPU)
    packing: Packing = field(default_factory=Packing)  # of the features

    def __repr__(self) -> str:
        rows, columns, _ = self.cells.shape
        return f"Remembered(frame {self.index}, {columns}x{rows} cells{', labelled' if self.labelled else ''})"

    @property
    def labelled(self) -> bool:
        return self.speaks is not None


@dataclass
class Memory:
    """Labelled frames (the first of all, and the latest that are still needed) and the last `past_frames`."""

    past_frames: int
    anchor_frames: int
    anchors: list[Remembered] = field(default_factory=list)
    past: list[Remembered] = field(default_factory=list)

    def __iter__(self) -> Iterator[Remembered]:
        """Labelled frames first, then the past, newest first; this order decides ties between equal votes."""
        yield from self.anchors
        kept = {id(frame) for frame in self.anchors}
        yield from (frame for frame in self.past if id(frame) not in kept)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def remember(self, frame: Remembered) -> None:
        if frame.speaks is not None:
            self._supersede(frame.speaks)
        self.past = [frame, *self.past][: self.past_frames]
        if frame.labelled:
            self.anchors.append(frame)
            if len(self.anchors) > self.anchor_frames:
                self.anchors.remove(self._least_needed())

    def _supersede(self, speaks: Bool[Tensor, " channels"]) -> None:
        """What was only carried up to a drawing no longer counts for the objects drawn: a correction must win."""
        told = {id(frame): _without(frame, speaks) for frame in (*self.anchors, *self.past)}
        self.anchors = [told[id(frame)] for frame in self.anchors]
        self.past = [told[id(frame)] for frame in self.past if bool(told[id(frame)].knows.any())]

    def _least_needed(self) -> Remembered:
        """The oldest labelled frame whose every object another one shows. The newest stays, and if it can the first."""
        candidates = self.anchors[1:-1] or self.anchors[:-1] or self.anchors
        for frame in candidates:
            others = [a.speaks for a in self.anchors if a is not frame and a.speaks is not None]
            if frame.speaks is None or not bool((frame.speaks & ~torch.stack(others).any(dim=0)).any()):
                return frame
        return candidates[0]


def _without(frame: Remembered, speaks: Bool[Tensor, " channels"]) -> Remembered:
    """The frame without what it had only been told by others about these channels."""
    gone = speaks if frame.speaks is None else speaks & ~frame.speaks
    if not bool(gone.any()):
        return frame
    stays = ~gone.to(frame.knows.device)
    return replace(frame, knows=frame.knows & stays, soft=frame.soft * stays)
