"""The history of an object since it was annotated: an error is propagated on, however clear the labels look later."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

PerObject = Float[Tensor, " objects"]

_RECENCY_FRAMES = 30  # after which errors have had time to accumulate


@dataclass(frozen=True, eq=False)
class History:
    """Per object, since its last annotation: the sum of its margins, the number of frames, and the lowest margin."""

    values: Float[Tensor, "objects 3"]

    @classmethod
    def begin(cls, objects: int) -> "History":
        return cls(torch.tensor([0.0, 0.0, 1.0]).repeat(objects, 1))

    def after(self, margin: PerObject, annotated: Bool[Tensor, " objects"] | None) -> "History":
        """Return the history after one more frame; it restarts for objects that are `annotated` on that frame."""
        total, count, lowest = self.values.unbind(dim=1)
        longer = torch.stack([total + margin, count + 1, torch.minimum(lowest, margin)], dim=1)
        if annotated is None:
            return History(longer)
        return History(torch.where(annotated[:, None], History.begin(len(margin)).values, longer))

    @property
    def mean_margin(self) -> PerObject:
        """The mean margin since the annotation; 1 on the annotated frame itself."""
        total, count, _ = self.values.unbind(dim=1)
        return torch.where(count > 0, total / count.clamp_min(1e-6), 1.0)

    @property
    def min_margin(self) -> PerObject:
        return self.values[:, 2]

    @property
    def recency(self) -> PerObject:
        """1 on the annotated frame, decaying with every frame since."""
        return torch.exp(-self.values[:, 1] / _RECENCY_FRAMES)


def blend_histories(forward: History, backward: History | None, share: PerObject) -> History:
    """Blend the histories of both passes as their labels are blended; `share` is that of the forward pass."""
    if backward is None:
        return forward
    mean = forward.mean_margin * share + backward.mean_margin * (1 - share)
    _, count, lowest = (forward.values * share[:, None] + backward.values * (1 - share[:, None])).unbind(dim=1)
    return History(torch.stack([mean * count, count, lowest], dim=1))
