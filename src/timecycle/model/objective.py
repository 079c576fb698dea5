"""What every objective gives: one loss to minimise, the named losses it is made of, and figures to watch."""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

Scalar = Float[Tensor, ""]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of one objective on one batch. Diagnostics carry no gradient."""

    total: Scalar
    losses: Mapping[str, Scalar]
    diagnostics: Mapping[str, Scalar]


def weighted(losses: Mapping[str, Scalar], weights: Mapping[str, float], diagnostics: Mapping[str, Scalar]) -> Outcome:
    """The weighted sum of named losses; a loss of weight 0 is shown but not minimised."""
    used = [losses[name] * weight for name, weight in weights.items() if weight and name in losses]
    total = sum(used[1:], start=used[0])
    return Outcome(total, losses, {name: value.detach() for name, value in diagnostics.items()})
