"""Clips that are never trained on, and what they say about an encoder."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from timecycle.data.clips import ClipReader
from timecycle.data.order import generator
from timecycle.data.views import ViewConfig, apply_view, choose_view, photometric, return_map
from timecycle.files import make_folder
from timecycle.model.encoder import FeatureMap
from timecycle.model.resnet import ResNet, grid_of
from timecycle.pose import cell_places
from timecycle.propagation.flow import consistent, match
from timecycle.render import match_lines, save_picture
from timecycle.training.health import examine
from timecycle.training.learner import encode
from timecycle.training.validation import cycle_accuracy, moving_cells, warp_accuracy

_SEED = 20_190_318  # the same clips and warps for every run, whatever its own seed
_BATCH = 16  # pictures
_GAIN = 0.01  # of an accuracy: less is noise
_FEWEST_CLIPS = 2000  # before so many were seen, figures hardly leave those of random weights (docs/learning.md)


@dataclass(frozen=True)
class Verdict:
    """What held-out clips say, without a label: shares from 0 to 1, and figures of health."""

    warp_accuracy: float  # cells found within a cell under a known warp and change of colours
    cycle_accuracy: float  # moving cells that come home within a cell, out and back over the clip
    static_share: float  # moving cells matched to where they were: high for a static solution
    effective_rank: float
    mean_cosine: float
    position_r2: float

    def figures(self) -> Mapping[str, float]:
        return asdict(self)


def fewest_steps(batch: int) -> int:
    """Steps of so many clips from which on something may have been learned."""
    return -(-_FEWEST_CLIPS // batch)


def verdict(before: Verdict | None, after: Verdict, *, steps: int, batch: int) -> str:
    """Say whether training helped, compared with the weights it started from; nothing where there is nothing to say."""
    few = f"{steps} step{' of ' if steps == 1 else 's of '}{batch} clips are too few to learn anything"
    enough = f"train for {fewest_steps(batch):,} or more"
    if before is None:
        return f"{few}: {enough}" if steps * batch < _FEWEST_CLIPS else ""
    gains = {name: after.figures()[name] - before.figures()[name] for name in ("warp_accuracy", "cycle_accuracy")}
    told = ", ".join(f"{name.replace('_', ' ')} {gain:+.3f}" for name, gain in gains.items())
    if steps * batch < _FEWEST_CLIPS:
        return f"{few} ({told} on held-out clips): keep the old weights, or {enough}"
    if min(gains.values()) >= 0 and max(gains.values()) > _GAIN:
        return f"better on held-out clips ({told}): use the new weights"
    return f"no gain on held-out clips ({told}): keep the old weights"


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The clips, read once, with their warped views."""

    clips: UInt8[Tensor, "b n side side 3"]
    first: UInt8[Tensor, "b side side 3"]
    second: UInt8[Tensor, "b side side 3"]
    maps: Tensor

    @torch.no_grad()
    def judge(self, encoder: ResNet) -> Verdict:
        """The verdict on an encoder in evaluation mode, always in fp32."""
        was_training = encoder.training
        encoder.eval()
        grid = grid_of(self.clips.shape[2])
        count = self.clips.shape[1]
        clips, count = self.clips, self.clips.shape[1]
        frames = _encode(encoder, clips.flatten(0, 1)).reshape(len(clips), count, -1, grid.y.cells, grid.x.cells)
        first, second = (_encode(encoder, view) for view in (self.first, self.second))
        encoder.train(was_training)
        cycle = cycle_accuracy(frames, moving_cells(self.clips, grid), grid)
        health = examine(frames[:, 0].flatten(2).transpose(1, 2), cell_places(grid))
        return Verdict(
            warp_accuracy=warp_accuracy(first, second, self.maps, grid),
            cycle_accuracy=cycle.home,
            static_share=cycle.stayed,
            **health,
        )


def read_held_out(reader: ClipReader, count: int, *, side_px: int) -> HeldOut:
    """The first clips of the held-out videos' order, at the size that is trained on."""
    warps = ViewConfig()
    clips, first, second, maps = [], [], [], []
    for number in range(count):
        epoch, position = divmod(number, len(reader))
        rng = generator(seed=_SEED, epoch=epoch, position=position)
        clip = reader.read(epoch, position, rng).frames
        edge = (clip.shape[1] - side_px) // 2
        clips.append(clip[:, edge : edge + side_px, edge : edge + side_px])
        cover = side_px / clip.shape[1]
        affines = [choose_view(warps, rng, cover=cover) for _ in range(2)]
        shown = [photometric(apply_view(clip[:1], affine, side_px), warps, rng)[0] for affine in affines]
        first.append(shown[0])
        second.append(shown[1])
        maps.append(return_map(*affines))
    stacked = [torch.from_numpy(np.stack(part)) for part in (clips, first, second)]
    return HeldOut(stacked[0], stacked[1], stacked[2], torch.stack(maps))


def _encode(encoder: ResNet, pictures: UInt8[Tensor, "images side side 3"]) -> Float[Tensor, "images c h w"]:
    """In parts, so that many clips need no more memory than a few."""
    parts = [pictures[at : at + _BATCH] for at in range(0, len(pictures), _BATCH)]
    return torch.cat([encode(encoder, part, bf16=False) for part in parts])


@torch.no_grad()
def draw_matches(held_out: HeldOut, encoder: ResNet, path: Path, *, clips: int = 3) -> None:
    """A picture of where cells of a clip's first frame are found in its last, where both directions agree."""
    grid = grid_of(held_out.clips.shape[2])
    rows = []
    for clip in held_out.clips[:clips]:
        a, b = encode(encoder, clip[[0, -1]], bf16=False)
        maps = [FeatureMap(features.permute(1, 2, 0), grid) for features in (a, b)]
        found = match(*maps)
        sure = consistent(found, match(*reversed(maps)))
        rows.append(match_lines(clip[0].numpy(), clip[-1].numpy(), found.start, found.end, sure=sure))
    make_folder(path.parent)
    save_picture(path, np.concatenate(rows))
