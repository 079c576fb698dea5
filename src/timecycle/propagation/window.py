"""How far from itself a query looks."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Shape = Literal["disc", "square"]

_FARTHEST = 1 << 14  # no map has as many cells to a side


@dataclass(frozen=True)
class Window:
    """A query sees only reference cells this near, in cells: |d| <= radius (disc) or |dx|, |dy| <= radius."""

    radius: float
    shape: Shape = "disc"

    @cached_property
    def reach(self) -> tuple[int, ...]:
        """The widest |dx| that is seen at |dy| = 0, 1, 2 and so on."""
        far = min(math.floor(self.radius), _FARTHEST)
        if self.shape == "square":
            return (far,) * (far + 1)
        return tuple(math.isqrt(math.floor(self.radius**2) - dy**2) for dy in range(far + 1))
