"""Draw labels over an image. Every function returns a new image."""

import numpy as np
from jaxtyping import Bool, Float, Float32, Integer, UInt8
from PIL import Image, ImageDraw

from timecycle.labels.palette import colour_of

Picture = UInt8[np.ndarray, "height width 3"]

_TINT = 0.5  # opacity of a mask's colour


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
