"""Colours of objects: one palette for label files, overlays, contact sheets and charts; and colours in words."""

import colorsys
from collections.abc import Mapping
from functools import cache

import numpy as np
from jaxtyping import UInt8

RGB = tuple[int, int, int]

# Bright colours that stand out from footage and from one another, for colour-blind people too (after Paul Tol's
# "vibrant" scheme). Further ids take hues a golden ratio apart.
_FIRST: tuple[RGB, ...] = (
    (238, 51, 119),
    (51, 187, 238),
    (238, 119, 51),
    (0, 153, 136),
    (0, 119, 187),
    (204, 51, 17),
)
_WHITE = (200, 40, 240)  # for 255, the id in a black and white mask: stands out from sand, water and leaves
_GOLDEN = 0.618034
_LEVELS = ((0.85, 0.95), (0.55, 0.95), (0.85, 0.7))  # saturation and value, in turn

_NAMES = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "grey": (128, 128, 128),
    "red": (255, 0, 0),
    "dark red": (128, 0, 0),
    "green": (0, 255, 0),
    "dark green": (0, 128, 0),
    "blue": (0, 0, 255),
    "dark blue": (0, 0, 128),
    "yellow": (255, 255, 0),
    "olive": (128, 128, 0),
    "cyan": (0, 255, 255),
    "light blue": (51, 187, 238),
    "teal": (0, 150, 136),
    "magenta": (255, 0, 255),
    "purple": (128, 0, 128),
    "violet": (200, 40, 240),
    "pink": (238, 51, 119),
    "orange": (238, 119, 51),
    "brown": (139, 69, 19),
}
_MAX_LISTED = 12  # objects in a sentence


@cache
def colour_of(identity: int) -> RGB:
    """Return the colour of an object by its id, or of a point by its index from 1."""
    if identity <= len(_FIRST):
        return _FIRST[identity - 1]
    if identity == 255:
        return _WHITE
    saturation, value = _LEVELS[identity % len(_LEVELS)]
    red, green, blue = colorsys.hsv_to_rgb(identity * _GOLDEN % 1, saturation, value)
    return round(red * 255), round(green * 255), round(blue * 255)


@cache
def palette() -> UInt8[np.ndarray, "256 3"]:
    """Return the palette of label files: the colours of ids 0 to 255, with a black background."""
    return _frozen(np.array([(0, 0, 0), *(colour_of(identity) for identity in range(1, 256))], np.uint8))


@cache
def voc_palette() -> UInt8[np.ndarray, "256 3"]:
    """Return the PASCAL VOC palette, which DAVIS and many tools use.

    Bit 7 - j of channel c is bit 3j + c of the id.
    """
    ids = np.arange(256)
    table = np.zeros((256, 3), np.uint8)
    for channel in range(3):
        for bit in range(8):
            table[:, channel] |= (((ids >> (3 * bit + channel)) & 1) << (7 - bit)).astype(np.uint8)
    return _frozen(table)


def colour_in_words(code: int) -> str:
    """Describe a colour 0xRRGGBB by the nearest name and its exact values: `blue (0,0,255)`."""
    rgb = code >> 16, code >> 8 & 255, code & 255
    name = min(_NAMES, key=lambda word: sum((a - b) ** 2 for a, b in zip(_NAMES[word], rgb, strict=True)))
    return f"{name} ({','.join(map(str, rgb))})"


def colours_in_words(ids: Mapping[int, int]) -> str:
    """Describe which object each colour 0xRRGGBB stands for: `object 1 is blue (0,0,255), 2 is green (0,255,0)`."""
    colours = sorted((i, code) for code, i in ids.items())
    words = ", ".join(f"{i} is {colour_in_words(code)}" for i, code in colours[:_MAX_LISTED])
    return f"object {words}{f' and {len(colours) - _MAX_LISTED} more' if len(colours) > _MAX_LISTED else ''}"


def _frozen(table: UInt8[np.ndarray, "256 3"]) -> UInt8[np.ndarray, "256 3"]:
    table.setflags(write=False)
    return table
