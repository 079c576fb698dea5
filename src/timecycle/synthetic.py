"""Synthetic video of moving textures with exact ground truth: masks, keypoints, flow and surface points.

Each object is a cut-out that moves by one similarity transform per frame in front of a drifting background. A frame
is rendered by computing the surface point that every pixel shows and its colour. The ground truth is therefore not
measured on the images: the images are made from it.

Points are (x, y) with pixel centres at integers; arrays are indexed [y, x]. Inside this module a point is the complex
number x + iy, because a similarity transform is then one product and one sum.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Complex128, Float32, Float64, UInt8, UInt16
from numpy.typing import NDArray

from timecycle.errors import SettingsError, VideoError

_MIN_SIDE_PX = 32  # below this the smallest objects are too small for any texture
_MAX_IDS = int(np.iinfo(np.uint16).max)
_GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples modulo one fill an interval evenly

_Points = Complex128[np.ndarray, "*n"]
_Reals = Float64[np.ndarray, "*n"]
_Kind = TypeVar("_Kind", bound=np.generic)


# Settings and results


@dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """The contents of a synthetic world. Equal settings give equal worlds.

    Object 1 passes behind object 2 and reappears, object 2 leaves for good, and object 3 enters half-way. An event
    whose objects do not exist is dropped, and further objects only drift. Events happen at fractions of the clip: a
    longer clip is slower, and one of fewer than about ten frames may skip them.
    """

    height_px: int = 120
    width_px: int = 160
    frames: int = 40
    objects: int = 3
    seed: int = 0
    camera_px_per_frame: float = 0.5  # speed of the background; 0 is a static camera
    static: bool = False  # repeat the first frame: nothing moves

    def __post_init__(self) -> None:
        _check_range("height_px", self.height_px, minimum=_MIN_SIDE_PX)
        _check_range("width_px", self.width_px, minimum=_MIN_SIDE_PX)
        _check_range("frames", self.frames, minimum=1)
        _check_range("objects", self.objects, minimum=1, maximum=_MAX_IDS)
        _check_range("seed", self.seed, minimum=0)
        _check_range("camera_px_per_frame", self.camera_px_per_frame, minimum=0)


@dataclass(frozen=True, eq=False)
class KeypointGroundTruth:
    """The positions of named surface points in one frame, and whether they are visible."""

    names: tuple[str, ...]
    xy: Float32[np.ndarray, "n 2"]
    visible: Bool[np.ndarray, "n"]


@dataclass(frozen=True, eq=False)
class FlowGroundTruth:
    """The displacement (dx, dy) of each pixel's surface point to another frame, and whether it is visible there."""

    displacement: Float32[np.ndarray, "h w 2"]
    visible: Bool[np.ndarray, "h w"]


def _check_range(name: str, value: int | float, *, minimum: int, maximum: int | None = None) -> None:
    if not minimum <= value < math.inf or (maximum is not None and value > maximum):
        bound = f"at least {minimum}" if maximum is None else f"{minimum} to {maximum}"
        raise SettingsError(f"{name} of the synthetic world is {value}", remedy=f"give {bound}")


# Geometry


@dataclass(frozen=True)
class _Pose:
    """A similarity transform from surface to image: rotation and scaling about the origin, then translation."""

    centre: complex
    turn: float
    scale: float

    @property
    def factor(self) -> complex:
        return complex(self.scale * math.cos(self.turn), self.scale * math.sin(self.turn))

    def to_image(self, surface: _Points) -> _Points:
        """Map surface points to image points."""
        return self.factor * surface + self.centre

    def to_surface(self, image: _Points) -> _Points:
        """Map image points to surface points: the inverse of `to_image`."""
        return (image - self.centre) * (1 / self.factor)  # numpy multiplies complex numbers faster

    def displacement(self, later: "_Pose", image: _Points) -> _Points:
        """Return how far the surface at each image point moves from this pose to `later`."""
        # By the relative transform and not by way of the surface: between equal poses it is exactly zero.
        change = _Pose(0j, later.turn - self.turn, later.scale / self.scale).factor
        return (change - 1) * image + (later.centre - change * self.centre)


