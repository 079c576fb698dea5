"""Make the training example of a sample, as a pure function of its epoch and position."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from torch import Tensor

from timecycle.data.augment.clips import ClipReader
from timecycle.data.augment.copy_paste import choose_object, map_points, objects_at, paste
from timecycle.data.augment.elastic import apply_warp, choose_warp
from timecycle.data.augment.patches import choose_patch, cut_patch
from timecycle.data.augment.views import apply_view, choose_view, photometric
from timecycle.data.corpus.order import SampleKey, generator, sample_keys
from timecycle.model.resnet import grid_of
from timecycle.pose import cell_centres
from timecycle.training.settings import TrainConfig


@dataclass(frozen=True, eq=False)
class CycleExample:
    """A clip, oldest frame first, and a patch of its last frame."""

    frames: UInt8[np.ndarray, "n side side 3"]
    patch: UInt8[np.ndarray, "p p 3"]
    theta: Float32[Tensor, "3"]


@dataclass(frozen=True, eq=False)
class WalkExample:
    """A clip in two views, and the positions of the first view's first cells in the second view.

    Targets and visibility are of the cells of the first frame. Objects number what each cell of the two views' first
    frames shows: 0 is the background.
    """

    forward: UInt8[np.ndarray, "n side side 3"]
    backward: UInt8[np.ndarray, "n side side 3"]
    targets: Float32[Tensor, "cells 2"]
    visible: Bool[Tensor, "cells"]
    start_objects: UInt8[Tensor, "cells"]
    end_objects: UInt8[Tensor, "cells"]


@dataclass(frozen=True)
class Examples:
    """Makes the example of every sample."""

    reader: ClipReader
    config: TrainConfig

    def __call__(self, epoch: int, position: int) -> CycleExample | WalkExample:
        rng = generator(seed=self.config.seed, epoch=epoch, position=position)
        clip = self.reader.read(epoch, position, rng).frames
        if self.config.objective == "cycles":
            return self._cycle(clip, rng)
        return self._walk(clip, epoch, position, rng)

    def micro_batches(self, steps: range, rank: int = 0, world_size: int = 1) -> Iterator[Sequence[SampleKey]]:
        """Yield the samples of every micro-batch of these steps; the processes together take each batch once."""
        accumulate = self.config.accumulate
        share = self.config.batch // accumulate
        for micro_batch in range(steps.start * accumulate, steps.stop * accumulate):
            yield sample_keys(micro_batch, batch=share, rank=rank, world_size=world_size, count=len(self.reader))

    def _cycle(self, clip: UInt8[np.ndarray, "n side side 3"], rng: np.random.Generator) -> CycleExample:
        theta = choose_patch(clip, self.config.patches, rng)
        patch = cut_patch(clip[-1], theta, self.config.patches.patch_px)
        # The patch may have other colours than its frame, so that colours alone do not match it.
        return CycleExample(clip, photometric(patch[None], self.config.views, rng)[0], theta)

    def _walk(
        self, clip: UInt8[np.ndarray, "n side side 3"], epoch: int, position: int, rng: np.random.Generator
    ) -> WalkExample:
        size, config = self.config.view_px, self.config.views
        cover = min(size / clip.shape[1], 1.0)
        maps = (choose_view(config, rng, cover=cover), choose_view(config, rng, cover=cover))
        views = [apply_view(clip, affine, size) for affine in maps]
        objects = []
        for _ in range(int(rng.integers(self.config.copy_paste.most + 1))):
            other = self.reader.nearby(position, rng)
            alike = rng.random() < self.config.copy_paste.alike
            source = clip[:, :, ::-1].copy() if alike else self.reader.read(epoch, other, rng).frames
            pasted = choose_object(self.config.copy_paste, rng, frames=len(clip), cover=cover)
            views = [paste(view, source, pasted, moves) for view, moves in zip(views, pasted.transforms, strict=True)]
            objects.append(pasted)
        cells = cell_centres(grid_of(size))
        if config.elastic:
            warps = choose_warp(config.elastic, rng), choose_warp(config.elastic, rng)
            # The walk ends in the first frame of the second view: it stays unwarped, so that the targets are exact.
            views = [apply_warp(views[0], warps[0]), apply_warp(views[1], warps[1], first=1)]
            cells = warps[0].displace(cells, 0)
        forward, backward = (photometric(view, config, rng) for view in views)
        targets, visible = map_points(cells, maps, objects)
        starts, ends = objects_at(cells, objects, 0), objects_at(cell_centres(grid_of(size)), objects, 1)
        return WalkExample(forward, backward, targets, visible, starts, ends)
