"""The k best keys of every query, and the order in which keys are better."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Best:
    """The k best keys of each query, best first; where there are fewer, score -inf."""

    score: Float[Tensor, "queries k"]
    index: Int[Tensor, "queries k"]
    distance: Int[Tensor, "queries k"]  # squared, in cells


def merged(best: Sequence[Best], k: int) -> Best:
    """The k best over references whose own k best are known."""
    whole = Best(
        torch.cat([b.score for b in best], dim=1),
        torch.cat([b.index for b in best], dim=1),
        torch.cat([b.distance for b in best], dim=1),
    )
    ordered = in_order(whole)
    return Best(ordered.score[:, :k], ordered.index[:, :k], ordered.distance[:, :k])


def in_order(best: Best) -> Best:
    """Best first; of equal scores the nearest, then the earliest."""
    order = best.index.argsort(dim=1, stable=True)
    order = order.gather(1, best.distance.gather(1, order).argsort(dim=1, stable=True))
    order = order.gather(1, best.score.gather(1, order).argsort(dim=1, descending=True, stable=True))
    return Best(best.score.gather(1, order), best.index.gather(1, order), best.distance.gather(1, order))
