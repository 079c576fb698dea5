"""How far labels can be trusted: one number from 0 to 1 for every frame, object and pixel, out of the evidence.

The number is a rank first and a probability second: its weights are fitted to one encoder on footage of one kind
(presets/confidence.toml), and frames that a person corrects tell how to read it on another.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from timecycle.errors import SettingsError
from timecycle.grid import Grid
from timecycle.labels.soft import upsample
from timecycle.propagation.evidence import CELL_SIGNALS, SIGNALS, Evidence

State = Literal["visible", "uncertain", "occluded", "lost"]
Form = Literal["outline", "place"]

_VISIBLE = 0.5  # confidence from which an object counts as followed
_LOST = 0.25  # below, what is labelled is more likely something else
_NOTHING = 1e-6  # cells
_GONE = 0.05  # of the drawing's area: less is not the object any more


@dataclass(frozen=True, kw_only=True)
class TrustConfig:
    """What becomes of confidence."""

    least: float = 0.0  # objects less sure than this are not labelled: nothing rather than a guess

    def __post_init__(self) -> None:
        if not 0 <= self.least <= 1:
            raise SettingsError(f"the least confidence is {self.least}", remedy="give a number from 0 to 1")


@dataclass(frozen=True, eq=False)
class ObjectConfidence:
    """Of one object on one frame, with the signals it was made of."""

    value: float
    state: State
    signals: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Confidence:
    """Of one frame: as sure as its least sure object."""

    value: float
    objects: Mapping[str, ObjectConfidence]
    cells: Float[Tensor, "rows columns"]
    grid: Grid

    @property
    def state(self) -> State:
        """Of its least sure object."""
        return min(self.objects.values(), key=lambda one: one.value).state if self.objects else "visible"

    def pixels(self) -> Float32[np.ndarray, "height width"]:
        """The confidence of every pixel."""
        pixels: np.ndarray = upsample(self.cells[..., None], self.grid)[0].numpy()
        return pixels


def judge(
    evidence: Evidence,
    names: tuple[str, ...],
    grid: Grid,
    *,
    form: Form,
    known: Bool[Tensor, " objects"] | None = None,
    given: Bool[Tensor, " objects"] | None = None,
) -> Confidence:
    """The confidence that the evidence is worth. What was `given` on this very frame is certain; objects that are not
    `known` yet, as they are drawn later, are left out."""
    values = fuse(evidence.objects, form)
    cells = fuse(evidence.cells, "cell")
    if given is not None:
        values = torch.where(given, 1.0, values)
        cells = torch.ones_like(cells) if bool(given.all()) else cells
    objects = {
        name: ObjectConfidence(
            round(float(value), 4),
            "visible" if given is not None and bool(given[i]) else _state(float(value), evidence, i, form),
            dict(zip(SIGNALS, (round(float(signal), 4) for signal in evidence.objects[i]), strict=True)),
        )
        for i, (name, value) in enumerate(zip(names, values, strict=True))
        if known is None or bool(known[i])
    }
    least = min((one.value for one in objects.values()), default=1.0)
    return Confidence(least, objects, cells, grid)


def certain(names: tuple[str, ...], grid: Grid) -> Confidence:
    """The confidence of a frame that a person drew."""
    objects = {name: ObjectConfidence(1.0, "visible", dict.fromkeys(SIGNALS, 1.0)) for name in names}
    return Confidence(1.0, objects, torch.ones(grid.y.cells, grid.x.cells), grid)


def fuse(
    signals: Float[Tensor, "... signals"],
    form: Literal["outline", "support", "place", "cell"],
    weights: Mapping[str, float] | None = None,
) -> Float[Tensor, "..."]:
    """One number out of signals in the order of SIGNALS, or of CELL_SIGNALS for cells; by the fitted weights."""
    names = CELL_SIGNALS if form == "cell" else SIGNALS
    weights = weights or fitted()[form]
    weight = torch.tensor([weights.get(name, 0.0) for name in names])
    fused = torch.sigmoid(signals @ weight + weights["bias"])
    if form != "outline":
        return fused
    # Labels that stand still, or follow something else, are as clear as any: past frames and drawings have a veto, with
    # the benefit of the doubt, as what turned or is partly hidden is right and supported less. They are asked twice.
    doubt = 1 - fuse(signals, "support")
    return torch.minimum(fused, 1 - doubt * doubt)


@lru_cache
def fitted() -> Mapping[str, Mapping[str, float]]:
    """The weights of presets/confidence.toml."""
    return tomllib.loads(files("timecycle.presets").joinpath("confidence.toml").read_text(encoding="utf-8"))


def _state(value: float, evidence: Evidence, place: int, form: Form) -> State:
    size = float(evidence.objects[place, SIGNALS.index("size")])
    if float(evidence.area[place]) <= _NOTHING or (form == "outline" and size < _GONE):
        return "occluded"
    return state_of(value)


def state_of(value: float) -> State:
    """The state of an object that is there, by its confidence."""
    if value >= _VISIBLE:
        return "visible"
    return "uncertain" if value >= _LOST else "lost"
