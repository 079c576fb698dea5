"""How far labels can be trusted: one number from 0 to 1 for every frame, object and pixel, out of the evidence.

The number is a rank first and a probability second: its weights are fitted to one encoder on footage of one kind
(presets/confidence.toml), and frames that a person corrects tell how to read it on another.
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

from timecycle.errors import SettingsError
from timecycle.grid import Grid
from timecycle.labels.soft import upsample
from timecycle.labels.space import Presence, listed
from timecycle.propagation.evidence import CELL_SIGNALS, SIGNALS, Evidence

# Visible, occluded and absent may be annotated; a propagated object is never said to be absent.
State = Literal["visible", "uncertain", "occluded", "absent", "lost"]
UNSEEN: tuple[State, ...] = ("occluded", "absent")  # nothing of such an object is labelled, or hardly anything
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
    annotated: bool = False  # on this very frame: what is annotated is certain
    early: bool = False  # this frame comes before the first one on which the object is annotated


@dataclass(frozen=True, eq=False)
class Confidence:
    """Of one frame: as sure as the least sure object that counts (`least_sure`)."""

    objects: Mapping[str, ObjectConfidence]
    cells: Float[Tensor, "rows columns"]
    grid: Grid

    @property
    def value(self) -> float:
        least = least_sure(self.objects)
        return 1.0 if least is None else self.objects[least].value

    @property
    def state(self) -> State:
        least = least_sure(self.objects)
        return "visible" if least is None else self.objects[least].state

    def __repr__(self) -> str:
        objects = [f"{name} {one.value:.2f} {one.state}" for name, one in self.objects.items()]
        return f"Confidence({self.value:.2f} {self.state}; {listed(objects, most=3)})"

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
    presence: Sequence[Presence | None] | None = None,
    early: Sequence[bool] | None = None,
) -> Confidence:
    """The confidence that the evidence is worth.

    An object with an annotated `presence` on this very frame is certain, and its state is the annotated one. Objects
    that are not `known`, as they are annotated on a later frame only, are left out; `early` ones were propagated back
    from there.
    """
    values = fuse(evidence.objects, form)
    objects = {}
    for i, (name, value) in enumerate(zip(names, values.tolist(), strict=True)):
        annotated = presence[i] if presence is not None else None
        if annotated is not None:
            objects[name] = _certain(annotated)
        elif known is None or bool(known[i]):
            signals = dict(zip(SIGNALS, (round(signal, 4) for signal in evidence.objects[i].tolist()), strict=True))
            state = _state(value, evidence, i, form)
            objects[name] = ObjectConfidence(round(value, 4), state, signals, early=early is not None and early[i])
    return Confidence(objects, fuse(evidence.cells, "cell"), grid)


def certain(names: tuple[str, ...], presence: Sequence[Presence], grid: Grid) -> Confidence:
    """The confidence of a frame on which every object is annotated."""
    objects = {name: _certain(state) for name, state in zip(names, presence, strict=True)}
    return Confidence(objects, torch.ones(grid.y.cells, grid.x.cells), grid)


def _certain(state: Presence) -> ObjectConfidence:
    return ObjectConfidence(1.0, state, dict.fromkeys(SIGNALS, 1.0), annotated=True)


@runtime_checkable
class OfObject(Protocol):
    """What decides whether an object counts towards its frame."""

    @property
    def value(self) -> float: ...

    @property
    def state(self) -> str: ...

    @property
    def annotated(self) -> bool: ...

    @property
    def early(self) -> bool: ...


def least_sure(objects: Mapping[str, OfObject]) -> str | None:
    """The object that a frame takes its confidence and state from: the least sure of those that count.

    On an annotated frame the annotated objects count. On others those that are in view do, and before its first
    annotation an object counts only where no other does. None where there is no object.
    """
    counting = (
        [name for name, one in objects.items() if one.annotated and one.state not in UNSEEN],
        [name for name, one in objects.items() if one.annotated],
        [name for name, one in objects.items() if one.state not in UNSEEN and not one.early],
        [name for name, one in objects.items() if one.state not in UNSEEN],
        list(objects),
    )
    return min(next(filter(None, counting), []), key=lambda name: objects[name].value, default=None)


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
