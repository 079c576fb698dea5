"""The state of a run: learner, moving average, optimiser and step; and how one step changes them."""

import copy
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from timecycle.errors import OutputError, first_line
from timecycle.model.resnet import ResNet
from timecycle.objectives import ObjectiveResult
from timecycle.training.learner import Batch, Learner
from timecycle.training.settings import TrainConfig


class MovingAverage:
    """An exponential moving average (EMA) of an encoder's parameters; batch statistics are copied.

    It varies less than the weights of single steps, and is what a run saves in the end.
    """

    def __init__(self, model: ResNet, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: ResNet, step: int) -> None:
        # A lower decay at first, so that the random initial weights are soon forgotten.
        decay = min(self.decay, (1 + step) / (10 + step))
        for averaged, parameter in zip(self.model.parameters(), model.parameters(), strict=True):
            averaged.lerp_(parameter.to(averaged.dtype), 1 - decay)
        for copied, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            copied.copy_(buffer)


@dataclass(eq=False)
class State:
    """Everything that changes during a run; random numbers are not kept: they come from the seed and the step."""

    config: TrainConfig
    learner: Learner
    ema: MovingAverage
    optimizer: torch.optim.Optimizer
    step: int = 0
    skipped: int = 0  # steps in a row whose loss or gradient was not finite

    @classmethod
    def fresh(cls, encoder: ResNet, config: TrainConfig) -> "State":
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(config.seed)  # of the initial weights of a learned localizer
            learner = Learner(encoder, config)
        settings = config.optimizer
        optimizer = torch.optim.AdamW(
            learner.parameters(),
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
        )
        return cls(config, learner, MovingAverage(learner.encoder, config.ema_decay), optimizer)

    def advance(self, model: nn.Module, micro_batches: Iterable[Batch]) -> ObjectiveResult:
        """Make one step on a batch of equal micro-batches; `model` is the learner, or its DDP wrapper."""
        model.train()
        self._set_learning_rate()
        self.optimizer.zero_grad(set_to_none=True)
        outcomes = []
        train_encoder = self.step >= self.config.localizer_steps
        for number, micro_batch in enumerate(micro_batches):
            seed = (self.config.seed * 1_000_003 + self.step) * 1_009 + number
            outcome: ObjectiveResult = model(micro_batch, seed=seed, train_encoder=train_encoder)
            (outcome.total / self.config.accumulate).backward()  # type: ignore[no-untyped-call]
            outcomes.append(outcome)
        norm = nn.utils.clip_grad_norm_(self.learner.parameters(), self.config.optimizer.clip_norm)
        if torch.isfinite(norm):
            self.optimizer.step()
            self.ema.update(self.learner.encoder, self.step)
            self.skipped = 0
        else:
            self.skipped += 1
        self.step += 1
        return _mean(outcomes, norm)

    def snapshot(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "skipped": self.skipped,
            "learner": self.learner.state_dict(),
            "ema": self.ema.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
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
        self.ema.model.load_state_dict(saved["ema"])
        self.optimizer.load_state_dict(saved["optimizer"])

    def _set_learning_rate(self) -> None:
        learning_rate = self.config.optimizer.learning_rate_at(self.step, total=self.config.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate


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
