"""The state of a run: what learns, its average, the optimiser and the step; and how one step changes them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from timecycle.errors import OutputError, first_line
from timecycle.model.objective import Outcome
from timecycle.model.resnet import ResNet
from timecycle.training.average import Average
from timecycle.training.learner import Batch, Learner
from timecycle.training.schedule import rate_at
from timecycle.training.settings import TrainConfig


@dataclass(eq=False)
class State:
    """Everything that changes during a run. Nothing random is kept: what is drawn comes from the seed and the step."""

    config: TrainConfig
    learner: Learner
    average: Average
    optimizer: torch.optim.Optimizer
    step: int = 0
    skipped: int = 0  # steps in a row whose loss or gradient was not finite

    @classmethod
    def fresh(cls, encoder: ResNet, config: TrainConfig) -> "State":
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(config.seed)  # a learned localizer starts at random
            learner = Learner(encoder, config)
        settings = config.optimizer
        optimizer = torch.optim.AdamW(
            learner.parameters(),
            lr=settings.rate,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
        )
        return cls(config, learner, Average(learner.encoder, config.average), optimizer)

    def advance(self, model: nn.Module, parts: Iterable[Batch]) -> Outcome:
        """One step on a batch that comes in equal parts; `model` is the learner, perhaps shared among processes."""
        model.train()
        self._set_rate()
        self.optimizer.zero_grad(set_to_none=True)
        outcomes = []
        learns = self.step >= self.config.localizer_steps
        for number, part in enumerate(parts):
            seed = (self.config.seed * 1_000_003 + self.step) * 1_009 + number
            outcome: Outcome = model(part, seed=seed, encoder_learns=learns)
            (outcome.total / self.config.accumulate).backward()  # type: ignore[no-untyped-call]
            outcomes.append(outcome)
        norm = nn.utils.clip_grad_norm_(self.learner.parameters(), self.config.optimizer.clip_norm)
        if torch.isfinite(norm):
            self.optimizer.step()
            self.average.update(self.learner.encoder, self.step)
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
            "average": self.average.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "config": asdict(self.config),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        if saved.get("config") != asdict(self.config):
            raise OutputError(
                "the run was started with other settings", remedy="resume it with the same, or start anew with -o"
            )
        try:
            self._restore(saved)
        except Exception as error:  # torch raises nearly anything where a state is not what it saved
            raise OutputError(
                f"the checkpoint is not of this run: {first_line(error)}", remedy="start anew with -o, or --overwrite"
            ) from error

    def _restore(self, saved: dict[str, Any]) -> None:
        steps = saved["step"], saved["skipped"]
        if not all(type(number) is int and number >= 0 for number in steps):
            raise ValueError(f"its steps are {steps}")
        self.step, self.skipped = steps
        self.learner.load_state_dict(saved["learner"])
        self.average.model.load_state_dict(saved["average"])
        self.optimizer.load_state_dict(saved["optimizer"])

    def _set_rate(self) -> None:
        settings = self.config.optimizer
        rate = rate_at(
            self.step,
            peak=settings.rate,
            warm_up=settings.warm_up_steps,
            total=self.config.steps,
            shape=settings.shape,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def _mean(outcomes: list[Outcome], norm: torch.Tensor) -> Outcome:
    def mean(values: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([value.detach() for value in values]).mean()

    first = outcomes[0]
    return Outcome(
        mean([one.total for one in outcomes]),
        {name: mean([one.losses[name] for one in outcomes]) for name in first.losses},
        {name: mean([one.diagnostics[name] for one in outcomes]) for name in first.diagnostics}
        | {"gradient_norm": norm.detach()},
    )
