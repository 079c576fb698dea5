"""The settings of a training run; those of data, model and objectives are defined beside their code."""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch

from timecycle.concurrency import supports_bf16
from timecycle.data.augment.clips import ClipConfig
from timecycle.data.augment.copy_paste import CopyPasteConfig
from timecycle.data.augment.patches import PatchConfig
from timecycle.data.augment.variety import VarietyConfig
from timecycle.data.augment.views import ViewConfig
from timecycle.errors import SettingsError
from timecycle.model.localizer import min_patch_cells
from timecycle.model.resnet import ResNetConfig, grid_of
from timecycle.objectives.cycles import CyclesConfig
from timecycle.objectives.walks import WalksConfig

Objective = Literal["walks", "cycles"]
TrainPrecision = Literal["fp32", "bf16", "fp16"]
PrecisionChoice = Literal["auto", "fp32", "bf16", "fp16"]
BatchStatistics = Literal["process", "all", "frozen"]
Trained = Literal["features", "descriptor", "coloured_descriptor"]
Schedule = Literal["cosine", "constant"]

_MIN_PX = 16  # two cells: reflect padding needs more pixels than it adds
_SEEDS = 2**32


def pick_precision(choice: PrecisionChoice, device: torch.device) -> TrainPrecision:
    """Resolve `auto` to bf16 where the device multiplies it; on others it is emulated, more slowly than fp32.

    A CUDA device without bf16 takes fp16, whose gradients need a scaled loss.
    """
    if choice != "auto":
        return choice
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    return "bf16" if device.type == "cpu" and supports_bf16() else "fp32"


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW; without weight decay it is the paper's Adam."""

    learning_rate: float = 5e-4  # after the warmup
    beta1: float = 0.9  # of the mean of gradients
    beta2: float = 0.999  # of the mean of their squares
    weight_decay: float = 1e-4  # of all weights; 0 is Adam
    warmup_steps: int = 100  # in which the learning rate rises from 0
    shape: Schedule = "cosine"  # of the learning rate after the warmup
    clip_norm: float = 1.0  # of all gradients together

    def __post_init__(self) -> None:
        for name in ("learning_rate", "clip_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise SettingsError(f"optimizer.{name} is {getattr(self, name)}", remedy="give a number above 0")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise SettingsError(f"optimizer.{name} is {getattr(self, name)}", remedy="give 0 to below 1")
        for name in ("weight_decay", "warmup_steps"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SettingsError(f"optimizer.{name} is {getattr(self, name)}", remedy="give 0 or more")

    def learning_rate_at(self, step: int, *, total: int) -> float:
        """Return the learning rate of a step: a linear warmup, then half a cosine down to 0, or constant."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        if self.shape == "constant":
            return self.learning_rate
        done = (step - self.warmup_steps) / max(total - self.warmup_steps, 1)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that determines the result of a run."""

    objective: Objective = "walks"  # walks between two views of a clip, or `cycles`, the paper's
    steps: int = 2000  # updates of the weights
    batch: int = 8  # clips per step over all processes
    accumulate: int = 1  # micro-batches per batch, for less memory
    seed: int = 0  # of the weights, of the order of the clips and of everything drawn
    precision: PrecisionChoice = "auto"  # of the encoder's convolutions; everything else is fp32
    batch_statistics: BatchStatistics = "process"  # of batch norm: of each process's clips, of all (CUDA), or frozen
    channels_last: bool = True  # in memory: faster convolutions on most devices
    compile: bool = False  # the encoder, with torch.compile: minutes at first, then faster steps on CUDA
    ema_decay: float = 0.998  # of the exponential moving average of the weights, which is saved
    trained: Trained = "features"  # the network's own, or the descriptor of propagation, without or with its colour
    view_px: int = 128  # walks: side of the two views
    localizer_steps: int = 0  # cycles: first steps that train only the localizer
    held_out: float = 0.05  # share of the videos that is used for validation only
    held_out_clips: int = 24  # clips of these videos that are scored
    validate_every: int = 250  # steps
    checkpoint_every: int = 100  # steps
    workers: int = 1  # threads that read clips
    frame_cache_gb: float = 1.0  # of memory, for decoded frames; small corpora read them again and again
    mixed_shards: int = 8  # shards of a pack that are shuffled together
    encoder: ResNetConfig = field(default_factory=ResNetConfig)
    clips: ClipConfig = field(default_factory=ClipConfig)
    variety: VarietyConfig = field(default_factory=VarietyConfig)
    views: ViewConfig = field(default_factory=ViewConfig)
    copy_paste: CopyPasteConfig = field(default_factory=CopyPasteConfig)  # walks only
    patches: PatchConfig = field(default_factory=PatchConfig)
    walks: WalksConfig = field(default_factory=WalksConfig)
    cycles: CyclesConfig = field(default_factory=CyclesConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def __post_init__(self) -> None:
        for name, kind in (
            ("objective", Objective),
            ("precision", PrecisionChoice),
            ("batch_statistics", BatchStatistics),
            ("trained", Trained),
        ):
            if getattr(self, name) not in get_args(kind):
                raise SettingsError(
                    f"{name} is {getattr(self, name)!r}", remedy=f"choose one of {', '.join(get_args(kind))}"
                )
        for name in (
            "steps",
            "batch",
            "accumulate",
            "validate_every",
            "checkpoint_every",
            "held_out_clips",
            "mixed_shards",
        ):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} is {getattr(self, name)}", remedy=f"set {name} to 1 or more")
        for name in ("localizer_steps", "workers", "frame_cache_gb"):
            if getattr(self, name) < 0:
                raise SettingsError(f"{name} is {getattr(self, name)}", remedy=f"set {name} to 0 or more")
        if not 0 <= self.seed < _SEEDS:
            raise SettingsError(f"seed is {self.seed}", remedy=f"give 0 to {_SEEDS - 1}")
        if not 0 <= self.ema_decay < 1:
            raise SettingsError(f"ema_decay is {self.ema_decay}", remedy="give 0 for none, or up to 0.9999")
        if self.batch % self.accumulate:
            raise SettingsError(
                f"a batch of {self.batch} cannot be split into {self.accumulate} equal micro-batches",
                remedy="choose a number that divides the batch",
            )
        if not 0 < self.held_out < 1:
            raise SettingsError(f"held_out is {self.held_out}", remedy="give a share between 0 and 1 for validation")
        if self.objective == "walks":
            self._check_views()
        else:
            self._check_patches()

    def _check_views(self) -> None:
        if not _MIN_PX <= self.view_px <= self.clips.crop_px:
            raise SettingsError(
                f"view_px is {self.view_px} and clips.crop_px {self.clips.crop_px}",
                remedy=f"views are cut out of crops: give at least {_MIN_PX} pixels and at most those of the crop",
            )
        if not (self.walks.walk or self.walks.same_frame or self.walks.segments or self.walks.pasted):
            raise SettingsError(
                "walks.walk, walks.same_frame, walks.segments and walks.pasted are all 0",
                remedy="give at least one of them a weight",
            )
        cells = grid_of(self.view_px).cells
        if self.walks.segments and self.walks.most_segments > cells:
            raise SettingsError(
                f"walks.most_segments is {self.walks.most_segments} and a view has {cells} cells",
                remedy=f"give at most {cells}",
            )

    def _check_patches(self) -> None:
        self.patches.check_fits(self.clips.crop_px)
        cells, fewest = grid_of(self.patches.patch_px).x.cells, min_patch_cells(self.cycles.localizer)
        if self.patches.patch_px < _MIN_PX or cells < fewest:
            raise SettingsError(
                f"patches.patch_px is {self.patches.patch_px}, {cells} cells",
                remedy=f"the localizer {self.cycles.localizer.kind} needs patches of at least "
                f"{max(_MIN_PX, 8 * (fewest - 1) + 1)} pixels; or choose another with cycles.localizer.kind",
            )
        if not any(self.cycles.weights.values()):
            raise SettingsError(
                f"{', '.join(f'cycles.{name}' for name in self.cycles.weights)} are all 0",
                remedy="give at least one of them a weight",
            )
