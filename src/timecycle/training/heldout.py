"""Held-out clips: score an encoder on clips that are never trained on, without labels."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from timecycle.data.augment.clips import ClipReader
from timecycle.data.augment.views import ViewConfig, apply_view, choose_view, photometric, view_to_view
from timecycle.data.corpus.order import generator
from timecycle.files import make_folder
from timecycle.model.encoder import FeatureMap
from timecycle.model.resnet import ResNet, grid_of
from timecycle.pose import cell_centres
from timecycle.propagation.flow import consistent, match
from timecycle.render import match_lines, save_picture
from timecycle.training.health import feature_health
from timecycle.training.learner import encode
from timecycle.training.validation import cycle_accuracy, moving_cells, warp_accuracy

_SEED = 20_190_318  # the same clips and warps for every run, whatever its own seed
_BATCH = 16  # images
_GAIN = 0.01  # of an accuracy: less is noise
_FEWEST_CLIPS = 2000  # with fewer, scores hardly differ from those of random weights (docs/research/learning.md)


@dataclass(frozen=True)
class HeldOutScores:
    """Label-free scores on held-out clips: shares from 0 to 1, and figures of health."""

    warp_accuracy: float  # cells matched within a cell under a known warp and change of colours
    cycle_accuracy: float  # moving cells that return within a cell, forward and back over the clip
    static_share: float  # moving cells matched to their old position: high for a static solution
    effective_rank: float
    mean_cosine: float
    position_r2: float

    def figures(self) -> Mapping[str, float]:
        return asdict(self)


def fewest_steps(batch: int) -> int:
    """Return the number of steps, of so many clips each, below which nothing is learned."""
    return -(-_FEWEST_CLIPS // batch)


def recommendation(before: HeldOutScores | None, after: HeldOutScores, *, steps: int, batch: int) -> str:
    """Recommend the new or the initial weights, and more steps if there were too few; "" if neither applies."""
    few = f"{steps} step{' of ' if steps == 1 else 's of '}{batch} clips are too few to learn anything"
    enough = f"train for {fewest_steps(batch):,} or more"
    if before is None:
        return f"{few}: {enough}" if steps * batch < _FEWEST_CLIPS else ""
    gains = {name: after.figures()[name] - before.figures()[name] for name in ("warp_accuracy", "cycle_accuracy")}
    changes = ", ".join(f"{name.replace('_', ' ')} {gain:+.3f}" for name, gain in gains.items())
    if steps * batch < _FEWEST_CLIPS:
        return f"{few} ({changes} on held-out clips): keep the old weights, or {enough}"
    if min(gains.values()) >= 0 and max(gains.values()) > _GAIN:
        return f"better on held-out clips ({changes}): use the new weights"
    return f"no gain on held-out clips ({changes}): keep the old weights"


@dataclass(frozen=True, eq=False)
class HeldOutClips:
    """Held-out clips and two warped views of their first frames, with the maps between the views."""

    clips: UInt8[Tensor, "b n side side 3"]
    first: UInt8[Tensor, "b side side 3"]
    second: UInt8[Tensor, "b side side 3"]
    maps: Tensor

    @torch.no_grad()
    def score(self, encoder: ResNet) -> HeldOutScores:
        """Score an encoder in evaluation mode, always in fp32."""
        was_training = encoder.training
        encoder.eval()
        grid = grid_of(self.clips.shape[2])
        clips, count = self.clips, self.clips.shape[1]
        frames = _encode(encoder, clips.flatten(0, 1)).reshape(len(clips), count, -1, grid.y.cells, grid.x.cells)
        first, second = (_encode(encoder, view) for view in (self.first, self.second))
        encoder.train(was_training)
        cycle = cycle_accuracy(frames, moving_cells(clips, grid), grid)
        health = feature_health(frames[:, 0].flatten(2).transpose(1, 2), cell_centres(grid))
        return HeldOutScores(
            warp_accuracy=warp_accuracy(first, second, self.maps, grid),
            cycle_accuracy=cycle.returned,
            static_share=cycle.static,
            **health,
        )


def read_held_out(reader: ClipReader, count: int, *, side_px: int) -> HeldOutClips:
    """Read the first `count` clips of the held-out videos, at the size of training."""
    views = ViewConfig()
    clips, first, second, maps = [], [], [], []
    for number in range(count):
        epoch, position = divmod(number, len(reader))
        rng = generator(seed=_SEED, epoch=epoch, position=position)
        clip = reader.read(epoch, position, rng).frames
        edge = (clip.shape[1] - side_px) // 2
        clips.append(clip[:, edge : edge + side_px, edge : edge + side_px])
        cover = side_px / clip.shape[1]
        affines = [choose_view(views, rng, cover=cover) for _ in range(2)]
        images = [photometric(apply_view(clip[:1], affine, side_px), views, rng)[0] for affine in affines]
        first.append(images[0])
        second.append(images[1])
        maps.append(view_to_view(*affines))
    stacked = [torch.from_numpy(np.stack(arrays)) for arrays in (clips, first, second)]
    return HeldOutClips(stacked[0], stacked[1], stacked[2], torch.stack(maps))


def _encode(encoder: ResNet, images: UInt8[Tensor, "images side side 3"]) -> Float[Tensor, "images c h w"]:
    """Encode images in batches, to bound the memory."""
    batches = [images[start : start + _BATCH] for start in range(0, len(images), _BATCH)]
    return torch.cat([encode(encoder, batch, bf16=False) for batch in batches])


@torch.no_grad()
def draw_matches(held_out: HeldOutClips, encoder: ResNet, path: Path, *, clips: int = 3) -> None:
    """Draw the forward-backward consistent matches between the first and last frames of a few clips."""
    grid = grid_of(held_out.clips.shape[2])
    rows = []
    for clip in held_out.clips[:clips]:
        a, b = encode(encoder, clip[[0, -1]], bf16=False)
        maps = [FeatureMap(features.permute(1, 2, 0), grid) for features in (a, b)]
        found = match(*maps)
        sure = consistent(found, match(*reversed(maps)))
        rows.append(match_lines(clip[0].numpy(), clip[-1].numpy(), found.start, found.end, reliable=sure))
    make_folder(path.parent)
    save_picture(path, np.concatenate(rows))
