"""The module that learns: pixels of a batch in, the objective's outcome out. One forward call for any objective."""

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from timecycle.cycles import cycle_losses
from timecycle.model.inference import IMAGENET_MEAN, IMAGENET_STD
from timecycle.model.objective import Outcome
from timecycle.model.resnet import ResNet, grid_of
from timecycle.model.statistics import remembering
from timecycle.model.tracker import Tracker
from timecycle.training.motion import cell_change
from timecycle.training.settings import TrainConfig, pick_precision
from timecycle.walks import Things, walk_losses

Batch = dict[str, Tensor]
Pictures = UInt8[Tensor, "images height width 3"]


class Learner(nn.Module):
    """An encoder and what its objective needs besides it."""

    def __init__(self, encoder: ResNet, config: TrainConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.tracker = _tracker(config) if config.objective == "cycles" else None

    def forward(self, batch: Batch, *, seed: int, encoder_learns: bool = True) -> Outcome:
        """The outcome on a batch; `seed` decides what an objective draws at random."""
        if self.tracker is not None:
            return self._cycles(batch, self.tracker, encoder_learns)
        generator = torch.Generator().manual_seed(seed)
        clips = torch.cat([batch["out"], batch["back"]])
        out, back = self._encode_clips(clips).chunk(2)
        grid, walks = grid_of(self.config.view_px), self.config.walks
        change = cell_change(batch["out"][:, :2], grid)[:, 0] if walks.motion else None
        return walk_losses(
            out,
            back,
            batch["places"],
            grid=grid,
            config=walks,
            visible=batch["visible"],
            things=Things(batch["on"].long(), batch["home"].long()) if walks.things else None,
            change=change,
            generator=generator,
        )

    def _cycles(self, batch: Batch, tracker: Tracker, encoder_learns: bool) -> Outcome:
        with torch.set_grad_enabled(encoder_learns and torch.is_grad_enabled()):
            frames = self._encode_clips(batch["frames"])
            with remembering(self.encoder, 0.0):  # at test time the encoder never sees anything as small as a patch
                patch = self._encode(batch["patch"])
        return cycle_losses(frames, patch, batch["theta"], tracker=tracker, config=self.config.cycles)

    def _encode_clips(self, clips: UInt8[Tensor, "b n height width 3"]) -> Float[Tensor, "b n c h w"]:
        features = self._encode(clips.flatten(0, 1))
        return features.reshape(*clips.shape[:2], *features.shape[1:])

    def _encode(self, pictures: Pictures) -> Float[Tensor, "images c h w"]:
        return encode(self.encoder, pictures, bf16=pick_precision(self.config.precision) == "bf16")


def encode(encoder: ResNet, pictures: Pictures, *, bf16: bool) -> Float[Tensor, "images c h w"]:
    """What is learned, as descriptors of length one of every picture, in fp32 whatever the convolutions run in."""
    mean, std = (torch.tensor(values) * 255 for values in (IMAGENET_MEAN, IMAGENET_STD))
    # Channels are last in memory already.
    images = ((pictures - mean) / std).permute(0, 3, 1, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        learned = encoder.learned(images)
    return F.normalize(learned.float(), dim=1)


def _tracker(config: TrainConfig) -> Tracker:
    return Tracker(
        config.cycles.localizer,
        frame_grid=grid_of(config.clips.crop_px),
        patch_grid=grid_of(config.patches.patch_px),
        temperature=config.cycles.temperature,
    )
