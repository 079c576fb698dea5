"""Copy-paste augmentation: move objects cut out of one clip across another, so that surroundings do not identify them.

In unlabelled video, the surroundings of a cell move along with it most of the time, and an encoder that looks only at
the surroundings closes every cycle. A pasted object moves against its surroundings, and its position is known.

An object keeps its outline and its pixels in the coordinates of the clip it was cut from, from -1 to 1. A transform is
an affine map, 2x3, from the coordinates of a view to those.
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

from timecycle.data.augment.views import Affine, view_to_view
from timecycle.errors import SettingsError
from timecycle.pose import pixel_centres

_HARMONICS = np.arange(2, 7)  # of the outline around a circle; higher ones would fray it

Points = Float32[Tensor, "*batch points 2"]


@dataclass(frozen=True, kw_only=True)
class CopyPasteConfig:
    """Number, size and motion of pasted objects."""

    most: int = 0  # objects in a clip: 0 to this many, all equally likely
    alike: float = 0.5  # share cut from the mirrored clip itself: colours do not reveal these
    radius: tuple[float, float] = (0.15, 0.45)  # of a view's half side, log-uniform
    stretch: float = 0.4  # of the ellipse: its axes differ by up to exp(twice this)
    dents: float = 0.35  # how far the outline departs from an ellipse
    step: float = 0.15  # the largest motion between two frames, of a view's half side
    rotation_degrees: float = 30  # between the two views
    scale: tuple[float, float] = (0.75, 1.33)  # between the two views, log-uniform

    def __post_init__(self) -> None:
        for name in ("radius", "scale"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise SettingsError(f"{name} is {getattr(self, name)}", remedy="give the smallest, then the largest")
        if self.most < 0 or not 0 <= self.alike <= 1:
            raise SettingsError(
                f"copy_paste.most is {self.most} and copy_paste.alike {self.alike}",
                remedy="give 0 or more objects, and a share from 0 to 1",
            )


@dataclass(frozen=True, eq=False)
class PastedObject:
    """An outline in the object's own clip, and its transform in every frame of the two views."""

    radius: float
    aspect: float
    heights: Float32[np.ndarray, "harmonics"]
    phases: Float32[np.ndarray, "harmonics"]
    transforms: tuple[Float32[Tensor, "out 2 3"], Float32[Tensor, "back 2 3"]]  # of each frame of the two views

    def inside(self, points: Points) -> Float32[Tensor, "*batch points"]:
        """Return how far points of its own clip lie within the outline, towards its centre; negative outside."""
        x, y = points[..., 0] / self.aspect, points[..., 1] * self.aspect
        angle, distance = torch.atan2(y, x), torch.hypot(x, y)
        dents = [
            float(height) * torch.cos(float(count) * angle + float(phase))
            for count, height, phase in zip(_HARMONICS, self.heights, self.phases, strict=True)
        ]
        return self.radius * (1 + torch.stack(dents).sum(dim=0)) - distance


def choose_object(config: CopyPasteConfig, rng: np.random.Generator, *, frames: int, cover: float) -> PastedObject:
    """Draw an outline and a straight motion across each view; `cover` is a view's side over its source's."""
    radius = cover * math.exp(rng.uniform(*np.log(config.radius)))
    heights = config.dents * rng.standard_normal(len(_HARMONICS)) / _HARMONICS
    forward, backward = (_choose_motion(config, rng, frames=frames, cover=cover) for _ in range(2))
    return PastedObject(
        radius=radius,
        aspect=math.exp(rng.uniform(-config.stretch, config.stretch)),
        heights=heights.clip(-0.5, 0.5).astype(np.float32),
        phases=rng.uniform(0, 2 * math.pi, len(_HARMONICS)).astype(np.float32),
        transforms=(forward, backward),
    )