@dataclass(frozen=True, kw_only=True)
class _Motion:
    """A bounded smooth motion: eased from waypoint to waypoint, plus a circular sway.

    A moment is the fraction of the clip that has passed, from 0 to 1.
    """

    waypoints: tuple[tuple[float, complex], ...]  # (moment, centre in px), moments rising
    sway_px: float
    sway_cycles: float  # full circles during the clip
    phase: float  # of sway and swell at the start, as a fraction of a cycle
    turn: float = 0.0  # radians during the clip
    swell: float = 0.0  # the scale stays between 1 - swell and 1 + swell

    def pose(self, moment: float) -> _Pose:
        """Return the pose at a moment of the clip."""
        angle = 2 * math.pi * (self.phase + self.sway_cycles * moment)
        sway = self.sway_px * complex(math.cos(angle), math.sin(angle))
        scale = 1 + self.swell * math.sin(2 * math.pi * (self.phase + moment))
        return _Pose(self._centre(moment) + sway, self.turn * moment, scale)

    def _centre(self, moment: float) -> complex:
        begin, here = self.waypoints[0]
        for end, there in self.waypoints[1:]:
            if moment < end:
                return here + (there - here) * float(_ease(np.array((moment - begin) / (end - begin))))
            begin, here = end, there
        return here


def _ease(fraction: _Reals) -> _Reals:
    """Interpolate by smoothstep from 0 to 1; constant beyond both ends."""
    inside = np.clip(fraction, 0.0, 1.0)
    return np.asarray(inside * inside * (3 - 2 * inside))


def _points(*, left: int, top: int, width: int, height: int) -> Complex128[np.ndarray, "h w"]:
    """Return the integer points of a box as complex numbers."""
    return np.arange(left, left + width) + 1j * np.arange(top, top + height)[:, None]


# Shapes. An outline gives the distance to the edge in each direction, in units of the object's radius.

_Outline = Callable[[_Reals], _Reals]
_WIDEST_OUTLINE = 1.2


def _disc(angle: _Reals) -> _Reals:
    return np.ones_like(angle)


def _rounded_box(angle: _Reals) -> _Reals:
    power = 5  # a superellipse: 1 along the axes, 1.15 at its corners
    return np.asarray((np.abs(np.cos(angle)) ** power + np.abs(np.sin(angle)) ** power) ** (-1 / power))


def _star(angle: _Reals) -> _Reals:
    return np.asarray(1 + 0.2 * np.cos(5 * angle))


def _blob(angle: _Reals) -> _Reals:
    return np.asarray(1 + 0.12 * np.cos(3 * angle) + 0.06 * np.sin(2 * angle))


# Textures


@dataclass(frozen=True)
class _Palette:
    """The three colours of a texture."""

    dark: tuple[int, int, int]
    light: tuple[int, int, int]
    accent: tuple[int, int, int]


# Muted, so that the saturated objects stand out.
_GROUND = _Palette(dark=(58, 78, 84), light=(146, 162, 150), accent=(178, 166, 138))
_PALETTES = (
    _Palette(dark=(150, 28, 40), light=(250, 138, 96), accent=(255, 206, 170)),  # coral
    _Palette(dark=(14, 62, 138), light=(84, 170, 236), accent=(196, 236, 250)),  # blue
    _Palette(dark=(188, 112, 8), light=(255, 208, 64), accent=(255, 244, 190)),  # gold
    _Palette(dark=(82, 30, 128), light=(182, 116, 224), accent=(240, 206, 250)),  # violet
    _Palette(dark=(8, 92, 54), light=(70, 196, 116), accent=(200, 244, 180)),  # green
    _Palette(dark=(150, 22, 98), light=(246, 122, 182), accent=(255, 214, 234)),  # pink
)


@dataclass(frozen=True, eq=False)
class _Texture:
    """The colours of a surface: one texel per surface pixel, with linear interpolation."""

    texels: Float32[np.ndarray, "3 h w"]  # 0 to 255; colour first, as interpolation is fastest plane by plane
    left: int  # the surface point of texels[0, 0] is (left, top)
    top: int

    def colours(self, u: Float32[np.ndarray, "n"], v: Float32[np.ndarray, "n"]) -> UInt8[np.ndarray, "3 n"]:
        """Return the colours of surface points, all of which must lie within the texture."""
        x, y = u - np.float32(self.left), v - np.float32(self.top)
        column, row = x.astype(np.int32), y.astype(np.int32)
        right, down = x - column.astype(np.float32), y - row.astype(np.float32)
        columns = self.texels.shape[2]
        corner = (row * columns + column).astype(np.intp)
        corners = (corner, corner + 1, corner + columns, corner + columns + 1)
        weights = ((1 - right) * (1 - down), right * (1 - down), (1 - right) * down, right * down)
        colours = np.empty((3, len(u)), np.uint8)
        for plane, texels in zip(colours, self.texels.reshape(3, -1), strict=True):
            terms = (texels.take(at) * weight for at, weight in zip(corners, weights, strict=True))
            plane[:] = np.rint(sum(terms))
        return colours


