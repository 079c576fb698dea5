"""Colours of objects (one palette for label files, overlays, contact sheets and charts), and drawing over an image."""

import colorsys
from collections.abc import Mapping
from functools import cache

import numpy as np
from jaxtyping import Bool, Float, Float32, Integer, UInt8
from PIL import Image, ImageDraw

Picture = UInt8[np.ndarray, "height width 3"]
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

_TINT = 0.5  # opacity of a mask's colour


# Colours


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


# Drawing: every function returns a new image


def mix(image: Picture, paint: Picture, alpha: Float[np.ndarray, "..."] | np.float32) -> Picture:
    """Blend `paint` into an image with the opacity `alpha`."""
    mixed = image.astype(np.float32)
    mixed += (paint.astype(np.float32) - mixed) * alpha
    return np.rint(mixed).astype(np.uint8)


def tint(
    image: Picture, ids: Integer[np.ndarray, "height width"], *, outline: Integer[np.ndarray, "height width"]
) -> Picture:
    """Tint every object in the colour of its id, with a lighter line along the edges of `outline`."""
    present = np.unique(ids)
    table = np.zeros((int(present[-1]) + 1, 3), np.uint8)
    for identity in present[present > 0]:
        table[identity] = colour_of(int(identity))
    paint = table[ids]
    inside = ids > 0
    tinted = mix(image, paint, (inside * np.float32(_TINT))[..., None])
    edge = _edges(outline) & inside
    tinted[edge] = np.minimum(paint[edge].astype(np.int16) + 70, 255).astype(np.uint8)
    return tinted


def outline_region(image: Picture, region: Bool[np.ndarray, "height width"]) -> Picture:
    """Draw a white line with a black rim around a region."""
    line = _dilated(region, max(2, round(min(region.shape) / 160)))
    rim = _dilated(line, max(1, round(min(region.shape) / 320)))
    outlined = image.copy()
    outlined[rim & ~region] = 0
    outlined[line & ~region] = 255
    return outlined


def draw_points(image: Picture, xy: Float32[np.ndarray, "points 2"], visible: Bool[np.ndarray, " points"]) -> Picture:
    """Draw visible points as discs and hidden points with a position as rings."""
    canvas = Image.fromarray(image)
    pen = ImageDraw.Draw(canvas)
    radius = max(3, round(min(image.shape[:2]) / 70))
    for i, ((x, y), is_visible) in enumerate(zip(xy.tolist(), visible, strict=True)):
        box, colour = (x - radius, y - radius, x + radius, y + radius), colour_of(1 + i)
        if is_visible:
            pen.ellipse(box, fill=colour, outline=(255, 255, 255), width=1)
        elif np.isfinite((x, y)).all():
            pen.ellipse(box, outline=colour, width=1)
    return np.array(canvas)


def ring_point(image: Picture, x: float, y: float) -> Picture:
    """Draw a white ring with a black rim around a point."""
    canvas = Image.fromarray(image)
    pen = ImageDraw.Draw(canvas)
    radius = max(8, round(min(image.shape[:2]) / 25))
    for rim, ink in ((1, (0, 0, 0)), (0, (255, 255, 255))):
        edge = radius + rim
        pen.ellipse((x - edge, y - edge, x + edge, y + edge), outline=ink, width=2 + 2 * rim)
    return np.array(canvas)


def _edges(ids: Integer[np.ndarray, "height width"]) -> Bool[np.ndarray, "height width"]:
    """Mark pixels whose id differs from that of a neighbour in their row or column."""
    edge = np.zeros(ids.shape, bool)
    edge[:, 1:] |= ids[:, 1:] != ids[:, :-1]
    edge[:, :-1] |= ids[:, 1:] != ids[:, :-1]
    edge[1:] |= ids[1:] != ids[:-1]
    edge[:-1] |= ids[1:] != ids[:-1]
    return edge


def _dilated(region: Bool[np.ndarray, "height width"], by_px: int) -> Bool[np.ndarray, "height width"]:
    """Grow a region by some pixels along rows and columns."""
    wide = region.copy()
    for _ in range(by_px):
        grown = wide.copy()
        grown[1:] |= wide[:-1]
        grown[:-1] |= wide[1:]
        grown[:, 1:] |= wide[:, :-1]
        grown[:, :-1] |= wide[:, 1:]
        wide = grown
    return wide
