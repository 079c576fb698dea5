"""How clear an object was on its way from the drawing: a mistake is carried on, however sure it looks later."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

PerObject = Float[Tensor, " objects"]

_FRESH_FRAMES = 30  # after which errors have had time to add up


@dataclass(frozen=True, eq=False)
class Trail:
    """Of each object: the sum of its margins since it was drawn, how many they are, and the lowest."""

    values: Float[Tensor, "objects 3"]

    @classmethod
    def begin(cls, objects: int) -> "Trail":
        return cls(torch.tensor([0.0, 0.0, 1.0]).repeat(objects, 1))

    def after(self, margin: PerObject, shown: Bool[Tensor, " objects"] | None) -> "Trail":
        """The trail once a frame more is labelled; it begins anew for objects that are `shown` on a drawing."""
        total, count, lowest = self.values.unbind(dim=1)
        longer = torch.stack([total + margin, count + 1, torch.minimum(lowest, margin)], dim=1)
        if shown is None:
            return Trail(longer)
        return Trail(torch.where(shown[:, None], Trail.begin(len(margin)).values, longer))

    @property
    def mean(self) -> PerObject:
        """The mean margin on the way; 1 on the drawing itself."""
        total, count, _ = self.values.unbind(dim=1)
        return torch.where(count > 0, total / count.clamp_min(1e-6), 1.0)

    @property
    def lowest(self) -> PerObject:
        return self.values[:, 2]

    @property
    def fresh(self) -> PerObject:
        """1 on the drawing, and less with every frame since."""
        return torch.exp(-self.values[:, 1] / _FRESH_FRAMES)


def joined(forward: Trail, backward: Trail | None, share: PerObject) -> Trail:
    """What both passes say where labels are a blend of them; `share` is the forward pass's."""
    if backward is None:
        return forward
    mean = forward.mean * share + backward.mean * (1 - share)
    _, count, lowest = (forward.values * share[:, None] + backward.values * (1 - share[:, None])).unbind(dim=1)
    return Trail(torch.stack([mean * count, count, lowest], dim=1))
