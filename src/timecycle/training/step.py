"""One training step: the trained module, the state of a run, and how a batch changes it."""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any, Self

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from timecycle.device import CPU, host_values, moved
from timecycle.errors import OutputError, first_line
from timecycle.grid import Grid
from timecycle.model.inference import IMAGENET_MEAN, IMAGENET_STD
from timecycle.model.resnet import ResNet, batch_norm_momentum, grid_of
from timecycle.model.tracker import Tracker
from timecycle.objectives import ObjectiveResult
from timecycle.objectives.cycles import cycle_losses
from timecycle.objectives.segments import find_segments
from timecycle.objectives.walks import PastedObjects, Regions, walk_losses
from timecycle.training.settings import TrainConfig, Trained, TrainPrecision, pick_precision

Batch = dict[str, Tensor]
Network = Callable[[Tensor], Tensor]  # images, normalised as for ImageNet, to features
Images = UInt8[Tensor, "images height width 3"]


def trained_network(encoder: ResNet, trained: Trained) -> Network:
    """Return what is trained, and validated, of an encoder."""
    if trained == "features":
        return encoder.learned
    return partial(encoder.activations, colour=trained == "coloured_descriptor")


class Learner(nn.Module):
    """An encoder, and the tracker if the objective needs one."""

    def __init__(self, encoder: ResNet, config: TrainConfig) -> None:
        super().__init__()
        self.config = config
        memory_format = torch.channels_last if config.channels_last else torch.contiguous_format
        self.encoder = encoder.to(memory_format=memory_format)  # type: ignore[call-overload]
        self.tracker = _tracker(config) if config.objective == "cycles" else None
        network = trained_network(self.encoder, config.trained)
        self._network: Network = torch.compile(network) if config.compile else network

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.config.batch_statistics == "frozen":
            for module in self.encoder.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
        return self

    def forward(self, batch: Batch, *, train_encoder: bool = True) -> ObjectiveResult:
        """Compute losses and figures of a batch, whose `seed` sets the random numbers of each clip."""
        seeds: list[int] = batch["seed"].tolist()  # always in the host's memory
        device = next(self.encoder.parameters()).device
        batch = moved({name: values for name, values in batch.items() if name != "seed"}, device)
        if self.tracker is not None:
            return self._cycles(batch, self.tracker, train_encoder)
        generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        forward, backward = self._encode_views(batch["forward"], batch["backward"])
        grid, walks = grid_of(self.config.view_px), self.config.walks
        amounts = {}
        if walks.motion:
            amounts["motion"] = cell_change(batch["forward"][:, :2], grid)[:, 0]
        if walks.contrast:
            amounts["contrast"] = cell_contrast(batch["forward"][:, 0], grid)
        return walk_losses(
            forward,
            backward,
            batch["targets"],
            grid=grid,
            config=walks,
            visible=batch["visible"],
            regions=self._regions(batch, generators),
            amounts=amounts,
            generators=generators,
        )

    def _regions(self, batch: Batch, generators: Sequence[torch.Generator]) -> Regions:
        walks, grid = self.config.walks, grid_of(self.config.view_px)
        if not (walks.pasted or walks.segments):
            return Regions()
        start, end = (batch[name].long() for name in ("start_objects", "end_objects"))
        count = self.config.copy_paste.most + 1
        segments = None
        if walks.segments:
            segments = find_segments(
                batch["forward"][:, 0],
                start,
                grid,
                object_count=count,
                most=walks.most_segments,
                generators=generators,
            )
        return Regions(PastedObjects(start, end, count=count) if walks.pasted else None, segments)

    def _cycles(self, batch: Batch, tracker: Tracker, train_encoder: bool) -> ObjectiveResult:
        with torch.set_grad_enabled(train_encoder and torch.is_grad_enabled()):
            frames = self._encode_clips(batch["frames"])
            with batch_norm_momentum(
                self.encoder, 0.0
            ):  # at inference the encoder never sees an image as small as a patch
                patch = self._encode(batch["patch"])
        return cycle_losses(frames, patch, batch["theta"], tracker=tracker, config=self.config.cycles)

    def _encode_views(
        self, forward: UInt8[Tensor, "b n height width 3"], backward: UInt8[Tensor, "b m height width 3"]
    ) -> tuple[Float[Tensor, "b n c h w"], Float[Tensor, "b m c h w"]]:
        """Encode the frames of both views as one batch."""
        images = [view.flatten(0, 1) for view in (forward, backward)]
        features = torch.split(self._encode(torch.cat(images)), [len(view) for view in images])
        out, back = (
            encoded.reshape(*view.shape[:2], *encoded.shape[1:])
            for encoded, view in zip(features, (forward, backward), strict=True)
        )
        return out, back

    def _encode_clips(self, clips: UInt8[Tensor, "b n height width 3"]) -> Float[Tensor, "b n c h w"]:
        features = self._encode(clips.flatten(0, 1))
        return features.reshape(*clips.shape[:2], *features.shape[1:])

    def _encode(self, images: Images) -> Float[Tensor, "images c h w"]:
        return encode(self._network, images, pick_precision(self.config.precision, images.device))


