"""The order in which keys are better, and the best of several searches."""

from collections.abc import Sequence

import torch

from timecycle.kernel.search import Found


def merged(best: Sequence[Found], k: int) -> Found:
    """The k best over references whose own k best are known."""
    whole = Found(
        torch.cat([b.score for b in best], dim=1),
        torch.cat([b.index for b in best], dim=1),
        torch.cat([b.distance for b in best], dim=1),
    )
    ordered = in_order(whole)
    return Found(ordered.score[:, :k], ordered.index[:, :k], ordered.distance[:, :k])


def in_order(best: Found) -> Found:
    """Found first; of equal scores the nearest, then the earliest."""
    order = best.index.argsort(dim=1, stable=True)
    order = order.gather(1, best.distance.gather(1, order).argsort(dim=1, stable=True))
    order = order.gather(1, best.score.gather(1, order).argsort(dim=1, descending=True, stable=True))
    return Found(best.score.gather(1, order), best.index.gather(1, order), best.distance.gather(1, order))
