"""The settings of a training run; those of its parts sit beside them."""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from timecycle.cores import multiplies_bf16
from timecycle.cycles import CyclesConfig
from timecycle.data.clips import ClipConfig
from timecycle.data.pastes import PasteConfig
from timecycle.data.patches import PatchConfig
from timecycle.data.views import ViewConfig
from timecycle.errors import SettingsError
from timecycle.model.inference import Precision
from timecycle.model.localizer import least_patch_cells
from timecycle.model.resnet import ResNetConfig, grid_of
from timecycle.training.schedule import Shape
from timecycle.walks import WalksConfig

Objective = Literal["walks", "cycles"]
PrecisionChoice = Literal["auto", "fp32", "bf16"]

_LEAST_PX = 16  # two cells: reflect padding needs more pixels than it adds
_SEEDS = 2**32


def pick_precision(choice: PrecisionChoice) -> Precision:
    """Turn `auto` into bf16 where the processor multiplies it; others emulate it, more slowly than fp32."""
    if choice != "auto":
        return choice
    return "bf16" if multiplies_bf16() else "fp32"


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW; without weight decay it is the paper's Adam."""

    rate: float = 5e-4
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 1e-4
    warm_up_steps: int = 100
    shape: Shape = "cosine"
    clip_norm: float = 1.0  # of all gradients together

    def __post_init__(self) -> None:
        for name in ("rate", "clip_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise SettingsError(f"optimizer.{name} is {getattr(self, name)}", remedy="give a number above 0")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise SettingsError(f"optimizer.{name} is {getattr(self, name)}", remedy="give 0 to below 1")
        for name in ("weight_decay", "warm_up_steps"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SettingsError(f"optimizer.{name} is {getattr(self, name)}", remedy="give 0 or more")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that decides what a run learns."""

    objective: Objective = "walks"
    steps: int = 2000
    batch: int = 8  # clips per step over all processes
    accumulate: int = 1  # parts a batch is computed in, one after the other, where memory is short
    seed: int = 0
    precision: PrecisionChoice = "auto"  # of the encoder's convolutions; everything else is fp32
    average: float = 0.998  # decay of the moving average of the weights, which is what is kept
    view_px: int = 128  # walks: side of the two views
    localizer_steps: int = 0  # cycles: first steps in which only the localizer learns
    held_out: float = 0.05  # share of the videos that are not trained on but validated with
    held_out_clips: int = 24
    validate_every: int = 250
    checkpoint_every: int = 100
    workers: int = 1  # threads that read clips
    mixed_shards: int = 8  # of a pack: so many at a time are shuffled together
    encoder: ResNetConfig = field(default_factory=ResNetConfig)
    clips: ClipConfig = field(default_factory=ClipConfig)
    views: ViewConfig = field(default_factory=ViewConfig)
    pastes: PasteConfig = field(default_factory=PasteConfig)  # walks only
    patches: PatchConfig = field(default_factory=PatchConfig)
    walks: WalksConfig = field(default_factory=WalksConfig)
    cycles: CyclesConfig = field(default_factory=CyclesConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def __post_init__(self) -> None:
        for name, kind in (("objective", Objective), ("precision", PrecisionChoice)):
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
        for name in ("localizer_steps", "workers"):
            if getattr(self, name) < 0:
                raise SettingsError(f"{name} is {getattr(self, name)}", remedy=f"set {name} to 0 or more")
        if not 0 <= self.seed < _SEEDS:
            raise SettingsError(f"seed is {self.seed}", remedy=f"give 0 to {_SEEDS - 1}")
        if not 0 <= self.average < 1:
            raise SettingsError(f"average is {self.average}", remedy="give 0 for none, or up to 0.9999")
        if self.batch % self.accumulate:
            raise SettingsError(
                f"a batch of {self.batch} cannot be computed in {self.accumulate} equal parts",
                remedy="choose a number of parts that divides the batch",
            )
        if not 0 < self.held_out < 1:
            raise SettingsError(f"held_out is {self.held_out}", remedy="keep a share between 0 and 1 for validation")
        if self.objective == "walks":
            self._check_views()
        else:
            self._check_patches()

    def _check_views(self) -> None:
        if not _LEAST_PX <= self.view_px <= self.clips.crop_px:
            raise SettingsError(
                f"view_px is {self.view_px} and clips.crop_px {self.clips.crop_px}",
                remedy=f"views are cut out of crops: give at least {_LEAST_PX} pixels and at most those of the crop",
            )
        if not (self.walks.walk or self.walks.still or self.walks.things):
            raise SettingsError(
                "walks.walk, walks.still and walks.things are all 0", remedy="give at least one of them a weight"
            )

    def _check_patches(self) -> None:
        self.patches.check_fits(self.clips.crop_px)
        cells, least = grid_of(self.patches.patch_px).x.cells, least_patch_cells(self.cycles.localizer)
        if self.patches.patch_px < _LEAST_PX or cells < least:
            raise SettingsError(
                f"patches.patch_px is {self.patches.patch_px}, {cells} cells",
                remedy=f"the localizer {self.cycles.localizer.kind} takes patches of at least "
                f"{max(_LEAST_PX, 8 * (least - 1) + 1)} pixels; or choose another with cycles.localizer.kind",
            )
        if not any(self.cycles.weights.values()):
            raise SettingsError(
                f"{', '.join(f'cycles.{name}' for name in self.cycles.weights)} are all 0",
                remedy="give at least one of them a weight",
            )
