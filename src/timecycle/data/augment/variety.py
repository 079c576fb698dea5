"""Make several clips of one: turned, and with other colours, the same in all frames and views.

Unlike the changes of views, these are no differences that features must ignore. They multiply a small corpus, whose
scenes a long training would otherwise learn by heart: where in a known room a cell lies.
"""

from dataclasses import dataclass

import numpy as np

from timecycle.data.augment.views import Frames, ViewConfig, photometric
from timecycle.errors import SettingsError

_QUARTERS = 4


@dataclass(frozen=True, kw_only=True)
class VarietyConfig:
    turns: bool = False  # turn clips by 0 to 3 quarters of a circle
    colours: float = 0.0  # 0 keeps colours; 1 turns the hue by any angle and changes brightness, contrast, saturation

    def __post_init__(self) -> None:
        if not 0 <= self.colours <= 1:
            raise SettingsError(f"variety.colours is {self.colours}", remedy="give 0 to 1")

    @property
    def recolouring(self) -> ViewConfig:
        """The range of colours, as the augmentation of views describes it."""
        share = self.colours
        return ViewConfig(
            brightness=0.3 * share,
            contrast=0.3 * share,
            saturation=0.5 * share,
            hue=0.5 * share,
            grayscale=0.1 * share,
            channel_drop=0,
            blur=0,
        )


def vary(frames: Frames, config: VarietyConfig, rng: np.random.Generator) -> Frames:
    """Turn and recolour the frames of a square clip alike; nothing is drawn for what is off."""
    if config.turns:
        frames = np.ascontiguousarray(np.rot90(frames, int(rng.integers(_QUARTERS)), axes=(1, 2)))
    return photometric(frames, config.recolouring, rng) if config.colours else frames
