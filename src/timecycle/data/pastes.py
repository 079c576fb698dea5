"""Things cut out of one clip and moved across another, so that what is near a thing is not what identifies it.

In footage without labels everything near a cell moves along with it most of the time, and an encoder that looks at
the surroundings closes every cycle. A pasted thing moves against its surroundings, and where it went is known.

A thing keeps its outline and its pixels in the coordinates of the clip it was cut from, from -1 to 1. A placing is an
affine map, 2x3, from the coordinates of a view to those.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, UInt8
from torch import Tensor
from torch.nn.functional import grid_sample

from timecycle.data.views import Affine, return_map
from timecycle.errors import SettingsError
from timecycle.pose import square_places

_HARMONICS = np.arange(2, 7)  # of the outline around a circle: above, it would be frayed

Points = Float32[Tensor, "*batch points 2"]


@dataclass(frozen=True, kw_only=True)
class PasteConfig:
    """How many things, how large, and how they move."""

    most: int = 0  # things in a clip: 0 to this many, all equally likely
    alike: float = 0.5  # share that is cut from the clip itself, mirrored: their colours do not tell them apart
    radius: tuple[float, float] = (0.15, 0.45)  # of a view's half side, log-uniform
    stretch: float = 0.4  # of the ellipse: its sides differ by up to exp(twice this)
    dents: float = 0.35  # how far the outline departs from an ellipse
    step: float = 0.15  # the largest way between two frames, of a view's half side
    rotation_degrees: float = 30  # between the two views
    scale: tuple[float, float] = (0.75, 1.33)  # between the two views, log-uniform

    def __post_init__(self) -> None:
        for name in ("radius", "scale"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise SettingsError(f"{name} is {getattr(self, name)}", remedy="give the smallest, then the largest")
        if self.most < 0 or not 0 <= self.alike <= 1:
            raise SettingsError(
                f"pastes.most is {self.most} and pastes.alike {self.alike}",
                remedy="give 0 or more things, and a share from 0 to 1",
            )


@dataclass(frozen=True, eq=False)
class Thing:
    """An outline in its own clip, and where the thing lies in every frame of either view."""

    radius: float
    aspect: float
    heights: Float32[np.ndarray, "harmonics"]
    phases: Float32[np.ndarray, "harmonics"]
    placings: tuple[Float32[Tensor, "frames 2 3"], Float32[Tensor, "frames 2 3"]]  # out and back

    def inside(self, points: Points) -> Float32[Tensor, "*batch points"]:
        """How far points of its own clip lie within the outline, towards its centre; negative outside."""
        x, y = points[..., 0] / self.aspect, points[..., 1] * self.aspect
        angle, distance = torch.atan2(y, x), torch.hypot(x, y)
        dents = [
            float(height) * torch.cos(float(count) * angle + float(phase))
            for count, height, phase in zip(_HARMONICS, self.heights, self.phases, strict=True)
        ]
        return self.radius * (1 + torch.stack(dents).sum(dim=0)) - distance


def choose_thing(config: PasteConfig, rng: np.random.Generator, *, frames: int, cover: float) -> Thing:
    """Draw an outline and a straight way across each view; `cover` is a view's side over its source's."""
    radius = cover * math.exp(rng.uniform(*np.log(config.radius)))
    heights = config.dents * rng.standard_normal(len(_HARMONICS)) / _HARMONICS
    out, back = (_choose_way(config, rng, frames=frames, cover=cover) for _ in range(2))
    return Thing(
        radius=radius,
        aspect=math.exp(rng.uniform(-config.stretch, config.stretch)),
        heights=heights.clip(-0.5, 0.5).astype(np.float32),
        phases=rng.uniform(0, 2 * math.pi, len(_HARMONICS)).astype(np.float32),
        placings=(out, back),
    )


def paste(
    view: UInt8[np.ndarray, "frames side side 3"],
    source: UInt8[np.ndarray, "frames height width 3"],
    thing: Thing,
    placings: Float32[Tensor, "frames 2 3"],
) -> UInt8[np.ndarray, "frames side side 3"]:
    """The view with the thing on top of it; its edge is as soft as one pixel."""
    side = view.shape[1]
    points = _placed(placings, square_places(side))
    images = torch.from_numpy(source).permute(0, 3, 1, 2).float()
    grid = points.reshape(len(view), side, side, 2)
    pixels = grid_sample(images, grid, padding_mode="reflection", align_corners=False).permute(0, 2, 3, 1)
    pixel = placings[:, :, :2].square().sum(dim=1).sqrt().mean(dim=1) * 2 / side  # in the source's coordinates
    cover = (thing.inside(points) / pixel[:, None] + 0.5).clamp(0, 1).reshape(len(view), side, side, 1)
    mixed: np.ndarray = (torch.from_numpy(view) * (1 - cover) + pixels * cover).round().to(torch.uint8).numpy()
    return mixed


@dataclass(frozen=True, eq=False)
class Way:
    """Where points of the first frame in the out view lie in the back view, and whether nothing hides them."""

    places: Float32[Tensor, "points 2"]
    visible: Bool[Tensor, "points"]


def way_back(points: Float[Tensor, "points 2"], maps: tuple[Affine, Affine], things: Sequence[Thing]) -> Way:
    """The way of every point, with the background or with the thing that covers it; later things lie on top.

    A point of the background, or of a thing that lies lower, counts as hidden if any frame hides it.
    """
    places = _placed(return_map(*maps)[None], points)[0]
    visible = torch.ones(len(points), dtype=torch.bool)
    for thing in things:
        hides = [
            (thing.inside(_placed(placings, seen)) > 0)
            for placings, seen in zip(thing.placings, (points, places), strict=True)
        ]
        on_it = hides[0][0]
        visible = torch.where(on_it, True, visible & ~hides[0].any(dim=0) & ~hides[1].any(dim=0))
        carried = _placed(return_map(thing.placings[0][0], thing.placings[1][0])[None], points)[0]
        places = torch.where(on_it[:, None], carried, places)
    return Way(places, visible)


def covering(
    points: Float[Tensor, "points 2"], things: Sequence[Thing], view: Literal[0, 1]
) -> UInt8[Tensor, "points"]:
    """What is seen at points of a view's first frame: 0 is the background, n the nth thing; later ones lie on top."""
    seen = torch.zeros(len(points), dtype=torch.uint8)
    for number, thing in enumerate(things, 1):
        on_it = thing.inside(_placed(thing.placings[view][:1], points)[0]) > 0
        seen = torch.where(on_it, torch.tensor(number, dtype=torch.uint8), seen)
    return seen


