"""Held-out clips: score an encoder on clips that are never trained on, without labels.

Warp accuracy: match each frame with a known affine view of itself in other colours; the share of cells whose nearest
neighbour is within a cell of the ground truth. Cycle accuracy: follow nearest neighbours from frame to frame, forward
and back; the share of *moving* cells that return within a cell. The share that never moved is high for a static
solution.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from timecycle.data.augment.clips import ClipReader
from timecycle.data.augment.views import ViewConfig, apply_view, choose_view, photometric, view_to_view
from timecycle.data.corpus.order import generator
from timecycle.device import host_tensor
from timecycle.files import make_folder
from timecycle.grid import Grid
from timecycle.model.encoder import FeatureMap
from timecycle.model.resnet import ResNet, grid_of
from timecycle.pose import cell_centres, map_cells
from timecycle.propagation.flow import consistent, match
from timecycle.render import match_lines, save_picture
from timecycle.training.health import feature_health
from timecycle.training.settings import Trained
from timecycle.training.step import cell_change, encode, trained_network

_SEED = 20_190_318  # the same clips and warps for every run, whatever its own seed
_BATCH = 16  # images
_GAIN = 0.01  # of an accuracy: less is noise
_FEWEST_CLIPS = 2000  # with fewer, scores hardly differ from those of random weights (docs/research/learning.md)
_MOVING_GREY = 12  # levels of 255: the least mean change of a moving cell from frame to frame

Features = Float[Tensor, "b c h w"]


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
    trained: Trained = "features"  # what is scored of an encoder

    @torch.no_grad()
    def score(self, encoder: ResNet) -> HeldOutScores:
        """Score an encoder in evaluation mode, always in fp32."""
        grid = grid_of(self.clips.shape[2])
        frames, first, second = self.encoded(encoder)
        returned, static = cycle_accuracy(frames, moving_cells(self.clips, grid), grid)
        health = feature_health(frames[:, 0].flatten(2).transpose(1, 2), cell_centres(grid))
        return HeldOutScores(
            warp_accuracy=warp_accuracy(first, second, self.maps, grid),
            cycle_accuracy=returned,
            static_share=static,
            **health,
        )

    @torch.no_grad()
    def encoded(self, encoder: ResNet) -> tuple[Float[Tensor, "b n c h w"], Features, Features]:
        """Encode the clips and both views in evaluation mode."""
        was_training = encoder.training
        encoder.eval()
        parts = (self.clips.flatten(0, 1), self.first, self.second)
        frames, first, second = (_encode(encoder, part, self.trained) for part in parts)
        encoder.train(was_training)
        return frames.reshape(*self.clips.shape[:2], *frames.shape[1:]), first, second


def read_held_out(reader: ClipReader, count: int, *, side_px: int, trained: Trained = "features") -> HeldOutClips:
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
    return HeldOutClips(stacked[0], stacked[1], stacked[2], torch.stack(maps), trained)


def _encode(
    encoder: ResNet, images: UInt8[Tensor, "images side side 3"], trained: Trained
) -> Float[Tensor, "images c h w"]:
    """Encode images in batches, to bound the memory."""
    batches = [images[start : start + _BATCH] for start in range(0, len(images), _BATCH)]
    device = next(encoder.parameters()).device
    network = trained_network(encoder, trained)
    features = [encode(network, batch.to(device), "fp32") for batch in batches]
    return host_tensor(torch.cat(features), "validation")  # where scores are computed, some of them in float64


@torch.no_grad()
def draw_matches(held_out: HeldOutClips, encoder: ResNet, path: Path, *, clips: int = 3) -> None:
    """Draw the forward-backward consistent matches between the first and last frames of a few clips."""
    grid = grid_of(held_out.clips.shape[2])
    rows = []
    for clip in held_out.clips[:clips]:
        a, b = _encode(encoder, clip[[0, -1]], held_out.trained)
        maps = [FeatureMap(features.permute(1, 2, 0), grid) for features in (a, b)]
        found = match(*maps)
        sure = consistent(found, match(*reversed(maps)))
        rows.append(match_lines(clip[0].numpy(), clip[-1].numpy(), found.start, found.end, reliable=sure))
    make_folder(path.parent)
    save_picture(path, np.concatenate(rows))


@torch.no_grad()
def warp_accuracy(first: Features, second: Features, maps: Float[Tensor, "b 2 3"], grid: Grid) -> float:
    """Return the share of cells of one view that are matched within a cell of the ground truth in the other."""
    ground_truth = map_cells(maps, grid)
    seen = ((ground_truth >= 0) & (ground_truth <= torch.tensor([grid.x.cells - 1, grid.y.cells - 1]))).all(dim=-1)
    matched = _positions(_nearest(first, second), grid)
    correct = (matched - ground_truth).abs().amax(dim=-1) <= 1
    return float((correct & seen).sum() / seen.sum().clamp_min(1))


@torch.no_grad()
def cycle_accuracy(
    frames: Float[Tensor, "b n c h w"], moving: Bool[Tensor, "b cells"], grid: Grid
) -> tuple[float, float]:
    """Follow nearest neighbours from the first frame to the last and back.

    Return the shares of the moving cells that return within a cell, and that are matched to their old position.
    """
    count = frames.shape[1]
    index = torch.arange(grid.cells).expand(len(frames), -1)
    start = _positions(index, grid)
    for step in range(1, count):
        index = _nearest(frames[:, step - 1], frames[:, step]).gather(1, index)
    end = _positions(index, grid)
    for step in range(count - 1, 0, -1):
        index = _nearest(frames[:, step], frames[:, step - 1]).gather(1, index)
    returned = (_positions(index, grid) - start).abs().amax(dim=-1) <= 1
    static = (end - start).abs().amax(dim=-1) < 1
    total = moving.sum().clamp_min(1)
    return float((returned & moving).sum() / total), float((static & moving).sum() / total)


def moving_cells(clips: UInt8[Tensor, "b n height width 3"], grid: Grid) -> Bool[Tensor, "b cells"]:
    """Return the cells of the first frame whose pixels change from every frame to the next."""
    return (cell_change(clips, grid) > _MOVING_GREY).all(dim=1)


def _nearest(a: Features, b: Features) -> Int[Tensor, "b cells"]:
    return torch.bmm(a.flatten(2).transpose(1, 2), b.flatten(2)).argmax(dim=2)


def _positions(index: Int[Tensor, "b cells"], grid: Grid) -> Float[Tensor, "b cells 2"]:
    return torch.stack([index % grid.x.cells, index // grid.x.cells], dim=-1).float()
