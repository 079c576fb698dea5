"""The settings of a training run; those of its parts sit beside them."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from timecycle.cycles import CyclesConfig
from timecycle.data.clips import ClipConfig
from timecycle.data.pastes import PasteConfig
from timecycle.data.patches import PatchConfig
from timecycle.data.views import ViewConfig
from timecycle.errors import SettingsError
from timecycle.model.inference import Precision
from timecycle.model.resnet import ResNetConfig
from timecycle.training.schedule import Shape
from timecycle.walks import WalksConfig

Objective = Literal["walks", "cycles"]


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


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that decides what a run learns."""

    objective: Objective = "walks"
    steps: int = 2000
    batch: int = 8  # clips per step over all processes
    accumulate: int = 1  # parts a batch is computed in, one after the other, where memory is short
    seed: int = 0
    precision: Precision = "bf16"  # of the encoder's convolutions; everything else is fp32
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
        if self.objective not in get_args(Objective):
            raise SettingsError(
                f"objective is {self.objective!r}", remedy=f"choose one of {', '.join(get_args(Objective))}"
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
        if self.batch % self.accumulate:
            raise SettingsError(
                f"a batch of {self.batch} cannot be computed in {self.accumulate} equal parts",
                remedy="choose a number of parts that divides the batch",
            )
        if not 0 < self.held_out < 1:
            raise SettingsError(f"held_out is {self.held_out}", remedy="keep a share between 0 and 1 for validation")
