"""The trained module: encode a batch of images and compute the losses of the objective in one forward call."""

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from timecycle.grid import Grid
from timecycle.model.batch_norm import batch_norm_momentum
from timecycle.model.inference import IMAGENET_MEAN, IMAGENET_STD
from timecycle.model.resnet import ResNet, grid_of
from timecycle.model.tracker import Tracker
from timecycle.objectives import ObjectiveResult
from timecycle.objectives.cycles import cycle_losses
from timecycle.objectives.walks import PastedObjects, walk_losses
from timecycle.training.settings import TrainConfig, pick_precision

Batch = dict[str, Tensor]
Images = UInt8[Tensor, "images height width 3"]


class Learner(nn.Module):
    """An encoder, and the tracker if the objective needs one."""

    def __init__(self, encoder: ResNet, config: TrainConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.tracker = _tracker(config) if config.objective == "cycles" else None

    def forward(self, batch: Batch, *, seed: int, train_encoder: bool = True) -> ObjectiveResult:
        """Compute losses and figures of a batch; `seed` sets the random numbers of the objective."""
        if self.tracker is not None:
            return self._cycles(batch, self.tracker, train_encoder)
        generator = torch.Generator().manual_seed(seed)
        clips = torch.cat([batch["forward"], batch["backward"]])
        forward, backward = self._encode_clips(clips).chunk(2)
        grid, walks = grid_of(self.config.view_px), self.config.walks
        change = cell_change(batch["forward"][:, :2], grid)[:, 0] if walks.motion else None
        return walk_losses(
            forward,
            backward,
            batch["targets"],
            grid=grid,
            config=walks,
            visible=batch["visible"],
            pasted=PastedObjects(batch["start_objects"].long(), batch["end_objects"].long()) if walks.pasted else None,
            change=change,
            generator=generator,
        )

    def _cycles(self, batch: Batch, tracker: Tracker, train_encoder: bool) -> ObjectiveResult:
        with torch.set_grad_enabled(train_encoder and torch.is_grad_enabled()):
            frames = self._encode_clips(batch["frames"])
            with batch_norm_momentum(
                self.encoder, 0.0
            ):  # at inference the encoder never sees an image as small as a patch
                patch = self._encode(batch["patch"])
        return cycle_losses(frames, patch, batch["theta"], tracker=tracker, config=self.config.cycles)

    def _encode_clips(self, clips: UInt8[Tensor, "b n height width 3"]) -> Float[Tensor, "b n c h w"]:
        features = self._encode(clips.flatten(0, 1))
        return features.reshape(*clips.shape[:2], *features.shape[1:])

    def _encode(self, images: Images) -> Float[Tensor, "images c h w"]:
        return encode(self.encoder, images, bf16=pick_precision(self.config.precision) == "bf16")


def encode(encoder: ResNet, images: Images, *, bf16: bool) -> Float[Tensor, "images c h w"]:
    """Encode images to L2-normalised features, in fp32 whatever the precision of the convolutions."""
    mean, std = (torch.tensor(values) * 255 for values in (IMAGENET_MEAN, IMAGENET_STD))
    # Channels are last in memory already.
    pixels = ((images - mean) / std).permute(0, 3, 1, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        learned = encoder.learned(pixels)
    return F.normalize(learned.float(), dim=1)


def cell_change(clips: UInt8[Tensor, "b n height width 3"], grid: Grid) -> Float[Tensor, "b steps cells"]:
    """Return the mean absolute difference of each frame to the next over each feature cell, in levels of 255."""
    change = (clips[:, 1:].float() - clips[:, :-1].float()).abs().mean(dim=-1)
    return torch.einsum("yh,bnhw,xw->bnyx", grid.y.area(), change, grid.x.area()).flatten(2)


def _tracker(config: TrainConfig) -> Tracker:
    return Tracker(
        config.cycles.localizer,
        frame_grid=grid_of(config.clips.crop_px),
        patch_grid=grid_of(config.patches.patch_px),
        temperature=config.cycles.temperature,
    )