def _interpolation(count: int, cell_px: float) -> Float64[np.ndarray, "count knots"]:
    """Return smooth interpolation weights at positions 0..count-1, for knots `cell_px` apart."""
    position = np.arange(count) / cell_px
    knots = np.arange(math.ceil(position[-1]) + 1)
    return _ease(1 - np.abs(position[:, None] - knots))


def _noise(
    height: int, width: int, *, cell_px: float, random: np.random.Generator
) -> Float64[np.ndarray, "{height} {width}"]:
    """Make value noise from 0 to 1, in octaves from `cell_px` down to the pixel."""
    noise, weight = np.zeros((height, width)), 1.0
    while cell_px > 2:
        rows, columns = _interpolation(height, cell_px), _interpolation(width, cell_px)
        noise += weight * (rows @ random.random((rows.shape[1], columns.shape[1])) @ columns.T)
        cell_px, weight = cell_px / 2, weight * 0.6
    return np.asarray((noise - noise.min()) / np.ptp(noise))


def _colour_noise(
    height: int, width: int, *, palette: _Palette, cell_px: float, random: np.random.Generator
) -> Float64[np.ndarray, "3 {height} {width}"]:
    """Make noise from the palette's dark to its light colour, with patches of its accent."""
    dark, light, accent = np.array((palette.dark, palette.light, palette.accent))[..., None, None]
    tone = _noise(height, width, cell_px=cell_px, random=random)
    patch = _noise(height, width, cell_px=cell_px, random=random)
    colour = dark + (light - dark) * _ease(1.5 * tone - 0.25)
    return np.asarray(colour + (accent - colour) * (0.85 * _ease((patch - 0.55) / 0.2)))


# Objects


@dataclass(frozen=True, eq=False, kw_only=True)
class _Layer:
    """An unbounded surface with its motion and texture."""

    id: int
    motion: _Motion
    texture: _Texture


@dataclass(frozen=True, eq=False, kw_only=True)
class _Object(_Layer):
    """A surface bounded by an outline."""

    radius_px: float
    outline: _Outline

    def covers(self, surface: _Points) -> Bool[np.ndarray, "*n"]:
        """Return whether surface points lie within the outline."""
        return np.asarray(np.abs(surface) <= self.radius_px * self.outline(np.angle(surface)))


@dataclass(frozen=True)
class _Design:
    """The shape of an object, its radius as a fraction of the shorter side, and its path.

    A path has waypoints (moment, x, y), with x and y as fractions of the frame. Beyond -0.4 or 1.4 any object is
    outside.
    """

    outline: _Outline
    radius: float
    path: tuple[tuple[float, float, float], ...]
    sway: float = 0.012  # fraction of the shorter side


# Objects 1 to 3, which have events. The disc stays behind the box for a tenth of the clip; the sizes leave room for the
# sway and swell of both.
_EVENT_DESIGNS = (
    _Design(_disc, 0.13, ((0.0, 0.15, 0.38), (0.34, 0.5, 0.54), (0.44, 0.5, 0.54), (0.8, 0.83, 0.66))),
    _Design(_rounded_box, 0.2, ((0.0, 0.5, 0.54), (0.6, 0.5, 0.54), (0.85, 0.56, 1.4))),
    _Design(_star, 0.16, ((0.0, -0.4, 0.26), (0.4, -0.4, 0.26), (0.8, 0.36, 0.3))),
)
_CORNERS = ((0.85, 0.2), (0.15, 0.82), (0.87, 0.84), (0.14, 0.14))
_SWELL = 0.05

# The keypoints of every object, in units of its radius; y points down, to the south.
_COMPASS = {"centre": 0j, "east": 0.6 + 0j, "south": 0.6j, "west": -0.6 + 0j, "north": -0.6j}


def _design(number: int) -> _Design:
    """Return the design of object `number`: one of the three with an event, or a small one that drifts."""
    if number <= len(_EVENT_DESIGNS):
        return _EVENT_DESIGNS[number - 1]
    extra = number - len(_EVENT_DESIGNS) - 1
    outline = (_blob, _rounded_box, _disc, _star)[extra % 4]
    if extra < len(_CORNERS):
        x, y = _CORNERS[extra]
    else:
        # Multiples of 1/p and 1/p^2, where p^3 = p + 1, fill a square as evenly as the golden ratio a line.
        x, y = 0.1 + 0.8 * (extra * 0.7548777 % 1), 0.1 + 0.8 * (extra * 0.5698403 % 1)
    return _Design(outline, 0.1, ((0.0, x, y),), sway=0.06)


