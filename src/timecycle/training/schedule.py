"""The learning rate over the steps: a linear warm-up, then half a cosine down to nothing, or constant."""

import math
from typing import Literal

Shape = Literal["cosine", "constant"]


def rate_at(step: int, *, peak: float, warm_up: int, total: int, shape: Shape) -> float:
    """The learning rate of a step, counted from 0: a pure function, so that a resumed run has the same."""
    if step < warm_up:
        return peak * (step + 1) / warm_up
    if shape == "constant":
        return peak
    done = (step - warm_up) / max(total - warm_up, 1)
    return peak * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
