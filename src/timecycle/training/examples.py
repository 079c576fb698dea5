"""From a position in the order of samples to the arrays an objective learns from: pure functions of the position."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from torch import Tensor

from timecycle.data.bends import bent, choose_bend
from timecycle.data.clips import ClipReader
from timecycle.data.order import Place, generator, places
from timecycle.data.pastes import choose_thing, covering, paste, way_back
from timecycle.data.patches import choose_patch, cut_patch
from timecycle.data.views import apply_view, choose_view, photometric
from timecycle.model.resnet import grid_of
from timecycle.pose import cell_places
from timecycle.training.settings import TrainConfig


@dataclass(frozen=True, eq=False)
class CycleExample:
    """A clip, oldest frame first, and a patch of its last frame."""

    frames: UInt8[np.ndarray, "n side side 3"]
    patch: UInt8[np.ndarray, "p p 3"]
    theta: Float32[Tensor, "3"]


@dataclass(frozen=True, eq=False)
class WalkExample:
    """A clip in two views, and where the cells of the first one's first frame lie in the second, if nothing hides
    them. `on` and `home` tell which thing the cells of either first frame lie on."""

    out: UInt8[np.ndarray, "n side side 3"]
    back: UInt8[np.ndarray, "n side side 3"]
    places: Float32[Tensor, "cells 2"]
    visible: Bool[Tensor, "cells"]
    on: UInt8[Tensor, "cells"]
    home: UInt8[Tensor, "cells"]


@dataclass(frozen=True)
class Examples:
    """Makes the example of any position."""

    reader: ClipReader
    config: TrainConfig

    def __call__(self, epoch: int, position: int) -> CycleExample | WalkExample:
        rng = generator(seed=self.config.seed, epoch=epoch, position=position)
        clip = self.reader.read(epoch, position, rng).frames
        if self.config.objective == "cycles":
            return self._cycle(clip, rng)
        return self._walk(clip, epoch, position, rng)

    def parts(self, steps: range, rank: int = 0, world: int = 1) -> Iterator[Sequence[Place]]:
        """The places of every part of these steps; all processes together take each batch once."""
        accumulate = self.config.accumulate
        share = self.config.batch // accumulate
        for part in range(steps.start * accumulate, steps.stop * accumulate):
            yield places(part, batch=share, rank=rank, world=world, count=len(self.reader))

    def _cycle(self, clip: UInt8[np.ndarray, "n side side 3"], rng: np.random.Generator) -> CycleExample:
        theta = choose_patch(clip, self.config.patches, rng)
        patch = cut_patch(clip[-1], theta, self.config.patches.patch_px)
        # The patch may look different from its frame: colours alone must not find it.
        return CycleExample(clip, photometric(patch[None], self.config.views, rng)[0], theta)

    def _walk(
        self, clip: UInt8[np.ndarray, "n side side 3"], epoch: int, position: int, rng: np.random.Generator
    ) -> WalkExample:
        size, config = self.config.view_px, self.config.views
        cover = min(size / clip.shape[1], 1.0)
        maps = (choose_view(config, rng, cover=cover), choose_view(config, rng, cover=cover))
        views = [apply_view(clip, affine, size) for affine in maps]
        things = []
        for _ in range(int(rng.integers(self.config.pastes.most + 1))):
            other = self.reader.near(position, rng)
            alike = rng.random() < self.config.pastes.alike
            source = clip[:, :, ::-1].copy() if alike else self.reader.read(epoch, other, rng).frames
            thing = choose_thing(self.config.pastes, rng, frames=len(clip), cover=cover)
            views = [paste(view, source, thing, way) for view, way in zip(views, thing.placings, strict=True)]
            things.append(thing)
        cells = cell_places(grid_of(size))
        if config.bend:
            bends = choose_bend(config.bend, rng), choose_bend(config.bend, rng)
            # The end of the way, the first frame of the second view, stays as it is: there its place is known.
            views = [bent(views[0], bends[0]), bent(views[1], bends[1], first=1)]
            cells = bends[0].moved(cells, 0)
        out, back = (photometric(view, config, rng) for view in views)
        way = way_back(cells, maps, things)
        on, home = covering(cells, things, 0), covering(cell_places(grid_of(size)), things, 1)
        return WalkExample(out, back, way.places, way.visible, on, home)
