"""How batch norms remember, changed for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def remembering(model: nn.Module, momentum: float | None) -> Iterator[list[nn.BatchNorm2d]]:
    """Batch norms take in batches with this weight: 0 forgets them at once, None gives a plain mean over them."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    usual = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = momentum
    try:
        yield norms
    finally:
        for norm, before in zip(norms, usual, strict=True):
            norm.momentum = before
