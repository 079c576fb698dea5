"""What a video is made of: one frame with its place in time, and the size all frames share."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

# An 8K frame has 33 million pixels. Anything much larger is more likely a forged header than footage, and
# would cost hundreds of megabytes before anybody could notice.
DEFAULT_MAX_PIXELS = 64 * 1024 * 1024


@dataclass(frozen=True)
class Size:
    """Height and width in pixels, as a viewer sees the picture (rotation applied)."""

    height_px: int
    width_px: int

    @property
    def pixels(self) -> int:
        """How many pixels one frame has."""
        return self.height_px * self.width_px

    def __str__(self) -> str:
        return f"{self.width_px}x{self.height_px}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Frame:
    """One picture of a video; `image` belongs to the receiver, who may change it."""

    index: int  # place in the order of presentation, from 0
    pts: int  # presentation time in units of the video's `time_base`
    time_seconds: float  # pts * time_base: the container's own clock, which need not start at 0
    image: UInt8[np.ndarray, "height width 3"]  # RGB, upright

    def __repr__(self) -> str:
        height, width, _ = self.image.shape
        return f"Frame(index={self.index}, time_seconds={self.time_seconds:.6g}, {width}x{height})"
