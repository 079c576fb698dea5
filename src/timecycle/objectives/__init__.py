"""Objectives: functions from features to named losses. `cycles` is section 3.1 of the paper, `walks` random walks."""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

Scalar = Float[Tensor, ""]


@dataclass(frozen=True, eq=False)
class ObjectiveResult:
    """The loss of a batch to minimise, the named losses it is made of, and diagnostics, which carry no gradient."""

    total: Scalar
    losses: Mapping[str, Scalar]
    diagnostics: Mapping[str, Scalar]


def weighted_sum(
    losses: Mapping[str, Scalar], weights: Mapping[str, float], diagnostics: Mapping[str, Scalar]
) -> ObjectiveResult:
    """Add up named losses by their weights; a loss of weight 0 is reported but not minimised."""
    terms = [losses[name] * weight for name, weight in weights.items() if weight and name in losses]
    total = sum(terms[1:], start=terms[0])
    return ObjectiveResult(total, losses, {name: value.detach() for name, value in diagnostics.items()})
