"""Detect and remove soft edges of masks: anti-aliasing creates values along outlines that are not object ids.

For one object on a plain background, a blended value says how much of the pixel the object covers, and its outline is
at half. With more objects a blended value is ambiguous.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from jaxtyping import Bool, Float32, UInt8, UInt32

Pixels = UInt8[np.ndarray, "height width channels"]  # grey; grey and alpha; or red, green, blue and alpha

_SOFT_SHARE = 0.08  # of all steps from one value to another: see `Edges`
_OFF_LINE = 0.1  # of the distance between two tones: sharpening filters move blends this far off the line
_NEAR_TONE = 0.1  # of the same: this near to a tone the rim of a large soft brush is flat over some pixels
_SHADES = 128  # distance between tones from which values in between are shades rather than ids


@dataclass(frozen=True, eq=False)
class Edges:
    """Pixels whose value lies between those of their two neighbours, as on soft edges.

    A hard edge changes from one value to the next at once. A soft edge passes through blended values, each one pixel
    wide and in every channel between the values on its two sides. Hard masks also have such pixels, where one object
    is squeezed between two others. They are few (below 5 % of all steps for a thousand objects on a small image, above
    10 % for anti-aliased outlines), or have one value (an outline with an id of its own). A thin object on a plain
    background has a value outside those of its two sides.
    """

    blended: Bool[np.ndarray, "height width"]
    share: float  # of blended pixels in all steps from one value to another
    invented: int  # number of blended values
    values: int  # number of all values

    @property
    def soft(self) -> bool:
        fewest = 3 if self.values - self.invented > 2 else 2
        return self.share > _SOFT_SHARE and self.invented >= fewest


def edges_of(pixels: Pixels) -> Edges:
    """Find blended pixels along rows and columns."""
    steps = blends = 0
    blended = np.zeros(pixels.shape[:2], bool)
    for axis in (0, 1):
        along_axis = np.moveaxis(blended, axis, 0)  # a view with the axis first: writes to it go to `blended`
        step = np.sign(np.diff(np.moveaxis(pixels, axis, 0).astype(np.int16), axis=0))
        moves = np.asarray((step != 0).any(axis=-1))
        between = moves[:-1] & moves[1:] & (step[:-1] * step[1:] >= 0).all(axis=-1)
        along_axis[1:-1] |= between
        steps += int(moves.sum())
        blends += int(between.sum())
    codes = _packed(pixels)
    invented = len(np.unique(codes[blended]))
    return Edges(blended, blends / max(steps, 1), invented, len(np.unique(codes)) if invented else 0)


def hardened(pixels: Pixels) -> Pixels | None:
    """Threshold one object on a plain background at half its tone; return None if there are more than two tones.

    The two tones fill areas. Every other value lies between them and fills no area: not 3x3 pixels, or not 7x7 if it is
    close to a tone.
    """
    flat = _flat(_packed(pixels), 3)
    background = _background(pixels)
    is_background = (pixels == background).all(axis=-1)
    if not (flat & is_background).any():
        return None
    origin = _premultiplied(background)
    offset = _premultiplied(pixels) - origin
    distance = (offset**2).sum(axis=-1)
    areas = flat & ~is_background
    # Thin strokes fill no area: their tone is the value farthest from the background.
    tone = pixels.reshape(-1, pixels.shape[-1])[np.where(areas, distance, -1.0 if areas.any() else distance).argmax()]
    direction = _premultiplied(tone) - origin
    cover = (offset @ direction) / max(float(direction @ direction), 1.0)
    shades = float(np.abs(direction).max())
    off_line = np.abs(offset - cover[..., None].clip(0, 1) * direction).max()
    if off_line > max(_OFF_LINE * shades, 2):
        return None
    between = ~is_background & (pixels != tone).any(axis=-1)
    near = (np.minimum(np.abs(cover), np.abs(1 - cover)) <= _NEAR_TONE) & (shades >= _SHADES)
    if (flat & between & ~near).any() or (between & _flat(_packed(pixels), 7)).any():
        return None
    return np.where((cover >= 0.5)[..., None], tone, background)


def is_partly_soft(pixels: Pixels, hard: Pixels, edges: Edges) -> bool:
    """Return whether a mask with few soft pixels (such as a box with round corners) should be read as `hard`."""
    between = (pixels != hard).any(axis=-1)
    invented = len(np.unique(_packed(pixels)[between]))
    return invented >= 3 and bool((edges.blended & between).sum() >= 0.9 * between.sum())


def _background(pixels: Pixels) -> UInt8[np.ndarray, " channels"]:
    """Return the background: transparent if any pixel is, otherwise black."""
    channels = pixels.shape[-1]
    background = np.zeros(channels, np.uint8)
    if channels > 1 and (pixels[..., -1] > 0).all():
        background[-1] = 255
    return background


def _premultiplied(pixels: UInt8[np.ndarray, "*size channels"]) -> Float32[np.ndarray, "*size channels"]:
    """Multiply values by alpha: a soft brush changes only alpha, and premultiplied values blend along a line."""
    paint = pixels.astype(np.float32)
    if pixels.shape[-1] > 1:
        paint[..., :-1] *= paint[..., -1:] / 255
    return paint


def _packed(pixels: Pixels) -> UInt32[np.ndarray, "height width"]:
    """Return the channels of every pixel as one number."""
    code = np.zeros(pixels.shape[:2], np.uint32)
    for channel in range(pixels.shape[-1]):
        code = (code << 8) | pixels[..., channel]
    return code


def _flat(codes: UInt32[np.ndarray, "height width"], side: int) -> Bool[np.ndarray, "height width"]:
    """Mark pixels in the middle of side x side pixels of one value; border pixels are repeated outwards."""
    low = high = np.pad(codes, side // 2, mode="edge")
    for axis in (0, 1):
        length = codes.shape[axis]
        low, high = (
            reduce(pick, (np.take(ends, range(shift, shift + length), axis=axis) for shift in range(side)))
            for ends, pick in ((low, np.minimum), (high, np.maximum))
        )
    return np.asarray(low == high)