def _object(number: int, config: WorldConfig) -> _Object:
    """Make object `number` of a world."""
    random = np.random.default_rng((config.seed, number))
    shared = np.random.default_rng(config.seed)  # the same flips for all objects: their paths must cross
    flip_x, flip_y = shared.random(2) < 0.5
    design, side = _design(number), min(config.height_px, config.width_px)

    def to_pixels(x: float, y: float) -> complex:
        x, y = (1 - x if flip_x else x), (1 - y if flip_y else y)
        return complex(x * (config.width_px - 1), y * (config.height_px - 1))

    motion = _Motion(
        waypoints=tuple((moment, to_pixels(x, y)) for moment, x, y in design.path),
        sway_px=design.sway * side,
        sway_cycles=float(random.choice((-2, -1, 1, 2))),
        phase=float(random.random()),
        turn=float(random.choice((-1, 1)) * random.uniform(0.8, 1.6)),
        swell=_SWELL,
    )
    radius_px = design.radius * side
    texture = _object_texture(
        radius_px, design.outline, palette=_PALETTES[(number - 1) % len(_PALETTES)], random=random
    )
    return _Object(id=number, motion=motion, texture=texture, radius_px=radius_px, outline=design.outline)


def _object_texture(radius_px: float, outline: _Outline, *, palette: _Palette, random: np.random.Generator) -> _Texture:
    """Make noise that darkens towards the outline, so that the object stands out against any background."""
    reach = math.ceil(radius_px * _WIDEST_OUTLINE) + 1
    size = 2 * reach + 1
    colour = _colour_noise(size, size, palette=palette, cell_px=radius_px * 0.7, random=random)
    surface = _points(left=-reach, top=-reach, width=size, height=size)
    depth = 1 - np.abs(surface) / (radius_px * outline(np.angle(surface)))  # 1 at the centre, 0 at the edge
    colour *= 0.45 + 0.55 * _ease(depth / 0.22)
    return _Texture(colour.astype(np.float32), left=-reach, top=-reach)


def _background(config: WorldConfig) -> _Layer:
    """Make the background layer, above which the camera circles at constant speed."""
    random = np.random.default_rng((config.seed, 0))
    side = min(config.height_px, config.width_px)
    sway_px = 0.08 * side
    motion = _Motion(
        waypoints=((0.0, 0j),),
        sway_px=sway_px,
        sway_cycles=config.camera_px_per_frame * (config.frames - 1) / (2 * math.pi * sway_px),
        phase=float(random.random()),
    )
    margin = math.ceil(sway_px) + 2
    colour = _colour_noise(
        config.height_px + 2 * margin,
        config.width_px + 2 * margin,
        palette=_GROUND,
        cell_px=side / 4,
        random=random,
    )
    return _Layer(id=0, motion=motion, texture=_Texture(colour.astype(np.float32), left=-margin, top=-margin))


# The world


def make_world(config: WorldConfig) -> "World":
    """Make the world of these settings; frames are rendered on demand and not stored."""
    objects = [_object(number, config) for number in range(1, config.objects + 1)]
    # Drifting objects are behind those with events, so that events happen for any number of objects.
    with_events, drifting = objects[: len(_EVENT_DESIGNS)], objects[len(_EVENT_DESIGNS) :]
    return World(config=config, background=_background(config), objects=(*drifting, *with_events))


