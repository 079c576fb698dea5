"""The moving average of the weights: steadier than the weights of any one step, and what is kept in the end."""

import copy

import torch

from timecycle.model.resnet import ResNet


class Average:
    """An exponential moving average of an encoder's parameters; its batch statistics are copied as they are."""

    def __init__(self, model: ResNet, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: ResNet, step: int) -> None:
        # Early averages would be full of the random start: they remember less.
        decay = min(self.decay, (1 + step) / (10 + step))
        for mine, theirs in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs.to(mine.dtype), 1 - decay)
        for kept, current in zip(self.model.buffers(), model.buffers(), strict=True):
            kept.copy_(current)
