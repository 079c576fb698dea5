"""The window of a query: which reference cells it is compared with."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

WindowShape = Literal["disc", "square"]

_MAX_CELLS = 1 << 14  # no feature map has as many cells to a side


@dataclass(frozen=True)
class Window:
    """Limit the search to reference cells at most `radius` cells away: |d| (disc), or |dx| and |dy| (square)."""

    radius: float
    shape: WindowShape = "disc"

    @cached_property
    def half_widths(self) -> tuple[int, ...]:
        """The largest |dx| inside the window at |dy| = 0, 1, 2, ..."""
        radius = min(math.floor(self.radius), _MAX_CELLS)
        if self.shape == "square":
            return (radius,) * (radius + 1)
        return tuple(math.isqrt(math.floor(self.radius**2) - dy**2) for dy in range(radius + 1))