@dataclass(frozen=True, eq=False, kw_only=True)
class World:
    """A clip with its ground truth; each method is a pure function of the settings and the frame number."""

    config: WorldConfig
    background: _Layer
    objects: tuple[_Object, ...]  # from the farthest to the nearest
    is_mirrored: bool = False

    def __len__(self) -> int:
        """The number of frames."""
        return self.config.frames

    @property
    def ids(self) -> tuple[int, ...]:
        """The object ids, from 1."""
        return tuple(range(1, self.config.objects + 1))

    def mirrored(self) -> "World":
        """Return the same world mirrored by x -> width - 1 - x; surface points keep their coordinates."""
        return replace(self, is_mirrored=not self.is_mirrored)

    def frame(self, t: int) -> UInt8[np.ndarray, "h w 3"]:
        """Render a frame: every pixel has the colour of the surface point it shows."""
        surface = self.surface(t)
        ids, u, v = surface.reshape(-1, 3).T
        planes = np.empty((3, len(ids)), np.uint8)
        for layer in (self.background, *self.objects):
            shown = np.flatnonzero(ids == layer.id)
            planes[:, shown] = layer.texture.colours(u[shown], v[shown])
        return np.ascontiguousarray(planes.T).reshape(surface.shape)

    def frames(self) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
        """Render the frames in order, one at a time."""
        return (self.frame(t) for t in range(len(self)))

    def video(self) -> UInt8[np.ndarray, "t h w 3"]:
        """Render all frames at once, for short clips."""
        return np.stack(list(self.frames()))

    def mask(self, t: int) -> UInt16[np.ndarray, "h w"]:
        """Return the id of the object each pixel shows, 0 for the background."""
        return self._mirror_if_set(self._render_surface(t)[0])

    def surface(self, t: int) -> Float32[np.ndarray, "h w 3"]:
        """Return the surface point each pixel shows, as (layer id, u, v) with u and v in px at scale 1.

        Two pixels show the same point exactly when all three numbers are equal.
        """
        ids, points = self._render_surface(t)
        surface = np.empty((*ids.shape, 3), np.float32)
        surface[..., 0], surface[..., 1], surface[..., 2] = ids, points.real, points.imag
        return self._mirror_if_set(surface)

    def keypoints(self, t: int) -> KeypointGroundTruth:
        """Return five points on each object: its centre and four around it, named by the compass in the first frame."""
        ids, _ = self._render_surface(t)
        objects = sorted(self.objects, key=lambda each: each.id)
        anchors = np.array(list(_COMPASS.values()))
        points = np.concatenate([self._pose(each, t).to_image(anchors * each.radius_px) for each in objects])
        owners = np.repeat(np.array(self.ids, np.uint16), len(_COMPASS))
        xy = np.stack((points.real, points.imag), axis=-1).astype(np.float32)
        if self.is_mirrored:
            xy[:, 0] = np.float32(self.config.width_px - 1) - xy[:, 0]
        names = tuple(f"object{each.id}.{name}" for each in objects for name in _COMPASS)
        return KeypointGroundTruth(names, xy, _are_visible(ids, points, owners))

    def flow(self, s: int, t: int) -> FlowGroundTruth:
        """Return the displacement of the surface point of each pixel of frame `s` to frame `t`.

        A point is visible in `t` if it lies within the frame and the pixel it falls in shows its layer.
        """
        (ids, _), (ids_later, _) = self._render_surface(s), self._render_surface(t)
        pixels = self._pixels()
        moved = np.empty_like(pixels)
        for layer in (self.background, *self.objects):
            shown = ids == layer.id
            moved[shown] = self._pose(layer, s).displacement(self._pose(layer, t), pixels[shown])
        displacement = np.stack((-moved.real if self.is_mirrored else moved.real, moved.imag), axis=-1)
        visible = _are_visible(ids_later, pixels + moved, ids)
        return FlowGroundTruth(self._mirror_if_set(displacement.astype(np.float32)), self._mirror_if_set(visible))

    def _pixels(self) -> Complex128[np.ndarray, "h w"]:
        return _points(left=0, top=0, width=self.config.width_px, height=self.config.height_px)

    def _pose(self, layer: _Layer, t: int) -> _Pose:
        return layer.motion.pose(0.0 if self.config.static else t / max(1, len(self) - 1))

    def _render_surface(self, t: int) -> tuple[UInt16[np.ndarray, "h w"], Complex128[np.ndarray, "h w"]]:
        """Return the layer id and the surface point of each pixel, before mirroring."""
        if not 0 <= t < len(self):
            raise VideoError(
                f"the synthetic world has no frame {t}, only 0 to {len(self) - 1}",
                remedy="give one of these, or make the world with more frames",
            )
        pixels = self._pixels()
        ids = np.zeros(pixels.shape, np.uint16)
        points = self._pose(self.background, t).to_surface(pixels)
        for each in self.objects:
            pose = self._pose(each, t)
            window = _window(pose.centre, reach=each.radius_px * pose.scale * _WIDEST_OUTLINE)
            surface = pose.to_surface(pixels[window])
            covered = each.covers(surface)
            ids[window][covered] = each.id
            points[window][covered] = surface[covered]
        return ids, points

    def _mirror_if_set(self, image: NDArray[_Kind]) -> NDArray[_Kind]:
        """Mirror an image if this world is mirrored."""
        return np.ascontiguousarray(image[:, ::-1]) if self.is_mirrored else image


