"""Signs that training goes wrong, measured on features, and advice for each.

A loss can fall while nothing is learned: features may all become alike, tell where a cell is instead of what it shows,
or let every patch be found at one place. Each of these has a figure of its own here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Cells = Float[Tensor, "images cells channels"]  # of length one

_RIDGE = 1e-2


@dataclass(frozen=True)
class Alarm:
    """Something to worry about."""

    name: str
    value: float
    advice: str

    def __str__(self) -> str:
        return f"{self.name} is {self.value:.3g}: {self.advice}"


@torch.no_grad()
def examine(cells: Cells, places: Float[Tensor, "cells 2"]) -> dict[str, float]:
    """Figures of health of the features of some images, whose cells look at `places`."""
    flat = cells.flatten(0, 1).double()
    return {
        "effective_rank": effective_rank(flat),
        "mean_cosine": mean_cosine(flat),
        "position_r2": position_r2(cells.double(), places.double()),
    }


def effective_rank(flat: Float[Tensor, "n channels"]) -> float:
    """exp of the entropy of the spectrum: how many directions the descriptors really use."""
    centred = flat - flat.mean(dim=0)
    values = torch.linalg.eigvalsh(centred.T @ centred / len(flat)).clamp_min(0)
    if values.sum() <= 1e-12:
        return 1.0
    share = values / values.sum()
    return float((-(share * share.clamp_min(1e-12).log()).sum()).exp())


def mean_cosine(flat: Float[Tensor, "n channels"]) -> float:
    """The mean cosine between two different descriptors: the squared length of their mean, corrected for n."""
    n = len(flat)
    total = flat.sum(dim=0).square().sum()
    return float((total - flat.square().sum()) / (n * (n - 1)))


def position_r2(cells: Cells, places: Float[Tensor, "cells 2"]) -> float:
    """How well a ridge regression tells the place of a cell from its descriptor, on images it was not fitted to.

    Near 1, features know where they are: they may then match by position instead of by content.
    """
    half = max(len(cells) // 2, 1)
    train, test = cells[:half].flatten(0, 1), cells[half:].flatten(0, 1)
    if len(test) == 0:
        return 0.0
    train_places, test_places = (places.repeat(count, 1) for count in (half, len(cells) - half))
    mean, centre = train.mean(dim=0), train_places.mean(dim=0)
    x, y = train - mean, train_places - centre
    gram = x.T @ x / len(x) + _RIDGE * torch.eye(x.shape[1], dtype=x.dtype) / x.shape[1]
    fitted = torch.linalg.solve(gram, x.T @ y / len(x))
    error = ((test - mean) @ fitted + centre - test_places).square().mean()
    return float(1 - error / (test_places - centre).square().mean())


def alarms(figures: Mapping[str, float]) -> list[Alarm]:
    """What in these figures, those of `examine` and of the objectives, is a reason to worry."""
    found = []
    for name, (low, high, advice) in _LIMITS.items():
        value = figures.get(name)
        if value is not None and not low <= value <= high:
            found.append(Alarm(name, value, advice))
    return found


_INF = float("inf")
# Of each figure: the lowest and highest healthy value, and what to do beyond.
_LIMITS: dict[str, tuple[float, float, str]] = {
    "effective_rank": (8, _INF, "features collapse to few directions; lower the temperature or turn similarity off"),
    "mean_cosine": (-_INF, 0.8, "all descriptors look alike; lower the temperature, or raise the share of walks"),
    "position_r2": (
        -_INF,
        0.6,
        "features tell where a cell is; use reflect padding, and different views on the way out and back",
    ),
    "entropy": (
        -_INF,
        0.97,
        "affinities are uniform, so nothing is tracked; lower the temperature, or warm the localizer up first",
    ),
    "pose_gain": (
        0.1,
        _INF,
        "poses are no better than guessing the centre, so nothing is tracked; raise cycles.still, use the procrustes "
        "localizer, or warm a learned one up",
    ),
    "home_1": (-_INF, 0.9, "walks are too easy to teach more; use larger gaps, or views that differ more"),
    "spread": (
        0.2,
        _INF,
        "every patch is found at one fixed place; use the procrustes localizer or motion-biased patches",
    ),
    "static_share": (
        -_INF,
        0.9,
        "moving things are matched to where they were; use larger gaps, motion-biased patches or two views",
    ),
}
