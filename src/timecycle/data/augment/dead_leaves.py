"""Dead leaves: synthetic clips of textured shapes that cover each other, with the statistics of photographs.

Shapes of all sizes lie on each other as fallen leaves do; small ones are many, large ones few, which gives edges,
textures and occlusions at every scale, as in photographs (Lee, Mumford and Huang 2001). Here they move: some
together, as the parts of one body, and swinging against each other; all of them with the camera, while the light
changes. No pixel comes from anyone's footage, so weights learned from it have no other licence than ours.

Coordinates run from -1 to 1 over the image, x right and y down.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Float32, UInt8

from timecycle.data.augment.composites import smooth_curve
from timecycle.errors import SettingsError

_HARMONICS = np.arange(2, 7)  # of an outline around a circle
_HIDDEN = 0.004  # of a pixel: less than a grey level is left to see
_GROUND_RADIUS = 6.0  # of the leaf below all others, which fills the image wherever the camera looks
_MOST_RADII = 1.6  # how far an outline reaches beyond its mean radius
_WAVES = 10  # of a texture


@dataclass(frozen=True, kw_only=True)
class DeadLeavesConfig:
    """Size, content and motion of the clips. Lengths are shares of the image's half side."""

    seed: int = 0
    frames: int = 16
    side_px: int = 240
    leaves: int = 140
    radius: tuple[float, float] = (0.03, 0.7)
    bodies: int = 7  # groups of leaves that move together; the first is the background
    way: float = 0.25  # how far a body moves
    turn_degrees: float = 35
    growth: float = 1.3
    swing: float = 0.15  # motion of a leaf against its body, of its radius
    pan: float = 0.15  # how far the camera moves
    light: float = 0.2  # change of brightness
    noise: float = 3.0  # grey levels

    def __post_init__(self) -> None:
        low, high = self.radius
        if not 0 < low <= high:
            raise SettingsError(f"radius is {self.radius}", remedy="give the smallest, then the largest radius")
        for name in ("frames", "leaves", "bodies"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} is {getattr(self, name)}", remedy="give 1 or more")


@dataclass(frozen=True, eq=False)
class _Motion:
    """Centre, angle and scale in every frame."""

    centre: Float[np.ndarray, "frames 2"]
    angle: Float[np.ndarray, " frames"]
    scale: Float[np.ndarray, " frames"]


@dataclass(frozen=True, eq=False)
class _Leaf:
    """A dented ellipse with its texture, in its own coordinates, where its mean radius is 1."""

    body: int
    place: Float[np.ndarray, "2"]  # on its body
    radius: float
    aspect: float
    heights: Float[np.ndarray, " harmonics"]
    phases: Float[np.ndarray, " harmonics"]
    colour: Float[np.ndarray, "3"]
    shades: Float[np.ndarray, "waves 3"]
    waves: Float[np.ndarray, "waves 2"]
    offsets: Float[np.ndarray, " waves"]
    swing: _Motion

    def inside(self, points: Float[np.ndarray, "*n 2"]) -> Float[np.ndarray, "*n"]:
        """Return how far points lie within the outline; negative outside."""
        x, y = points[..., 0] / self.aspect, points[..., 1] * self.aspect
        angle = np.arctan2(y, x)[..., None]
        return 1 + np.cos(_HARMONICS * angle + self.phases) @ self.heights - np.hypot(x, y)  # type: ignore[no-any-return]

    def colours(self, points: Float[np.ndarray, "*n 2"]) -> Float[np.ndarray, "*n 3"]:
        """Return the colours (0 to 255) at points."""
        waves = np.sin(points @ self.waves.T + self.offsets)
        # The cubic sharpens waves to stripes and spots with edges.
        colours: np.ndarray = self.colour + (1.5 * waves - 0.5 * waves**3) @ self.shades
        return colours


def make_dead_leaves(config: DeadLeavesConfig, number: int) -> UInt8[np.ndarray, "frames side side 3"]:
    """Make the frames of a clip, as a pure function of the settings and its number."""
    rng = np.random.default_rng([config.seed, number])
    palette = _choose_palette(rng)
    bodies = [_choose_motion(config, rng, still=body == 0) for body in range(config.bodies)]
    ground = replace(_choose_leaf(config, rng, palette, radius=_GROUND_RADIUS), body=0, place=np.zeros(2))
    leaves = [_choose_leaf(config, rng, palette) for _ in range(config.leaves)]
    leaves.sort(key=lambda leaf: leaf.body > 0)  # the background below all bodies; within them, as drawn
    camera = np.stack([smooth_curve(rng, config.frames, config.pan) for _ in range(2)], axis=1)
    light = 1 + smooth_curve(rng, config.frames, config.light)
    frames = np.empty((config.frames, config.side_px, config.side_px, 3), np.uint8)
    for frame in range(config.frames):
        image, shown = np.zeros(frames.shape[1:], np.float32), np.ones(frames.shape[1:3], np.float32)
        for leaf in (*reversed(leaves), ground):
            _paint(image, shown, leaf, bodies[leaf.body], frame, camera[frame])
        image = image * light[frame] + config.noise * rng.standard_normal(image.shape, np.float32)
        frames[frame] = image.round().clip(0, 255)
    return frames


