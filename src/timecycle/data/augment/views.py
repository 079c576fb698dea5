"""Two augmented views of one clip, with different framing and colours and a known map between them.

A view is an affine map A, 2x3, from the view's coordinates to those of its source frame; both run from -1 to 1
between the outer edges of the pixels (see pose.py). Beyond the source a view shows its reflection, never black:
black corners would be landmarks.

Elastic warps change from frame to frame: bodies are not rigid, and features must not rely on it. A warp displaces every
point p of a view by w(p), a sum of a few waves whose phases advance with the frame. The warped frame shows at p what
the frame showed at p + w(p).
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, UInt8
from PIL import Image, ImageFilter
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate

from timecycle.errors import SettingsError
from timecycle.pose import pixel_centres

Affine = Float32[Tensor, "*batch 2 3"]
Frames = UInt8[np.ndarray, "frames height width 3"]
Points = Float32[Tensor, "points 2"]

_MAX_SHRINK = 1.25  # source pixels per view pixel, above which bilinear sampling would skip pixels
_BLUR_PX = (0.4, 1.6)  # standard deviation
_GREY = np.array([0.299, 0.587, 0.114])
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
_WAVES = 4  # of an elastic warp
_CYCLES = (0.3, 1.3)  # across the view
_MAX_PHASE_STEP = math.pi / 3  # from frame to frame


@dataclass(frozen=True, kw_only=True)
class ViewConfig:
    """How much two views differ. Colours: 0 changes nothing; the last four are probabilities."""

    rotation_degrees: float = 30  # largest, to either side
    scale: tuple[float, float] = (0.7, 1.4)  # of the field of view: above 1 objects look smaller; log-uniform
    shift: float = 0.35  # of the view's side
    elastic: float = 0.0  # of the view's half side: amplitude of the elastic warp, which changes with every frame
    brightness: float = 0.4  # factor: 1 plus or minus up to this
    contrast: float = 0.4  # the same
    saturation: float = 0.4  # the same
    hue: float = 0.1  # of a full turn of the colour circle
    grayscale: float = 0.3  # share of views without colour
    channel_drop: float = 0.2  # replaces one of red, green, blue by its mean: colour alone must not suffice
    blur: float = 0.3  # share of views that are blurred
    grey_clips: float = 0.0  # share of clips that are grey in both views: no colour to match cells by

    def __post_init__(self) -> None:
        low, high = self.scale
        if not 0 < low <= high:
            raise SettingsError(f"scale is {self.scale}", remedy="give the smallest, then the largest scale")
        if not 0 <= self.elastic < 1:
            raise SettingsError(f"elastic is {self.elastic}", remedy="give 0 for rigid views, or up to 0.3")
        for name in ("brightness", "contrast", "saturation", "hue", "grayscale", "channel_drop", "blur", "grey_clips"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingsError(f"{name} is {getattr(self, name)}", remedy="give 0 to 1")


# Geometry


def choose_view(config: ViewConfig, rng: np.random.Generator, *, cover: float = 1.0) -> Float32[Tensor, "2 3"]:
    """Draw a view at random: scaled, rotated, and shifted within the source.

    `cover` is the view's side over the source's: 1 where they are equally large, 2/3 for views of 128 pixels in
    crops of 192. A view too large for the source stays in its middle.
    """
    turn = math.radians(rng.uniform(-config.rotation_degrees, config.rotation_degrees))
    scale = cover * math.exp(rng.uniform(*np.log(config.scale)))
    extent = scale * (
        abs(math.cos(turn)) + abs(math.sin(turn))
    )  # from the centre to the farthest corner, along an axis
    room = max(0.0, 1 - extent)
    shift = np.clip(2 * cover * rng.uniform(-config.shift, config.shift, size=2), -room, room)
    cos, sin = scale * math.cos(turn), scale * math.sin(turn)
    return torch.tensor([[cos, -sin, shift[0]], [sin, cos, shift[1]]], dtype=torch.float32)


def apply_view(frames: Frames, affine: Float32[Tensor, "2 3"], out_px: int) -> UInt8[np.ndarray, "frames out out 3"]:
    """Render the view of every frame, `out_px` pixels square."""
    images = torch.from_numpy(frames).permute(0, 3, 1, 2).float()
    height, width = images.shape[-2:]
    # Shrinking first with antialiasing keeps fine texture from flickering; normalised coordinates do not change.
    shrink = float(affine[:, :2].square().sum(dim=0).sqrt().max()) * min(height, width) / out_px
    if shrink > _MAX_SHRINK:
        small = round(height / shrink), round(width / shrink)
        images = interpolate(images, small, mode="bilinear", antialias=True, align_corners=False)
    points = pixel_centres(out_px).reshape(out_px, out_px, 2)
    grid = (points @ affine[:, :2].T + affine[:, 2]).expand(len(images), -1, -1, -1)
    shown = grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    return shown.permute(0, 2, 3, 1).round().clamp(0, 255).to(torch.uint8).numpy()


def view_to_view(first: Affine, second: Affine) -> Affine:
    """Return the affine map from the coordinates of the first view to those of the second: second^-1 after first."""
    linear = torch.linalg.solve(second[..., :2].double(), first[..., :2].double())
    shift = torch.linalg.solve(second[..., :2].double(), (first[..., 2:] - second[..., 2:]).double())
    return torch.cat([linear, shift], dim=-1).float()


# Colours


def photometric(frames: Frames, config: ViewConfig, rng: np.random.Generator) -> Frames:
    """Apply one random change of colours and sharpness to all frames of a view."""
    colours = _choose_colours(frames.mean(axis=(0, 1, 2)), config, rng)
    changed = frames.copy() if colours.is_identity else colours.apply(frames)
    sigma_px = rng.uniform(*_BLUR_PX)
    return _blurred(changed, sigma_px) if rng.random() < config.blur else changed


def to_grey(frames: Frames) -> Frames:
    """Replace all colours by their brightness."""
    grey: np.ndarray = (frames @ _GREY + 0.5).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=-1)


@dataclass(frozen=True, eq=False)
class _Colours:
    """An affine map of RGB colours; all colour changes together are one product and one sum."""

    matrix: Float64[np.ndarray, "3 3"]
    offset: Float64[np.ndarray, "3"]

    @property
    def is_identity(self) -> bool:
        return bool(np.array_equal(self.matrix, np.eye(3)) and not self.offset.any())

    def then(self, matrix: Float64[np.ndarray, "3 3"], offset: Float64[np.ndarray, "3"] | float = 0.0) -> "_Colours":
        return _Colours(matrix @ self.matrix, matrix @ self.offset + offset)

    def of(self, colour: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "3"]:
        changed: np.ndarray = self.matrix @ colour + self.offset
        return changed

    def apply(self, frames: Frames) -> Frames:
        matrix, offset = self.matrix.T.astype(np.float32), self.offset.astype(np.float32) + 0.5
        pixels: np.ndarray = frames.reshape(-1, 3).astype(np.float32) @ matrix
        pixels += offset
        np.clip(pixels, 0, 255, out=pixels)
        return pixels.astype(np.uint8).reshape(frames.shape)


def _choose_colours(mean: Float64[np.ndarray, "3"], config: ViewConfig, rng: np.random.Generator) -> _Colours:
    """Draw a change of colours; contrast keeps `mean`, the mean colour. Every number is drawn, whether used or not."""
    brightness, contrast, saturation = (
        1 + rng.uniform(-width, width) for width in (config.brightness, config.contrast, config.saturation)
    )
    turn = 2 * math.pi * rng.uniform(-config.hue, config.hue)
    is_grey, drops = rng.random() < config.grayscale, rng.random() < config.channel_drop
    channel = int(rng.integers(3))

    eye, to_grey = np.eye(3), np.tile(_GREY, (3, 1))
    colours = _Colours(eye, np.zeros(3)).then(brightness * eye)
    colours = colours.then(contrast * eye, (1 - contrast) * float(_GREY @ colours.of(mean)))
    colours = colours.then(saturation * eye + (1 - saturation) * to_grey)
    if turn:
        colours = colours.then(_turned_hue(turn))
    if is_grey:
        colours = colours.then(to_grey)
    if drops:
        kept = np.diag(np.arange(3) != channel).astype(float)
        colours = colours.then(kept, np.where(np.arange(3) == channel, colours.of(mean), 0.0))
    return colours


def _turned_hue(turn: float) -> Float64[np.ndarray, "3 3"]:
    """Return the rotation of colours about the grey axis."""
    cos, sin = math.cos(turn), math.sin(turn)
    rotation = np.array([[1, 0, 0], [0, cos, -sin], [0, sin, cos]])
    matrix: np.ndarray = np.linalg.inv(_TO_YIQ) @ rotation @ _TO_YIQ
    return matrix


def _blurred(frames: Frames, sigma_px: float) -> Frames:
    blur = ImageFilter.GaussianBlur(sigma_px)
    return np.stack([np.asarray(Image.fromarray(frame).filter(blur)) for frame in frames])


# Elastic warps


@dataclass(frozen=True, eq=False)
class ElasticWarp:
    """The waves of one view."""

    size: float  # the largest displacement of a point, of the view's half side
    shares: Float32[Tensor, "waves 2"]  # of x and y; absolute values add up to 1
    cycles: Float32[Tensor, "waves 2"]
    phases: Float32[Tensor, "waves"]
    phase_steps: Float32[Tensor, "waves"]  # from frame to frame

    def displace(self, points: Points, frame: int) -> Points:
        """Return p + w(p) in a frame."""
        phases = math.pi * points @ self.cycles.T + self.phases + frame * self.phase_steps
        return points + self.size * torch.sin(phases) @ self.shares


def choose_warp(size: float, rng: np.random.Generator) -> ElasticWarp:
    """Draw a warp whose displacements are at most `size`."""
    shares = rng.standard_normal((_WAVES, 2))
    angles = rng.uniform(0, 2 * math.pi, _WAVES)
    cycles = rng.uniform(*_CYCLES, _WAVES)[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    phases, steps = rng.uniform(0, 2 * math.pi, _WAVES), rng.uniform(-_MAX_PHASE_STEP, _MAX_PHASE_STEP, _WAVES)
    arrays = (shares / np.abs(shares).sum(axis=0), cycles, phases, steps)
    return ElasticWarp(size, *(torch.from_numpy(array).float() for array in arrays))


def apply_warp(
    frames: UInt8[np.ndarray, "frames side side 3"], warp: ElasticWarp, *, first: int = 0
) -> UInt8[np.ndarray, "frames side side 3"]:
    """Warp the frames from `first` on; earlier ones stay as they are."""
    side = frames.shape[1]
    points = pixel_centres(side)
    grids = [warp.displace(points, frame).reshape(side, side, 2) for frame in range(first, len(frames))]
    if not grids:
        return frames
    images = torch.from_numpy(frames[first:]).permute(0, 3, 1, 2).float()
    sampled = grid_sample(images, torch.stack(grids), padding_mode="reflection", align_corners=False)
    pixels = sampled.permute(0, 2, 3, 1).round().clamp(0, 255).to(torch.uint8).numpy()
    return np.concatenate([frames[:first], pixels])