def paste(
    view: UInt8[np.ndarray, "frames side side 3"],
    source: UInt8[np.ndarray, "frames height width 3"],
    pasted: PastedObject,
    transforms: Float32[Tensor, "frames 2 3"],
) -> UInt8[np.ndarray, "frames side side 3"]:
    """Paste an object onto a view, with an edge antialiased over one pixel."""
    side = view.shape[1]
    points = _transformed(transforms, pixel_centres(side))
    images = torch.from_numpy(source).permute(0, 3, 1, 2).float()
    grid = points.reshape(len(view), side, side, 2)
    pixels = grid_sample(images, grid, padding_mode="reflection", align_corners=False).permute(0, 2, 3, 1)
    pixel = transforms[:, :, :2].square().sum(dim=1).sqrt().mean(dim=1) * 2 / side  # in the source's coordinates
    cover = (pasted.inside(points) / pixel[:, None] + 0.5).clamp(0, 1).reshape(len(view), side, side, 1)
    mixed: np.ndarray = (torch.from_numpy(view) * (1 - cover) + pixels * cover).round().to(torch.uint8).numpy()
    return mixed


def map_points(
    points: Float[Tensor, "points 2"], maps: tuple[Affine, Affine], objects: Sequence[PastedObject]
) -> tuple[Float32[Tensor, "points 2"], Bool[Tensor, "points"]]:
    """Map points of the first frame from the forward view to the backward view; return also which stay visible.

    A point moves with the background or with the object that covers it; later objects lie on top. A point of the
    background, or of a lower object, is not visible if an object covers it in any frame.
    """
    mapped = _transformed(view_to_view(*maps)[None], points)[0]
    visible = torch.ones(len(points), dtype=torch.bool)
    for pasted in objects:
        covered = [
            (pasted.inside(_transformed(transforms, seen)) > 0)
            for transforms, seen in zip(pasted.transforms, (points, mapped), strict=True)
        ]
        on_object = covered[0][0]
        visible = torch.where(on_object, True, visible & ~covered[0].any(dim=0) & ~covered[1].any(dim=0))
        moved = _transformed(view_to_view(pasted.transforms[0][0], pasted.transforms[1][0])[None], points)[0]
        mapped = torch.where(on_object[:, None], moved, mapped)
    return mapped, visible


def objects_at(
    points: Float[Tensor, "points 2"], objects: Sequence[PastedObject], view: Literal[0, 1]
) -> UInt8[Tensor, "points"]:
    """Return the object at points of a view's first frame: 0 for background, n for the nth; later ones lie on top."""
    numbers = torch.zeros(len(points), dtype=torch.uint8)
    for number, pasted in enumerate(objects, 1):
        on_object = pasted.inside(_transformed(pasted.transforms[view][:1], points)[0]) > 0
        numbers = torch.where(on_object, torch.tensor(number, dtype=torch.uint8), numbers)
    return numbers


def _choose_motion(
    config: CopyPasteConfig, rng: np.random.Generator, *, frames: int, cover: float
) -> Float32[Tensor, "frames 2 3"]:
    turn = math.radians(rng.uniform(-config.rotation_degrees, config.rotation_degrees)) / 2
    spin = math.radians(rng.uniform(-config.rotation_degrees, config.rotation_degrees)) / (2 * frames)
    scale = cover * math.exp(rng.uniform(*np.log(config.scale)) / 2)
    start = rng.uniform(-0.7, 0.7, size=2)
    step = rng.uniform(-config.step, config.step, size=2)
    transforms = []
    for frame in range(frames):
        centre = start + frame * step
        cos, sin = scale * math.cos(turn + frame * spin), scale * math.sin(turn + frame * spin)
        # The object's centre, 0 in its own coordinates, lies on `centre` of the view.
        shift = (-cos * centre[0] + sin * centre[1], -sin * centre[0] - cos * centre[1])
        transforms.append([[cos, -sin, shift[0]], [sin, cos, shift[1]]])
    return torch.tensor(transforms, dtype=torch.float32)


def _transformed(maps: Float32[Tensor, "frames 2 3"], points: Float[Tensor, "points 2"]) -> Points:
    return torch.einsum("fxy,py->fpx", maps[..., :2], points) + maps[:, None, :, 2]
