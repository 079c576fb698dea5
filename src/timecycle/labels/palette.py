"""The colour of every object: one scheme for label files, overlays, contact sheets and charts."""

import colorsys
from functools import cache

import numpy as np
from jaxtyping import UInt8

RGB = tuple[int, int, int]

# Bright colours that stand out from footage and from one another, for colour-blind people too (after Paul Tol's
# "vibrant" scheme). Ids beyond them take hues a golden ratio apart.
_FIRST: tuple[RGB, ...] = (
    (238, 51, 119),
    (51, 187, 238),
    (238, 119, 51),
    (0, 153, 136),
    (0, 119, 187),
    (204, 51, 17),
)
_WHITE = (200, 40, 240)  # of 255, the id of the object on a black and white mask: on neither sand, water nor leaves
_GOLDEN = 0.618034
_LEVELS = ((0.85, 0.95), (0.55, 0.95), (0.85, 0.7))  # saturation and value, in turn


@cache
def colour_of(identity: int) -> RGB:
    """The colour of an object by its id, or of a point by its place in the list, from 1."""
    if identity <= len(_FIRST):
        return _FIRST[identity - 1]
    if identity == 255:
        return _WHITE
    saturation, value = _LEVELS[identity % len(_LEVELS)]
    red, green, blue = colorsys.hsv_to_rgb(identity * _GOLDEN % 1, saturation, value)
    return round(red * 255), round(green * 255), round(blue * 255)


@cache
def palette() -> UInt8[np.ndarray, "256 3"]:
    """The colours of the ids 0 to 255, of label files; the background is black."""
    return _frozen(np.array([(0, 0, 0), *(colour_of(identity) for identity in range(1, 256))], np.uint8))


@cache
def voc_palette() -> UInt8[np.ndarray, "256 3"]:
    """The PASCAL VOC table, of DAVIS and many tools: bit j of channel c, from the top, is bit 3j + c of the id."""
    ids = np.arange(256)
    table = np.zeros((256, 3), np.uint8)
    for channel in range(3):
        for bit in range(8):
            table[:, channel] |= (((ids >> (3 * bit + channel)) & 1) << (7 - bit)).astype(np.uint8)
    return _frozen(table)


def _frozen(table: UInt8[np.ndarray, "256 3"]) -> UInt8[np.ndarray, "256 3"]:
    table.setflags(write=False)
    return table
