"""Articulated composites: clips with a pasted body that swings its limbs, turns, blurs and is occluded; exact masks.

They show what a rigid cut-out (composites.py) does not: limbs that swing from joints, surface that turns into view, a
camera that pans over background that was not there before, things that pass in front, a second object with the same
surface, motion blur, and light that changes. As there, all pixels are real video, and some bodies, here
every fourth, are cut out of the mirrored background clip itself, so that colours alone do not reveal them.

All geometry is in the coordinates of the view, from -1 to 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, UInt8
from torch import Tensor
from torch.nn.functional import grid_sample

from timecycle.data.augment.composites import Frames, ObjectMasks, draw_clips, smooth_curve, square_clips
from timecycle.data.augment.copy_paste import CopyPasteConfig, PastedObject, choose_object
from timecycle.data.corpus.index import Entry
from timecycle.pose import pixel_centres

Points = Float[Tensor, "points 2"]


@dataclass(frozen=True, kw_only=True)
class ArticulatedConfig:
    """Length, size and motion of articulated composites. Lengths are shares of the image's half side."""

    seed: int = 0
    frames: int = 40
    side_px: int = 480
    gap_seconds: float = 1 / 24  # between frames
    radius: tuple[float, float] = (0.12, 0.3)  # of the body
    limbs: tuple[int, int] = (0, 5)  # fewest and most; each has two segments
    limb_width: tuple[float, float] = (0.12, 0.35)  # of the body's radius
    swing_degrees: float = 50  # of a segment about its joint
    way: float = 0.35  # how far the body moves from its start
    turn_degrees: float = 30
    growth: float = 1.35
    turning: float = 0.15  # how far surface slides over the body, as that of a body that turns does
    pan: float = 0.25  # how far the camera moves
    occluders: int = 1  # at most, in front of the body and not labelled
    twins: float = 0.2  # share of clips with a second, unlabelled body of the same surface
    exposure: float = 0.5  # of the time between frames: motion blur
    light: float = 0.15  # change of brightness, of the scene and of the body alone
    noise: float = 2.0  # grey levels

    @property
    def footage(self) -> float:
        """The side of the footage over that of the view: the camera has room to move."""
        return 1 + max(self.pan, _LEAST_ROOM)


_EXPOSURES = 3  # positions averaged into a blurred frame
_SWINGS = (0.5, 2.0)  # of a limb, in a clip
_LEAST_ROOM = 0.35  # beside the view


@dataclass(frozen=True, eq=False)
class _Segment:
    """A tapered part of a limb: its parent (None: the body), joint, length and widths, and its angle in every frame."""

    parent: int | None
    joint: float  # direction from the centre of the body, for the first segment of a limb
    length: float
    widths: tuple[float, float]
    angles: Float[np.ndarray, " moments"]
    surface: tuple[float, float]  # where its surface lies in the source clip


@dataclass(frozen=True, eq=False)
class _Body:
    """A body with limbs, and how it moves: everything by moment, of which there are several in a frame."""

    outline: PastedObject
    segments: tuple[_Segment, ...]
    centre: Float[np.ndarray, "moments 2"]
    angle: Float[np.ndarray, " moments"]
    scale: Float[np.ndarray, " moments"]
    slide: Float[np.ndarray, "moments 2"]  # of the surface
    gain: Float[np.ndarray, " moments"]  # brightness


def make_articulated(
    videos: Path, entries: Sequence[Entry], config: ArticulatedConfig, number: int
) -> tuple[Frames, ObjectMasks]:
    """Make the frames and masks of a composite, as a pure function of the settings, its number and the videos."""
    rng = np.random.default_rng([config.seed, number])
    clips = square_clips(config.frames, config.gap_seconds, round(config.side_px * config.footage))
    background, source, front = draw_clips(videos, entries, clips, rng, count=3, seed=config.seed)
    if number % 4 == 3:
        source = background[:, :, ::-1].copy()
    return _compose(background, source, front, config, rng)