def _choose_way(
    config: PasteConfig, rng: np.random.Generator, *, frames: int, cover: float
) -> Float32[Tensor, "frames 2 3"]:
    turn = math.radians(rng.uniform(-config.rotation_degrees, config.rotation_degrees)) / 2
    spin = math.radians(rng.uniform(-config.rotation_degrees, config.rotation_degrees)) / (2 * frames)
    scale = cover * math.exp(rng.uniform(*np.log(config.scale)) / 2)
    start = rng.uniform(-0.7, 0.7, size=2)
    step = rng.uniform(-config.step, config.step, size=2)
    placings = []
    for frame in range(frames):
        centre = start + frame * step
        cos, sin = scale * math.cos(turn + frame * spin), scale * math.sin(turn + frame * spin)
        # The thing's centre, 0 in its own coordinates, lies on `centre` of the view.
        shift = (-cos * centre[0] + sin * centre[1], -sin * centre[0] - cos * centre[1])
        placings.append([[cos, -sin, shift[0]], [sin, cos, shift[1]]])
    return torch.tensor(placings, dtype=torch.float32)


def _placed(maps: Float32[Tensor, "frames 2 3"], points: Float[Tensor, "points 2"]) -> Points:
    return torch.einsum("fxy,py->fpx", maps[..., :2], points) + maps[:, None, :, 2]