def encode(network: Network, images: Images, precision: TrainPrecision) -> Float[Tensor, "images c h w"]:
    """Encode images to L2-normalised features, in fp32 whatever the precision of the convolutions."""
    mean, std = _normalisation(images.device)
    # Channels are last in memory already.
    pixels = ((images - mean) / std).permute(0, 3, 1, 2)
    with _autocast(images.device, precision):
        learned = network(pixels)
    return F.normalize(learned.float(), dim=1)


@lru_cache(maxsize=4)
def _normalisation(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of colours (0 to 255); kept, because copying them waits."""
    mean, std = (torch.tensor(values, device=device) * 255 for values in (IMAGENET_MEAN, IMAGENET_STD))
    return mean, std


def _autocast(device: torch.device, precision: TrainPrecision) -> AbstractContextManager[None]:
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[precision])


def cell_change(clips: UInt8[Tensor, "b n height width 3"], grid: Grid) -> Float[Tensor, "b steps cells"]:
    """Return the mean absolute difference of each frame to the next over each feature cell, in levels of 255."""
    change = (clips[:, 1:].float() - clips[:, :-1].float()).abs().mean(dim=-1)
    rows, columns = (axis.area().to(clips.device) for axis in (grid.y, grid.x))
    return torch.einsum("yh,bnhw,xw->bnyx", rows, change, columns).flatten(2)


def cell_contrast(images: UInt8[Tensor, "b height width 3"], grid: Grid) -> Float[Tensor, "b cells"]:
    """Return how much the mean colour of each feature cell differs from its neighbours', in levels of 255."""
    rows, columns = (axis.area().to(images.device) for axis in (grid.y, grid.x))
    colours = torch.einsum("yh,bhwc,xw->bcyx", rows, images.float(), columns)
    around = F.avg_pool2d(colours, kernel_size=3, stride=1, padding=1, count_include_pad=False)
    return (colours - around).abs().mean(dim=1).flatten(1)


def _tracker(config: TrainConfig) -> Tracker:
    return Tracker(
        config.cycles.localizer,
        frame_grid=grid_of(config.clips.crop_px),
        patch_grid=grid_of(config.patches.patch_px),
        temperature=config.cycles.temperature,
    )


@dataclass(eq=False)
class State:
    """Everything that changes during a run; random numbers are not kept: they come from the seed and the step."""

    config: TrainConfig
    learner: Learner
    ema: ResNet  # the exponential moving average of the encoder: what a run saves in the end
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler  # of the loss, whose gradients would vanish in fp16; does nothing otherwise
    step: int = 0
    skipped: int = 0  # steps in a row whose loss or gradient was not finite

    @classmethod
    def fresh(cls, encoder: ResNet, config: TrainConfig, device: torch.device = CPU) -> "State":
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(config.seed)  # of the initial weights of a learned localizer
            learner = Learner(encoder, config).to(device)
        average = copy.deepcopy(learner.encoder).eval().requires_grad_(False)
        if config.batch_statistics == "all":
            nn.SyncBatchNorm.convert_sync_batchnorm(learner.encoder)  # type: ignore[no-untyped-call]
        settings = config.optimizer
        optimizer = torch.optim.AdamW(
            learner.parameters(),
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
        )
        precision = pick_precision(config.precision, device)
        return cls(config, learner, average, optimizer, torch.amp.GradScaler(device.type, enabled=precision == "fp16"))

    def advance(self, model: nn.Module, micro_batches: Iterable[Batch]) -> ObjectiveResult:
        """Make one step on a batch of equal micro-batches; `model` is the learner, or its DDP wrapper."""
        model.train()
        self._set_learning_rate()
        self.optimizer.zero_grad(set_to_none=True)
        outcomes = []
        train_encoder = self.step >= self.config.localizer_steps
        for number, micro_batch in enumerate(micro_batches, start=1):
            with _averaging(model, last=number == self.config.accumulate):
                outcome: ObjectiveResult = model(micro_batch, train_encoder=train_encoder)
                self.scaler.scale(outcome.total / self.config.accumulate).backward()  # type: ignore[no-untyped-call]
            outcomes.append(outcome)
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.learner.parameters(), self.config.optimizer.clip_norm)
        if math.isfinite(host_values(norm[None], "finite gradient")[0]):
            self.scaler.step(self.optimizer)
            update_average(self.ema, self.learner.encoder, self.config.ema_decay, self.step)
            self.skipped = 0
        else:
            self.skipped += 1
        self.scaler.update()
        self.step += 1
        return _mean(outcomes, norm)

    def snapshot(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "skipped": self.skipped,
            "learner": self.learner.state_dict(),
            "ema": self.ema.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "config": asdict(self.config),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        if saved.get("config") != asdict(self.config):
            raise OutputError(
                "the run was started with other settings",
                remedy="resume it with the same, or start a new run with another -o",
            )
        try:
            self._restore(saved)
        except Exception as error:  # torch raises nearly anything for a state of another shape
            raise OutputError(
                f"the checkpoint does not fit this run: {first_line(error)}",
                remedy="start a new run with another -o, or with --overwrite",
            ) from error

    def _restore(self, saved: dict[str, Any]) -> None:
        steps = saved["step"], saved["skipped"]
        if not all(type(number) is int and number >= 0 for number in steps):
            raise ValueError(f"step and skipped are {steps}")
        self.step, self.skipped = steps
        self.learner.load_state_dict(saved["learner"])
        self.ema.load_state_dict(saved["ema"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scaler.load_state_dict(saved["scaler"])

    def _set_learning_rate(self) -> None:
        learning_rate = self.config.optimizer.learning_rate_at(self.step, total=self.config.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate


def _averaging(model: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """Average gradients over processes only after the last micro-batch of a step."""
    if isinstance(model, DistributedDataParallel) and not last:
        waiting: AbstractContextManager[None] = model.no_sync()
        return waiting
    return nullcontext()


@torch.no_grad()
def update_average(average: ResNet, model: ResNet, decay: float, step: int) -> None:
    """Update a moving average (EMA) of parameters, which varies less than single steps; batch statistics are copied."""
    # A lower decay at first, so that the random initial weights are soon forgotten.
    decay = min(decay, (1 + step) / (10 + step))
    for averaged, parameter in zip(average.parameters(), model.parameters(), strict=True):
        averaged.lerp_(parameter.to(averaged.dtype), 1 - decay)
    for copied, buffer in zip(average.buffers(), model.buffers(), strict=True):
        copied.copy_(buffer)


def _mean(outcomes: list[ObjectiveResult], norm: torch.Tensor) -> ObjectiveResult:
    def mean(values: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([value.detach() for value in values]).mean()

    first = outcomes[0]
    return ObjectiveResult(
        mean([one.total for one in outcomes]),
        {name: mean([one.losses[name] for one in outcomes]) for name in first.losses},
        {name: mean([one.diagnostics[name] for one in outcomes]) for name in first.diagnostics}
        | {"gradient_norm": norm.detach()},
    )
