"""A frame with its index and time, and the size that all frames of a video share."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from timecycle.display import Displayed
from timecycle.errors import VideoError

# An 8K frame has 33 million pixels. A much larger frame is more likely a forged header than footage, and would take
# hundreds of megabytes before anything is noticed.
DEFAULT_MAX_PIXELS = 64 * 1024 * 1024


@dataclass(frozen=True)
class Size:
    """Height and width in pixels, with the rotation applied."""

    height_px: int
    width_px: int

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in the order of array axes."""
        return self.height_px, self.width_px

    @property
    def pixels(self) -> int:
        """The number of pixels of one frame."""
        return self.height_px * self.width_px

    def __str__(self) -> str:
        return f"{self.width_px}x{self.height_px}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Frame(Displayed):
    """One frame of a video; `image` is not shared, so the receiver may change it."""

    index: int  # in the order of presentation, from 0
    number: int  # the number in the image file's name, otherwise the index
    pts: int  # presentation time in units of the video's `time_base`
    time_seconds: float  # pts * time_base, in the time of the container, which need not start at 0
    image: UInt8[np.ndarray, "height width 3"]  # RGB, upright

    def __repr__(self) -> str:
        height, width, _ = self.image.shape
        return f"Frame(index={self.index}, time_seconds={self.time_seconds:.6g}, {width}x{height} px)"

    def show(self) -> Image.Image:
        """Return the image."""
        return Image.fromarray(self.image)


def rgb_of(image: object) -> UInt8[np.ndarray, "height width 3"]:
    """Return the pixels of a frame or of an RGB array; raise VideoError for any other image."""
    if isinstance(image, Frame):
        return image.image
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3:
        return image
    what = f"{image.dtype} with the shape {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
    raise VideoError(
        f"an image was passed as {what}",
        remedy="pass a frame of a video, or RGB as an array of uint8 (height, width, 3); scale floats to 255",
    )