def _compose(
    background: Frames, source: Frames, front: Frames, config: ArticulatedConfig, rng: np.random.Generator
) -> tuple[UInt8[np.ndarray, "frames view view 3"], Bool[np.ndarray, "frames view view"]]:
    moments = config.frames * _EXPOSURES
    body = _choose_body(config, rng, moments)
    behind = [_choose_body(config, rng, moments)] if rng.random() < config.twins else []
    occluders = [_choose_occluder(config, rng, moments) for _ in range(int(rng.integers(config.occluders + 1)))]
    camera = np.stack([smooth_curve(rng, moments, config.pan) for _ in range(2)], axis=1)
    light = 1 + smooth_curve(rng, config.frames, config.light)
    points = pixel_centres(config.side_px)
    frames, masks = [], []
    for frame in range(config.frames):
        images = [_pixels(clip[frame]) for clip in (background, source, front)]
        exposed = []
        for part in range(_EXPOSURES):
            moment = frame * _EXPOSURES + _EXPOSURES // 2
            # Positions within the exposure lie closer together than those of neighbouring frames.
            offset = (part - _EXPOSURES // 2) * config.exposure / _EXPOSURES
            at = min(max(moment + offset * _EXPOSURES, 0), moments - 1)
            view = (points + torch.from_numpy(_at(camera, at)).float()) / config.footage
            pixels = _sample(images[0], view)
            for one, image in [*((twin, images[1]) for twin in behind), (body, images[1])]:
                pixels, cover = _draw(pixels, one, image, points, at, config.side_px)
            visible = cover
            for one in occluders:
                pixels, hidden = _draw(pixels, one, images[2], points, at, config.side_px)
                visible = visible * (1 - hidden)
            exposed.append(pixels)
            if part == _EXPOSURES // 2:
                masks.append((visible > 0.5).reshape(config.side_px, config.side_px).numpy())
        pixels = torch.stack(exposed).mean(dim=0) * float(light[frame])
        noise = torch.from_numpy(rng.standard_normal(pixels.shape).astype(np.float32)) * config.noise
        frames.append((pixels + noise).round().clamp(0, 255).to(torch.uint8).reshape(config.side_px, -1, 3).numpy())
    return np.stack(frames), np.stack(masks)


def _choose_body(config: ArticulatedConfig, rng: np.random.Generator, moments: int) -> _Body:
    outline = choose_object(CopyPasteConfig(radius=config.radius, stretch=0.5), rng, frames=1, cover=1.0)
    fewest, most = config.limbs
    segments: list[_Segment] = []
    for _ in range(int(rng.integers(fewest, most + 1))):
        joint, width = rng.uniform(0, 2 * math.pi), outline.radius * rng.uniform(*config.limb_width)
        for parent in (None, len(segments)):
            segments.append(
                _Segment(
                    parent,
                    joint,
                    outline.radius * rng.uniform(0.6, 1.4),
                    (width, width * rng.uniform(0.4, 0.8)),
                    smooth_curve(rng, moments, math.radians(config.swing_degrees), _SWINGS),
                    (rng.uniform(-0.6, 0.6), rng.uniform(-0.6, 0.6)),
                )
            )
            width *= 0.7
    return _Body(
        outline,
        tuple(segments),
        np.stack([rng.uniform(-0.3, 0.3) + smooth_curve(rng, moments, config.way) for _ in range(2)], axis=1),
        smooth_curve(rng, moments, math.radians(config.turn_degrees)),
        np.exp(smooth_curve(rng, moments, math.log(config.growth))),
        np.stack([smooth_curve(rng, moments, config.turning) for _ in range(2)], axis=1),
        1 + smooth_curve(rng, moments, config.light),
    )


def _choose_occluder(config: ArticulatedConfig, rng: np.random.Generator, moments: int) -> _Body:
    """Draw a rigid object that crosses the whole view."""
    outline = choose_object(CopyPasteConfig(radius=(0.08, 0.35), stretch=0.9), rng, frames=1, cover=1.0)
    direction = rng.uniform(0, 2 * math.pi)
    along = np.linspace(-1.5, 1.5, moments)[:, None] * np.array([math.cos(direction), math.sin(direction)])
    still = np.zeros(moments)
    return _Body(
        outline, (), along + rng.uniform(-0.4, 0.4, size=2), still, np.ones(moments), np.zeros((moments, 2)), 1 + still
    )


def _draw(
    pixels: Float[Tensor, "points 3"],
    body: _Body,
    image: Float32[Tensor, "1 3 side side"],
    points: Points,
    at: float,
    side_px: int,
) -> tuple[Float[Tensor, "points 3"], Float[Tensor, " points"]]:
    """Draw a body over pixels; return also how much of each point it covers."""
    scale, angle, slide = float(_at(body.scale, at)), float(_at(body.angle, at)), torch.from_numpy(_at(body.slide, at))
    gain = float(_at(body.gain, at))
    own = _turned(points - torch.from_numpy(_at(body.centre, at)).float(), -angle) / scale
    pixel = 2 / side_px / scale
    covers, frames_of = [], _joints(body, at)
    for segment, (joint, direction) in zip(body.segments, frames_of, strict=True):
        limb = _turned(own - torch.from_numpy(joint).float(), -direction)
        along = (limb[:, 0] / segment.length).clamp(0, 1)
        width = segment.widths[0] + along * (segment.widths[1] - segment.widths[0])
        distance = torch.hypot(limb[:, 0] - along * segment.length, limb[:, 1])
        covers.append((((width - distance) / pixel + 0.5).clamp(0, 1), limb + torch.tensor(segment.surface)))
    # The body is drawn last: limbs come from behind it.
    covers.append(((body.outline.inside(own) / pixel + 0.5).clamp(0, 1), own + slide.float()))
    total = torch.zeros(len(points))
    for cover, surface in covers:
        drawn = cover > 0
        if bool(drawn.any()):
            shown = _sample(image, surface[drawn]) * gain
            pixels = pixels.clone()
            pixels[drawn] = torch.lerp(pixels[drawn], shown, cover[drawn, None])
        total = torch.maximum(total, cover)
    return pixels, total


def _joints(body: _Body, at: float) -> list[tuple[np.ndarray, float]]:
    """Return where every segment begins and which way it points, in the body's coordinates."""
    placed: list[tuple[np.ndarray, float]] = []
    for segment in body.segments:
        bend = float(_at(segment.angles, at))
        if segment.parent is None:
            way = np.array([math.cos(segment.joint), math.sin(segment.joint)])
            placed.append((0.8 * body.outline.radius * way, segment.joint + bend))
        else:
            begin, direction = placed[segment.parent]
            length = body.segments[segment.parent].length
            end = begin + length * np.array([math.cos(direction), math.sin(direction)])
            placed.append((end, direction + bend))
    return placed


def _at(curve: np.ndarray, moment: float) -> np.ndarray:
    """Return a curve between two moments."""
    low = int(moment)
    high = min(low + 1, len(curve) - 1)
    return np.asarray(curve[low] + (moment - low) * (curve[high] - curve[low]))


def _turned(points: Points, angle: float) -> Points:
    cos, sin = math.cos(angle), math.sin(angle)
    return points @ torch.tensor([[cos, sin], [-sin, cos]])


def _pixels(image: np.ndarray) -> Float32[Tensor, "1 3 side side"]:
    return torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)[None]


def _sample(image: Float32[Tensor, "1 3 side side"], points: Points) -> Float[Tensor, "points 3"]:
    sampled = grid_sample(image, points[None, None].float(), padding_mode="reflection", align_corners=False)
    return sampled[0, :, 0].T
