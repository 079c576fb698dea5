"""Colours in words, so that people find in their paint program what a text speaks of."""

from collections.abc import Mapping

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
_MOST = 12  # objects in a sentence


def colour_in_words(code: int) -> str:
    """`blue (0,0,255)` of 0x0000ff: the nearest of a few names, and the exact values."""
    rgb = code >> 16, code >> 8 & 255, code & 255
    name = min(_NAMES, key=lambda word: sum((a - b) ** 2 for a, b in zip(_NAMES[word], rgb, strict=True)))
    return f"{name} ({','.join(map(str, rgb))})"


def colours_in_words(ids: Mapping[int, int]) -> str:
    """`object 1 is blue (0,0,255), 2 is green (0,255,0)`, by colour (0xRRGGBB); the first ones where there are many."""
    known = sorted((i, code) for code, i in ids.items())
    words = ", ".join(f"{i} is {colour_in_words(code)}" for i, code in known[:_MOST])
    return f"object {words}{f' and {len(known) - _MOST} more' if len(known) > _MOST else ''}"
