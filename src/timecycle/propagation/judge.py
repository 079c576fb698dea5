"""Gathers the evidence for every frame while labels are carried, from features that are there anyway."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.grid import Grid
from timecycle.labels.soft import SoftMap
from timecycle.labels.space import Labels, Space
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.confidence import Confidence, Form, certain, judge
from timecycle.propagation.evidence import Evidence, Witness, gather, margin_of
from timecycle.propagation.memory import Memory, Remembered
from timecycle.propagation.neighbours import Packing
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.trail import Trail

_MOST_DRAWINGS = 4  # that a frame is held against


@dataclass(kw_only=True, eq=False)
class Judge:
    """Holds frames against the oldest one that votes and the nearest drawings, which are encoded once more."""

    space: Space
    labels: Mapping[int, Labels]
    encode: Callable[[int], FeatureMap]  # of a frame by its number, with a grid over the frame at its own size
    config: PropagateConfig
    _drawings: OrderedDict[int, Witness] = field(default_factory=OrderedDict)

    @property
    def form(self) -> Form:
        """Whether labels have an outline, or only a place."""
        return "place" if _is_spread(self.space) or self.space.objects == ("frame",) else "outline"

    def trail_after(self, index: int, soft: SoftMap, before: Trail | None) -> Trail:
        """How clear objects were on one pass's way to a frame, whose labels are `soft` by this pass alone."""
        extent = self.space.extent(soft)
        shown = self.space.shows(self.labels[index]) if index in self.labels else None
        trail = before or Trail.begin(extent.shape[2])
        return trail.after(margin_of(extent, spread=_is_spread(self.space)), shown)

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
            spread=_is_spread(self.space),
        )

    def confidence(self, index: int, evidence: Evidence | None, grid: Grid) -> Confidence | None:
        """The confidence of a frame; none where there is nothing to say, before the first drawing."""
        given = self.space.shows(self.labels[index]) if index in self.labels else None
        if given is not None and bool(given.all()):
            return certain(self.space.objects, grid)
        if evidence is None:
            return None
        return judge(evidence, self.space.objects, grid, form=self.form, given=given)

    def of_objects(self, channels: Float[Tensor, " channels"]) -> Float[Tensor, " objects"]:
        """A number for each channel, as one for each object."""
        objects = len(self.space.objects)
        return channels[-objects:] if objects >= len(channels) - 1 else channels.mean().expand(objects)

    def is_drawn(self, index: int) -> bool:
        """Whether a frame's labels were given whole, so that no evidence is needed."""
        return index in self.labels and bool(self.space.shows(self.labels[index]).all())

    def _witness(self, frame: Remembered) -> Witness:
        extent = self.space.extent(frame.soft).flatten(0, 1)
        return Witness(frame.cells, extent, frame.packing, torch.ones(extent.shape[1], dtype=torch.bool))

    def _nearest(self, index: int) -> list[Witness]:
        """The drawings before and after a frame, of each object its own."""
        shown: dict[int, Bool[Tensor, " objects"]] = {}
        for earlier in (True, False):
            frames = sorted((f for f in self.labels if f != index and (f < index) == earlier), reverse=earlier)
            missing = torch.ones(len(self.space.objects), dtype=torch.bool)
            for frame in frames:
                here = self.space.shows(self.labels[frame]) & missing
                if bool(here.any()):
                    shown[frame] = here
                    missing = missing & ~here
                if not bool(missing.any()):
                    break
        nearest = sorted(shown, key=lambda frame: abs(frame - index))[:_MOST_DRAWINGS]
        return [replace(self._drawing(frame), shows=shown[frame]) for frame in nearest]

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


def _is_spread(space: Space) -> bool:
    """Whether objects are points, whose weight is spread over cells that they never cover wholly."""
    return not space.exclusive and len(space.objects) == space.channels
