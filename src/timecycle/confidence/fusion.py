"""Confidence: one number from 0 to 1 for every frame, object and pixel, fused from the signals.

The number ranks first and estimates a probability second: its weights are fitted to one encoder on one kind of footage
(presets/confidence.toml); corrected frames calibrate it for other footage.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from timecycle.confidence.signals import CELL_SIGNALS, SIGNALS, Signals
from timecycle.errors import SettingsError
from timecycle.grid import Grid
from timecycle.labels.label_map import upsample
from timecycle.labels.space import Presence, listed

# Visible, occluded and absent may be annotated; a propagated object is never called absent.
State = Literal["visible", "uncertain", "occluded", "absent", "lost"]
UNSEEN: tuple[State, ...] = ("occluded", "absent")  # little or nothing of such an object is labelled
WeightSet = Literal["region", "point"]

_VISIBLE = 0.5  # confidence from which an object counts as visible
_LOST = 0.25  # below, the label is more likely on something else
_EPSILON = 1e-6  # cells
_MIN_AREA = 0.05  # of the annotated area; an object with less is occluded


@dataclass(frozen=True, kw_only=True)
class ConfidenceConfig:
    """Settings of the confidence estimate."""

    min_confidence: float = 0.0  # objects below it are left unlabelled

    def __post_init__(self) -> None:
        if not 0 <= self.min_confidence <= 1:
            raise SettingsError(f"min_confidence is {self.min_confidence}", remedy="give a number from 0 to 1")


@dataclass(frozen=True, eq=False)
class ObjectConfidence:
    """The confidence of one object on one frame, with the signals it is computed from."""

    value: float
    state: State
    signals: Mapping[str, float]
    annotated: bool = False  # on this very frame
    before_annotation: bool = False  # the frame comes before the first one on which the object is annotated


@dataclass(frozen=True, eq=False)
class Confidence:
    """The confidence of one frame, of each of its objects and of each feature cell, from 0 to 1.

    `value` and `state` of the frame are those of its least confident object that counts (`least_confident`).
    """

    objects: Mapping[str, ObjectConfidence]
    cells: Float[Tensor, "rows columns"]
    grid: Grid

    @property
    def value(self) -> float:
        """The confidence of the frame, from 0 to 1."""
        name = least_confident(self.objects)
        return 1.0 if name is None else self.objects[name].value

    @property
    def state(self) -> State:
        """Visible, uncertain, occluded, absent or lost."""
        name = least_confident(self.objects)
        return "visible" if name is None else self.objects[name].state

    def __repr__(self) -> str:
        objects = [f"{name} {one.value:.2f} {one.state}" for name, one in self.objects.items()]
        return f"Confidence({self.value:.2f} {self.state}; {listed(objects, most=3)})"

    def pixels(self) -> Float32[np.ndarray, "height width"]:
        """Return the confidence of every pixel."""
        pixels: np.ndarray = upsample(self.cells[..., None], self.grid)[0].numpy()
        return pixels


def estimate(
    signals: Signals,
    names: tuple[str, ...],
    grid: Grid,
    *,
    weight_set: WeightSet,
    known: Bool[Tensor, " objects"] | None = None,
    presence: Sequence[Presence | None] | None = None,
    before_annotation: Sequence[bool] | None = None,
) -> Confidence:
    """Estimate the confidence of a frame from its signals.

    An object with an annotated `presence` on this very frame is certain, and its state is the annotated one. Objects
    that are not `known`, because they are annotated on a later frame only, are left out; those with
    `before_annotation` were propagated back from there.
    """
    values = fuse(signals.objects, weight_set)
    objects = {}
    for i, (name, value) in enumerate(zip(names, values.tolist(), strict=True)):
        annotated = presence[i] if presence is not None else None
        if annotated is not None:
            objects[name] = _certain(annotated)
        elif known is None or bool(known[i]):
            by_name = dict(zip(SIGNALS, (round(signal, 4) for signal in signals.objects[i].tolist()), strict=True))
            state = _state(value, signals, i, weight_set)
            before = before_annotation is not None and before_annotation[i]
            objects[name] = ObjectConfidence(round(value, 4), state, by_name, before_annotation=before)
    return Confidence(objects, fuse(signals.cells, "cell"), grid)


def certain(names: tuple[str, ...], presence: Sequence[Presence], grid: Grid) -> Confidence:
    """Return the confidence of a frame on which every object is annotated."""
    objects = {name: _certain(state) for name, state in zip(names, presence, strict=True)}
    return Confidence(objects, torch.ones(grid.y.cells, grid.x.cells), grid)


def _certain(state: Presence) -> ObjectConfidence:
    return ObjectConfidence(1.0, state, dict.fromkeys(SIGNALS, 1.0), annotated=True)


@runtime_checkable
class HasConfidence(Protocol):
    """What decides whether an object counts towards the confidence of its frame."""

    @property
    def value(self) -> float: ...

    @property
    def state(self) -> str: ...

    @property
    def annotated(self) -> bool: ...

    @property
    def before_annotation(self) -> bool: ...


def least_confident(objects: Mapping[str, HasConfidence]) -> str | None:
    """Return the object that gives a frame its confidence and state: the least confident of those that count.

    On an annotated frame the annotated objects count. On other frames those in view count, and an object before its
    first annotation counts only if no other does. None if there is no object.
    """
    counting = (
        [name for name, one in objects.items() if one.annotated and one.state not in UNSEEN],
        [name for name, one in objects.items() if one.annotated],
        [name for name, one in objects.items() if one.state not in UNSEEN and not one.before_annotation],
        [name for name, one in objects.items() if one.state not in UNSEEN],
        list(objects),
    )
    return min(next(filter(None, counting), []), key=lambda name: objects[name].value, default=None)


def fuse(
    signals: Float[Tensor, "... signals"],
    weight_set: Literal["region", "support", "point", "cell"],
    weights: Mapping[str, float] | None = None,
) -> Float[Tensor, "..."]:
    """Fuse signals, in the order of SIGNALS or for cells of CELL_SIGNALS, into one number by the fitted weights."""
    names = CELL_SIGNALS if weight_set == "cell" else SIGNALS
    weights = weights or fitted_weights()[weight_set]
    weight = torch.tensor([weights.get(name, 0.0) for name in names])
    fused = torch.sigmoid(signals @ weight + weights["bias"])
    if weight_set != "region":
        return fused
    # Labels that are frozen, or follow something else, can look as clear as any: past and annotated frames may veto
    # them. The doubt is squared, since an object that turned or is partly occluded is right and supported less.
    doubt = 1 - fuse(signals, "support")
    return torch.minimum(fused, 1 - doubt * doubt)


@lru_cache
def fitted_weights() -> Mapping[str, Mapping[str, float]]:
    """Return the weights of presets/confidence.toml."""
    return tomllib.loads(files("timecycle.presets").joinpath("confidence.toml").read_text(encoding="utf-8"))


def _state(value: float, signals: Signals, i: int, weight_set: WeightSet) -> State:
    size = float(signals.objects[i, SIGNALS.index("size")])
    if float(signals.area[i]) <= _EPSILON or (weight_set == "region" and size < _MIN_AREA):
        return "occluded"
    return state_of(value)


def state_of(value: float) -> State:
    """Return the state of an object in view, by its confidence."""
    if value >= _VISIBLE:
        return "visible"
    return "uncertain" if value >= _LOST else "lost"