def _window(centre: complex, *, reach: float) -> tuple[slice, slice]:
    """Return the rows and columns within `reach` of the centre that are not negative."""
    return (
        slice(max(0, math.floor(centre.imag - reach)), max(0, math.ceil(centre.imag + reach) + 1)),
        slice(max(0, math.floor(centre.real - reach)), max(0, math.ceil(centre.real + reach) + 1)),
    )


def _are_visible(
    ids: UInt16[np.ndarray, "h w"], points: _Points, owners: UInt16[np.ndarray, "*n"]
) -> Bool[np.ndarray, "*n"]:
    """Return whether each point lies within the frame, in a pixel that shows its owner."""
    height, width = ids.shape
    x, y = np.rint(points.real).astype(np.intp), np.rint(points.imag).astype(np.intp)
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    shown = ids[np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)]
    return np.asarray(inside & (shown == owners))


# Ground truth for encoders and label maps


def surface_descriptors(
    surface: Float32[np.ndarray, "h w 3"], *, channels: int = 64, length_px: float = 8.0, seed: int = 0
) -> Float32[np.ndarray, "{channels} h w"]:
    """Compute descriptors of surface points as a perfect encoder would: Fourier features of (u, v), of unit length.

    The inner product of two descriptors is 1 for the same point and falls with their distance d on the surface about
    as exp(-d^2 / (2 length_px^2)); between layers it is small. Far away it is about 1 / sqrt(channels).
    """
    if channels < 2 or channels % 2:
        raise SettingsError(f"channels of the descriptors is {channels}", remedy="give an even number, 2 or more")
    if not length_px > 0:
        raise SettingsError(f"length_px of the descriptors is {length_px}", remedy="give more than 0")
    layer, u, v = surface[..., 0], surface[..., 1].astype(np.float64), surface[..., 2].astype(np.float64)
    descriptors = np.empty((channels, *layer.shape), np.float32)
    for number in np.unique(layer):
        waves, phases = _waves(channels // 2, np.random.default_rng((seed, int(number))))
        shown = layer == number
        # Not a matrix product, whose rounding may depend on a pixel's position in the array.
        angle = np.multiply.outer(waves.real / length_px, u[shown])
        angle += np.multiply.outer(waves.imag / length_px, v[shown])
        angle += phases[:, None]
        descriptors[:, shown] = np.concatenate((np.cos(angle), np.sin(angle))) / math.sqrt(channels // 2)
    return descriptors


def _waves(
    count: int, random: np.random.Generator
) -> tuple[Complex128[np.ndarray, "{count}"], Float64[np.ndarray, "{count}"]]:
    """Return wave vectors that follow a Gaussian of unit width, and their phases.

    The lengths are the Gaussian's quantiles and the directions advance by the golden angle, which gives a rounder
    kernel than independent samples. Only the first direction and the phases are random.
    """
    number = np.arange(count)
    lengths = np.sqrt(-2 * np.log(1 - (number + 0.5) / count))
    directions = 2 * math.pi * (number * _GOLDEN + random.random())
    return lengths * np.exp(1j * directions), random.uniform(0, 2 * math.pi, count)


def tiled_mask(height: int, width: int, count: int) -> UInt16[np.ndarray, "{height} {width}"]:
    """Make a mask of `count` small boxes on a grid with gaps of background, ids from 1 in reading order."""
    if not (height >= 1 and width >= 1 and 1 <= count <= _MAX_IDS):
        raise SettingsError(
            f"a mask of {width}x{height} cannot have {count} objects",
            remedy=f"give sides of at least 1 px and 1 to {_MAX_IDS} objects",
        )
    columns = min(count, math.ceil(math.sqrt(count * width / height)))
    rows = math.ceil(count / columns)
    cell_height, cell_width = height // rows, width // columns
    if min(cell_height, cell_width) < 3:
        raise SettingsError(
            f"{count} objects in {width}x{height} leave cells of {cell_width}x{cell_height} px",
            remedy="give cells of at least 3x3 px: a larger mask or fewer objects",
        )
    mask = np.zeros((height, width), np.uint16)
    gap_y, gap_x = max(1, cell_height // 5), max(1, cell_width // 5)
    for index in range(count):
        row, column = divmod(index, columns)
        top, left = row * cell_height, column * cell_width
        mask[top + gap_y : top + cell_height - gap_y, left + gap_x : left + cell_width - gap_x] = index + 1
    return mask