def _paint(
    image: Float32[np.ndarray, "side side 3"],
    shown: Float32[np.ndarray, "side side"],
    leaf: _Leaf,
    body: _Motion,
    frame: int,
    camera: Float[np.ndarray, "2"],
) -> None:
    """Paint a leaf below what is there already; `shown` is the share of each pixel that is still open.

    From the top down, so that what is covered is never computed. Edges are antialiased over one pixel.
    """
    side = len(image)
    turn = _rotation(body.angle[frame])
    place = leaf.place + leaf.radius * leaf.swing.centre[frame]
    centre = body.centre[frame] + body.scale[frame] * turn @ place - camera
    radius = leaf.radius * body.scale[frame] * leaf.swing.scale[frame]
    reach = radius * _MOST_RADII * max(leaf.aspect, 1 / leaf.aspect)
    edges = ((centre + sign * reach + 1) / 2 * side for sign in (-1, 1))
    low, high = (edge.round().clip(0, side).astype(int) for edge in edges)
    rows, columns = np.nonzero(shown[low[1] : high[1], low[0] : high[0]] > _HIDDEN)
    if not len(rows):
        return
    rows, columns = rows + low[1], columns + low[0]
    pixels = np.stack([columns, rows], axis=-1).astype(np.float32)
    points = ((pixels * 2 + 1) / side - 1 - centre.astype(np.float32)) / np.float32(radius)
    points = points @ _rotation(body.angle[frame] + leaf.swing.angle[frame])  # the inverse of a rotation, transposed
    near = np.hypot(points[:, 0] / leaf.aspect, points[:, 1] * leaf.aspect) < _MOST_RADII
    rows, columns, points = rows[near], columns[near], points[near]
    cover = (leaf.inside(points) * np.float32(radius * side / 2) + 0.5).clip(0, 1)
    covered = cover > 0
    rows, columns, cover = rows[covered], columns[covered], cover[covered] * shown[rows[covered], columns[covered]]
    image[rows, columns] += cover[:, None] * leaf.colours(points[covered])
    shown[rows, columns] -= cover


def _choose_palette(rng: np.random.Generator) -> Float[np.ndarray, "colours 3"]:
    """Draw the colours of a scene: nearly grey ones more often than strong ones, as in photographs."""
    count = int(rng.integers(4, 12))
    grey = rng.uniform(20, 235, (count, 1))
    hue = rng.standard_normal((count, 3))
    hue -= hue.mean(axis=1, keepdims=True)
    palette: np.ndarray = grey + rng.gamma(1.2, 12, (count, 1)) * hue
    return palette.clip(0, 255)


def _choose_motion(config: DeadLeavesConfig, rng: np.random.Generator, *, still: bool) -> _Motion:
    share = 0.1 if still else 1.0
    start = np.zeros(2) if still else rng.uniform(-0.7, 0.7, 2)
    centre = start + np.stack([smooth_curve(rng, config.frames, share * config.way) for _ in range(2)], axis=1)
    angle = smooth_curve(rng, config.frames, share * math.radians(config.turn_degrees))
    return _Motion(centre, angle, np.exp(smooth_curve(rng, config.frames, share * math.log(config.growth))))


def _choose_leaf(
    config: DeadLeavesConfig,
    rng: np.random.Generator,
    palette: Float[np.ndarray, "colours 3"],
    radius: float | None = None,
) -> _Leaf:
    body = int(rng.integers(config.bodies)) if rng.random() < 0.6 else 0
    low, high = config.radius
    drawn = 1 / rng.uniform(1 / high, 1 / low)  # the density falls with the square of the radius
    radius = radius or drawn
    spread = 1.5 if body == 0 else 0.35
    frequencies = radius / 0.2 * 2.0 ** rng.uniform(-0.5, 4, (_WAVES, 1))  # in the image, equal for all leaves
    angles = rng.uniform(0, 2 * math.pi, _WAVES)
    contrast = rng.gamma(1.5, 8)
    shades = rng.standard_normal((_WAVES, 1)) + 0.4 * rng.standard_normal((_WAVES, 3))
    return _Leaf(
        body=body,
        place=spread * (rng.uniform(-1, 1, 2) if body == 0 else 0.6 * rng.standard_normal(2)),
        radius=radius,
        aspect=math.exp(rng.uniform(-0.6, 0.6)),
        heights=(0.35 * rng.standard_normal(len(_HARMONICS)) / _HARMONICS).clip(-0.1, 0.1),
        phases=rng.uniform(0, 2 * math.pi, len(_HARMONICS)),
        colour=palette[int(rng.integers(len(palette)))] + 6 * rng.standard_normal(3),
        shades=(contrast * shades * (frequencies * 0.2 / radius) ** -0.6).astype(np.float32),
        waves=(frequencies * np.stack([np.cos(angles), np.sin(angles)], axis=1) * math.pi).astype(np.float32),
        offsets=rng.uniform(0, 2 * math.pi, _WAVES).astype(np.float32),
        swing=_Motion(
            np.stack([smooth_curve(rng, config.frames, config.swing) for _ in range(2)], axis=1),
            smooth_curve(rng, config.frames, 2 * config.swing),
            np.exp(smooth_curve(rng, config.frames, config.swing)),
        ),
    )


def _rotation(angle: float) -> Float32[np.ndarray, "2 2"]:
    cos, sin = math.cos(angle), math.sin(angle)
    return np.array([[cos, -sin], [sin, cos]], np.float32)
