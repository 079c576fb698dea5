"""What a video is made of: one frame with its place in time, and the size all frames share."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from timecycle.errors import VideoError

# An 8K frame has 33 million pixels. Anything much larger is more likely a forged header than footage, and
# would cost hundreds of megabytes before anybody could notice.
DEFAULT_MAX_PIXELS = 64 * 1024 * 1024


@dataclass(frozen=True)
class Size:
    """Height and width in pixels, as a viewer sees the picture (rotation applied)."""

    height_px: int
    width_px: int

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width, as arrays have them."""
        return self.height_px, self.width_px

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
    number: int  # what the video itself calls this frame: the number in an image file's name, otherwise the index
    pts: int  # presentation time in units of the video's `time_base`
    time_seconds: float  # pts * time_base: the container's own clock, which need not start at 0
    image: UInt8[np.ndarray, "height width 3"]  # RGB, upright

    def __repr__(self) -> str:
        height, width, _ = self.image.shape
        return f"Frame(index={self.index}, time_seconds={self.time_seconds:.6g}, {width}x{height})"


def rgb_of(image: object) -> UInt8[np.ndarray, "height width 3"]:
    """The pixels of a frame or of an RGB image; refuses others, which would be matched as something else."""
    if isinstance(image, Frame):
        return image.image
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3:
        return image
    what = f"{image.dtype} with the shape {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
    raise VideoError(
        f"an image was passed as {what}",
        remedy="pass a frame of a video, or RGB as an array of uint8 (height, width, 3); scale floats to 255",
    )
