"""How labels are carried: the settings of a propagation, with what each one does."""

import math
from dataclasses import dataclass
from typing import Literal

from timecycle.errors import SettingsError
from timecycle.grid import Grid
from timecycle.propagation.neighbours import Weighting
from timecycle.propagation.window import Shape, Window


@dataclass(frozen=True, kw_only=True)
class PropagateConfig:
    """How labels are carried. Sizes are pixels of the image as it is encoded."""

    image_size_px: int = 480  # shorter side of the encoded image; a smaller video is never enlarged
    square: bool = False  # ignore the aspect ratio, as the 2019 release did
    past_frames: int = 7  # K of the paper: the last frames that vote besides the labelled ones
    anchor_frames: int = 8  # labelled frames that go on voting; more cost time, not memory over the video's length
    neighbours: int = 10  # more smooth the labels and blur small objects
    weighting: Weighting = "joint"
    temperature: float = 0.07  # lower trusts the best match more; 1 is the paper's Eq. 1, nearly a plain mean
    window_px: float | None = 96  # how far something may move between a frame and the next ones; None: anywhere
    anchor_window_px: float | None = 96  # the same for labelled frames, which may be long ago; None: anywhere
    window_shape: Shape = "disc"
    stretch: bool = False  # stretch every channel to [0, 1] in every frame, as the 2019 release did
    repeat_first: bool = False  # early frames count the first one for each past frame they lack (2019 release)
    direction: Literal["both", "forward"] = "both"  # both: also carry labels back in time from where they were drawn

    def window(self, grid: Grid, *, labelled: bool) -> Window | None:
        """The window through which a frame is seen, in cells of the grid of the encoded image."""
        reach_px = self.anchor_window_px if labelled else self.window_px
        return None if reach_px is None else Window(reach_px / grid.x.stride_px, self.window_shape)

    def __post_init__(self) -> None:
        positive = (
            "image_size_px",
            "anchor_frames",
            "neighbours",
            "temperature",
            "window_px",
            "anchor_window_px",
        )
        for name in positive:
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise SettingsError(f"{name} is {value}", remedy=f"set {name} to a finite number above 0")
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and value > most:
                raise SettingsError(f"{name} is {value}", remedy=f"set {name} to {most} at most")
        if self.temperature < _COLDEST:
            raise SettingsError(f"temperature is {self.temperature}", remedy=f"set it to {_COLDEST} or more")
        if self.past_frames < 0:
            raise SettingsError(f"past_frames is {self.past_frames}", remedy="set past_frames to 0 or more")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise SettingsError(f"{name} is {getattr(self, name)!r}", remedy=f"choose one of {', '.join(allowed)}")


# Larger than anyone needs, and small enough that memory and numbers hold them.
_MOST = {
    "image_size_px": 16384,
    "past_frames": 10_000,
    "anchor_frames": 10_000,
    "neighbours": 10_000,
    "window_px": 1_000_000,
    "anchor_window_px": 1_000_000,
}
_COLDEST = 1e-6  # a cosine of 1 divided by less may be no number any more

_CHOICES = {
    "weighting": ("joint", "per_reference"),
    "window_shape": ("disc", "square"),
    "direction": ("both", "forward"),
}
