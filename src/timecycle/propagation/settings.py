"""The settings of a propagation."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from timecycle.errors import SettingsError
from timecycle.grid import Grid
from timecycle.labels.space import Space
from timecycle.matching.neighbours import Weighting
from timecycle.matching.window import Window, WindowShape


@dataclass(frozen=True, kw_only=True)
class PropagateConfig:
    """The settings of a propagation. Sizes are pixels of the encoded image."""

    image_size_px: int = 480  # shorter side of the encoded image
    enlarge: float = 1.0  # how far a smaller video is enlarged towards it; 1: not at all
    square: bool = False  # ignore the aspect ratio, as the 2019 release did
    past_frames: int = 7  # K of the paper: the last frames in memory besides the annotated ones
    older_frames: int = 3  # earlier frames that are also in memory, one of every `older_interval`
    older_interval: int = 5  # counted from the last annotated frame
    anchor_frames: int = 8  # annotated frames that stay in memory; more of them cost time
    neighbours: int = 10  # k of top-k; larger values smooth the labels and blur small objects
    weighting: Weighting = "joint"  # one top k over all references, or `per_reference`, as in the paper
    temperature: float = 0.07  # lower trusts the best match more; 1 is the paper's Eq. 1, nearly a plain mean
    window_px: float | None = 96  # how far an object may move between neighbouring frames; None: anywhere
    anchor_window_px: float | None = 96  # the same for annotated frames, which may be far away in time; None: anywhere
    window_shape: WindowShape = "disc"  # or `square`
    subcells: int = 1  # labels along each side of a feature cell, matched together: outlines finer than the cells
    sharpening: float = 3.0  # power of the aggregated labels; above 1 uncertainty does not spread from frame to frame
    target_weight: float = 0.5  # of the target model, a classifier learned from the annotated frames; 0: none
    target_interval: int = 5  # frames after which the target model is fitted again
    guided_filter: bool = True  # draw outlines along the edges of the image: masks and parts
    stretch: bool = False  # stretch every channel to [0, 1] on every frame, as the 2019 release did
    repeat_first: bool = False  # early frames repeat the first one for each missing past frame (2019 release)
    direction: Literal["both", "forward"] = "both"  # both: also propagate backward in time from annotated frames

    def window(self, grid: Grid, *, annotated: bool) -> Window | None:
        """Return the search window in a reference frame, in cells of the grid of the encoded image."""
        radius_px = self.anchor_window_px if annotated else self.window_px
        return None if radius_px is None else Window(radius_px / grid.x.stride_px, self.window_shape)

    def subcells_of(self, space: Space) -> int:
        """Return how many labels each side of a feature cell has in this label space."""
        return self.subcells if space.divisible else 1

    def __post_init__(self) -> None:
        positive = (
            "image_size_px",
            "enlarge",
            "anchor_frames",
            "older_interval",
            "neighbours",
            "temperature",
            "window_px",
            "anchor_window_px",
            "subcells",
            "sharpening",
            "target_interval",
        )
        for name in positive:
            value = getattr(self, name)
            if isinstance(value, str):
                raise SettingsError(f"{name} is {value!r}", remedy=f"set {name} to a number")
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise SettingsError(f"{name} is {value}", remedy=f"set {name} to a finite number above 0")
        for name, most in _MAXIMUM.items():
            value = getattr(self, name)
            if value is not None and value > most:
                raise SettingsError(f"{name} is {value}", remedy=f"set {name} to {most} at most")
        if self.enlarge < 1:
            raise SettingsError(
                f"enlarge is {self.enlarge}", remedy="set it to 1 or more; image_size_px makes images smaller"
            )
        if self.temperature < _MIN_TEMPERATURE:
            raise SettingsError(f"temperature is {self.temperature}", remedy=f"set it to {_MIN_TEMPERATURE} or more")
        for name in ("past_frames", "older_frames", "target_weight"):
            if getattr(self, name) < 0:
                raise SettingsError(f"{name} is {getattr(self, name)}", remedy=f"set {name} to 0 or more")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise SettingsError(f"{name} is {getattr(self, name)!r}", remedy=f"choose one of {', '.join(allowed)}")


# Larger than anyone needs, and small enough not to overflow.
_MAXIMUM = {
    "image_size_px": 16384,
    "enlarge": 16,
    "past_frames": 10_000,
    "older_frames": 10_000,
    "older_interval": 10_000,
    "anchor_frames": 10_000,
    "neighbours": 10_000,
    "window_px": 1_000_000,
    "anchor_window_px": 1_000_000,
    "subcells": 16,
    "sharpening": 100,
    "target_weight": 100,
    "target_interval": 10_000,
}
_MIN_TEMPERATURE = 1e-6  # a cosine of 1 divided by less may overflow

_CHOICES = {
    "weighting": get_args(Weighting),
    "window_shape": get_args(WindowShape),
    "direction": ("both", "forward"),
}
