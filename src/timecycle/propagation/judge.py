"""Gathers the evidence for every frame while labels are carried, from features that are there anyway."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.grid import Grid
from timecycle.labels.soft import SoftMap
from timecycle.labels.space import Labels, Presence, Space, is_of_points
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.confidence import Confidence, Form, certain, judge
from timecycle.propagation.evidence import Evidence, Witness, gather, margin_of
from timecycle.propagation.memory import Memory, Remembered
from timecycle.propagation.nearest import two_nearest
from timecycle.propagation.neighbours import Packing
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.trail import Trail

_MOST_DRAWINGS = 6  # that a frame is held against: two for one object, more where objects were drawn apart


@dataclass(kw_only=True, eq=False)
class Judge:
    """Holds frames against the oldest one that votes and the nearest drawings, which are encoded once more."""

    space: Space
    labels: Mapping[int, Labels]
    encode: Callable[[int], FeatureMap]  # of a frame by its number, with a grid over the frame at its own size
    config: PropagateConfig
    _drawings: OrderedDict[int, Witness] = field(default_factory=OrderedDict)
    _presence: dict[int, tuple[Presence | None, ...]] = field(init=False)  # of the objects on each annotated frame
    _shown: dict[int, Bool[Tensor, " objects"]] = field(init=False)  # which of them are annotated there
    _showing: list[list[int]] = field(init=False)  # of each object, the frames that show it, in order

    def __post_init__(self) -> None:
        self._presence = {index: self.space.presence(labels) for index, labels in self.labels.items()}
        self._shown = {
            index: torch.tensor([one is not None for one in presence], dtype=torch.bool)
            for index, presence in self._presence.items()
        }
        frames = sorted(self._shown)
        objects = range(len(self.space.objects))
        self._showing = [[frame for frame in frames if bool(self._shown[frame][place])] for place in objects]

    @property
    def form(self) -> Form:
        """Whether labels have an outline, or only a place."""
        return "place" if is_of_points(self.space) or self.space.objects == ("frame",) else "outline"

    def trail_after(self, index: int, soft: SoftMap, before: Trail | None) -> Trail:
        """How clear objects were on one pass's way to a frame, whose labels are `soft` by this pass alone."""
        extent = self.space.extent(soft)
        shown = self._shown.get(index)
        trail = before or Trail.begin(extent.shape[2])
        return trail.after(margin_of(extent, spread=is_of_points(self.space)), shown)

    def evidence(self, frame: Remembered, soft: SoftMap, trail: Trail, memory: Memory, grid: Grid) -> Evidence:
        """What speaks for the labels `soft` of a frame; `grid` is that of the encoded image."""
        past = next((other for other in reversed(memory.past) if other.index != frame.index), None)
        return gather(
            frame.cells,
            self.space.extent(soft.to(frame.cells.device)),
            packing=frame.packing,
            trail=trail,
            past=self._witness(past) if past is not None else None,
            drawings=self._nearest(frame.index),
            window=self.config.window(grid, labelled=False),
            drawing_window=self.config.window(grid, labelled=True),
            spread=is_of_points(self.space),
        )

    def confidence(
        self, index: int, evidence: Evidence | None, grid: Grid, *, knows: Bool[Tensor, " channels"]
    ) -> Confidence | None:
        """The confidence of a frame; none where there is nothing to say, before the first drawing."""
        presence = self._presence.get(index)
        annotated = [one for one in presence or () if one is not None]
        if presence is not None and len(annotated) == len(presence):
            return certain(self.space.objects, annotated, grid)
        if evidence is None:
            return None
        return judge(
            evidence,
            self.space.objects,
            grid,
            form=self.form,
            known=self._known(knows),
            presence=presence,
            early=[bool(frames) and index < frames[0] for frames in self._showing],
        )

    def of_objects(self, channels: Float[Tensor, " channels"]) -> Float[Tensor, " objects"]:
        """A number for each channel, as one for each object."""
        objects = len(self.space.objects)
        return channels[len(channels) - objects :] if objects >= len(channels) - 1 else channels.mean().expand(objects)

    def is_drawn(self, index: int) -> bool:
        """Whether a frame's labels were given whole, so that no evidence is needed."""
        return index in self._shown and bool(self._shown[index].all())

    def _witness(self, frame: Remembered) -> Witness:
        extent = self.space.extent(frame.soft).flatten(0, 1)
        return Witness(frame.cells, extent, frame.packing, self._known(frame.knows.cpu()))

    def _known(self, channels: Bool[Tensor, " channels"]) -> Bool[Tensor, " objects"]:
        return self.of_objects(channels.float()) > 0

    def _nearest(self, index: int) -> list[Witness]:
        """Two drawings of each object, the nearest of all objects first."""
        nearest: dict[int, Bool[Tensor, " objects"]] = {}
        pairs = [two_nearest(frames, index) for frames in self._showing]
        for rank in range(2):
            for place, frames in enumerate(pairs):
                if rank < len(frames) and (frames[rank] in nearest or len(nearest) < _MOST_DRAWINGS):
                    shows = nearest.setdefault(frames[rank], torch.zeros(len(pairs), dtype=torch.bool))
                    shows[place] = True
        return [replace(self._drawing(frame), shows=shows) for frame, shows in nearest.items()]

    def _drawing(self, index: int) -> Witness:
        if index not in self._drawings:
            features = self.encode(index)
            soft = self.space.to_soft(self.labels[index], features.grid).to(features.cells.device)
            extent = self.space.extent(soft).flatten(0, 1)
            self._drawings[index] = Witness(
                features.cells, extent, Packing(), torch.ones(extent.shape[1], dtype=torch.bool)
            )
            while len(self._drawings) > _MOST_DRAWINGS:
                self._drawings.popitem(last=False)
        self._drawings.move_to_end(index)
        return self._drawings[index]
