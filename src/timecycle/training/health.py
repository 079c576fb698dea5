"""Figures that reveal failing training, measured on features, with advice for each.

A loss can fall while nothing is learned: features may collapse, encode the position of a cell instead of its content,
or match every patch to one position. Each of these failures has a figure here.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

Features = Float[Tensor, "images cells channels"]  # L2-normalised

_RIDGE = 1e-2


@torch.no_grad()
def feature_health(features: Features, positions: Float[Tensor, "cells 2"]) -> dict[str, float]:
    """Compute the health figures of features of some images, whose cells lie at `positions`."""
    flat = features.flatten(0, 1).double()
    return {
        "effective_rank": effective_rank(flat),
        "mean_cosine": mean_cosine(flat),
        "position_r2": position_r2(features.double(), positions.double()),
    }


def effective_rank(flat: Float[Tensor, "n channels"]) -> float:
    """Return exp of the entropy of the covariance spectrum: the number of directions that features really use."""
    centred = flat - flat.mean(dim=0)
    values = torch.linalg.eigvalsh(centred.T @ centred / len(flat)).clamp_min(0)
    if values.sum() <= 1e-12:
        return 1.0
    share = values / values.sum()
    return float((-(share * share.clamp_min(1e-12).log()).sum()).exp())


def mean_cosine(flat: Float[Tensor, "n channels"]) -> float:
    """Return the mean cosine between two different features: the squared length of their mean, corrected for n."""
    n = len(flat)
    total = flat.sum(dim=0).square().sum()
    return float((total - flat.square().sum()) / (n * (n - 1)))


def position_r2(features: Features, positions: Float[Tensor, "cells 2"]) -> float:
    """Return the R2 of a ridge regression from features to the positions of their cells, on held-out images.

    Near 1, features encode their position, and may match by position instead of by content.
    """
    half = max(len(features) // 2, 1)
    train, test = features[:half].flatten(0, 1), features[half:].flatten(0, 1)
    if len(test) == 0:
        return 0.0
    train_positions, test_positions = (positions.repeat(count, 1) for count in (half, len(features) - half))
    mean, centre = train.mean(dim=0), train_positions.mean(dim=0)
    x, y = train - mean, train_positions - centre
    gram = x.T @ x / len(x) + _RIDGE * torch.eye(x.shape[1]).to(x) / x.shape[1]
    fitted = torch.linalg.solve(gram, x.T @ y / len(x))
    error = ((test - mean) @ fitted + centre - test_positions).square().mean()
    return float(1 - error / (test_positions - centre).square().mean())


def alarms(figures: Mapping[str, float]) -> dict[str, str]:
    """Return a message with advice for every figure, of `feature_health` or of an objective, that is not healthy."""
    raised = {}
    for name, (low, high, advice) in _LIMITS.items():
        value = figures.get(name)
        if value is not None and not low <= value <= high:
            raised[name] = f"{name} is {value:.3g}: {advice}"
    return raised


_INF = float("inf")
# For each figure: the lowest and highest healthy value, and advice.
_LIMITS: dict[str, tuple[float, float, str]] = {
    "effective_rank": (8, _INF, "features collapse to few directions; lower the temperature or turn similarity off"),
    "mean_cosine": (-_INF, 0.8, "all features are alike; lower the temperature, or raise the share of walks"),
    "position_r2": (
        -_INF,
        0.6,
        "features encode the position of a cell; use reflect padding, and different views forward and backward",
    ),
    "entropy": (
        -_INF,
        0.97,
        "affinities are uniform: nothing is tracked; lower the temperature; with cycles, first train the localizer",
    ),
    "pose_gain": (
        0.1,
        _INF,
        "poses are no better than guessing the centre, so nothing is tracked; raise cycles.same_frame, use the "
        "procrustes localizer, or train a learned one alone first",
    ),
    "return_rate_1": (-_INF, 0.9, "walks are too easy to teach more; use larger gaps, or views that differ more"),
    "spread": (
        0.2,
        _INF,
        "every patch is matched to one fixed position; use the procrustes localizer or motion-biased patches",
    ),
    "static_share": (
        -_INF,
        0.9,
        "moving objects are matched to their old positions; use larger gaps, motion-biased patches or two views",
    ),
}
