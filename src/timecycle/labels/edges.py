"""Soft edges of masks: anti-aliasing invents values along outlines, which read as ids would be objects of their own.

Where one object was drawn on a plain background, the values in between say how much of each pixel it covers, and its
outline is at half. Where there are more objects a value in between may stand for any of them.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from jaxtyping import Bool, Float32, UInt8, UInt32

Pixels = UInt8[np.ndarray, "height width channels"]  # grey; grey and alpha; or red, green, blue and alpha

_SOFT_SHARE = 0.08  # of all steps from one value to another: see `Edges`
_OFF_LINE = 0.1  # of the way between two tones: so far sharpening filters take a blend of them off the line
_NEAR_TONE = 0.1  # of the same: so near to a tone the rim of a large soft brush is even over some pixels
_SHADES = 128  # between the tones, from which on values are shades rather than ids


@dataclass(frozen=True, eq=False)
class Edges:
    """Pixels between their neighbours on both sides, as soft edges have them.

    A hard edge goes from one value to the next at once. A soft one passes through values in between, each a pixel
    wide and between those on its two sides in every channel. Hard masks have such pixels too, where one object is
    squeezed between two others, but they are few (below 5 % of all steps for a thousand objects on a small image,
    above 10 % for anti-aliased outlines), or of one value (an outline with an id of its own). A thin object on a
    plain ground is not between its two sides.
    """

    passing: Bool[np.ndarray, "height width"]
    share: float  # of all steps from one value to another
    invented: int  # how many values pass
    values: int  # how many there are in all

    @property
    def soft(self) -> bool:
        least = 3 if self.values - self.invented > 2 else 2
        return self.share > _SOFT_SHARE and self.invented >= least


def edges_of(pixels: Pixels) -> Edges:
    """Look for soft edges along rows and columns."""
    steps = passes = 0
    passing = np.zeros(pixels.shape[:2], bool)
    for axis in (0, 1):
        # Views with the axis first: what is marked in `found` is marked in `passing`.
        found = np.moveaxis(passing, axis, 0)
        step = np.sign(np.diff(np.moveaxis(pixels, axis, 0).astype(np.int16), axis=0))
        moves = np.asarray((step != 0).any(axis=-1))
        between = moves[:-1] & moves[1:] & (step[:-1] * step[1:] >= 0).all(axis=-1)
        found[1:-1] |= between
        steps += int(moves.sum())
        passes += int(between.sum())
    codes = _packed(pixels)
    invented = len(np.unique(codes[passing]))
    return Edges(passing, passes / max(steps, 1), invented, len(np.unique(codes)) if invented else 0)


def hardened(pixels: Pixels) -> Pixels | None:
    """Part the two tones of one object on a plain background at half; None where there are more than two tones.

    The tones fill areas. Every other value lies between them and fills none: not 3x3 pixels, nor 7x7 close to a tone.
    """
    even = _even(_packed(pixels), 3)
    background = _background(pixels)
    is_background = (pixels == background).all(axis=-1)
    if not (even & is_background).any():
        return None
    ground = _premultiplied(background)
    away = _premultiplied(pixels) - ground
    distance = (away**2).sum(axis=-1)
    areas = even & ~is_background
    # Thin strokes fill no area: their tone is then the value that is farthest from the background.
    tone = pixels.reshape(-1, pixels.shape[-1])[np.where(areas, distance, -1.0 if areas.any() else distance).argmax()]
    along = _premultiplied(tone) - ground
    cover = (away @ along) / max(float(along @ along), 1.0)
    shades = float(np.abs(along).max())
    off_line = np.abs(away - cover[..., None].clip(0, 1) * along).max()
    if off_line > max(_OFF_LINE * shades, 2):
        return None
    between = ~is_background & (pixels != tone).any(axis=-1)
    near = (np.minimum(np.abs(cover), np.abs(1 - cover)) <= _NEAR_TONE) & (shades >= _SHADES)
    if (even & between & ~near).any() or (between & _even(_packed(pixels), 7)).any():
        return None
    return np.where((cover >= 0.5)[..., None], tone, background)


def is_soft_in_places(pixels: Pixels, hard: Pixels, edges: Edges) -> bool:
    """Whether a mask with few soft pixels (a box with round corners) was meant to be `hard`."""
    between = (pixels != hard).any(axis=-1)
    invented = len(np.unique(_packed(pixels)[between]))
    return invented >= 3 and bool((edges.passing & between).sum() >= 0.9 * between.sum())


def _background(pixels: Pixels) -> UInt8[np.ndarray, " channels"]:
    """Transparent where anything is; otherwise black."""
    channels = pixels.shape[-1]
    background = np.zeros(channels, np.uint8)
    if channels > 1 and (pixels[..., -1] > 0).all():
        background[-1] = 255
    return background


def _premultiplied(pixels: UInt8[np.ndarray, "*size channels"]) -> Float32[np.ndarray, "*size channels"]:
    """Values times alpha: a soft brush keeps its colour and changes alpha, and this is what blends along a line."""
    paint = pixels.astype(np.float32)
    if pixels.shape[-1] > 1:
        paint[..., :-1] *= paint[..., -1:] / 255
    return paint


def _packed(pixels: Pixels) -> UInt32[np.ndarray, "height width"]:
    """The channels of a pixel as one number."""
    code = np.zeros(pixels.shape[:2], np.uint32)
    for channel in range(pixels.shape[-1]):
        code = (code << 8) | pixels[..., channel]
    return code


def _even(codes: UInt32[np.ndarray, "height width"], side: int) -> Bool[np.ndarray, "height width"]:
    """Pixels in the middle of side x side pixels of one value; beyond the border the image goes on as it ends."""
    reach = side // 2
    low = high = np.pad(codes, reach, mode="edge")
    for axis in (0, 1):
        length = codes.shape[axis]
        low, high = (
            reduce(pick, (np.take(ends, range(shift, shift + length), axis=axis) for shift in range(side)))
            for ends, pick in ((low, np.minimum), (high, np.maximum))
        )
    return np.asarray(low == high)
