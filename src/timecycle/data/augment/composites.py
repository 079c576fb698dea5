"""Composites: clips of unlabelled video with a pasted object whose mask is known in every frame.

The outline of the object is generated, so its mask is exact, while its texture and the background are real video. Every
second object is cut out of the mirrored background clip itself, so that colours alone do not reveal it.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float32, UInt8
from torch import Tensor

from timecycle.data.augment.clips import ClipConfig, ClipReader, usable
from timecycle.data.augment.copy_paste import CopyPasteConfig, PastedObject, choose_object, paste
from timecycle.data.augment.views import apply_warp, choose_warp
from timecycle.data.corpus.footage import FolderFootage
from timecycle.data.corpus.index import Entry
from timecycle.errors import SettingsError
from timecycle.pose import pixel_centres

_WAVES = 3  # summed to a smooth random curve

Frames = UInt8[np.ndarray, "frames side side 3"]
ObjectMasks = Bool[np.ndarray, "frames side side"]  # of the pasted object, in every frame


@dataclass(frozen=True, kw_only=True)
class CompositesConfig:
    """Length, size and motion of composites."""

    seed: int = 0
    frames: int = 30
    side_px: int = 240
    gap_seconds: float = 1 / 15  # between frames
    radius: tuple[float, float] = (0.12, 0.4)  # of the image's half side
    way: float = 0.5  # how far an object moves from its start, of the image's half side
    turn_degrees: float = 40
    growth: float = 1.4
    stretch: float = 0.9  # of an object: its axes differ by up to exp(twice this)
    elastic: float = 0.1  # of the image's half side: amplitude of an elastic warp of the whole clip


def make_composite(
    videos: Path, entries: Sequence[Entry], config: CompositesConfig, number: int
) -> tuple[Frames, ObjectMasks]:
    """Make the frames and masks of a composite, as a pure function of the settings, its number and the videos."""
    rng = np.random.default_rng([config.seed, number])
    clips = square_clips(config.frames, config.gap_seconds, config.side_px)
    background, source = draw_clips(videos, entries, clips, rng, count=2, seed=config.seed)
    if number % 2:
        source = background[:, :, ::-1].copy()
    return _compose(background, source, config, rng)


def square_clips(frames: int, gap_seconds: float, side_px: int) -> ClipConfig:
    """Return the settings of clips that show a square as large as the image, resized to `side_px`."""
    return ClipConfig(
        frames=frames, gap_seconds=(gap_seconds, gap_seconds), short_side_px=side_px, crop_px=side_px, flip=False
    )


def draw_clips(
    videos: Path, entries: Sequence[Entry], clips: ClipConfig, rng: np.random.Generator, *, count: int, seed: int
) -> list[Frames]:
    """Draw clips of different videos at random."""
    long_enough = usable(entries, clips)
    if len(long_enough) < count:
        raise SettingsError(
            f"{len(long_enough)} videos in {videos} have {clips.frames} frames and motion", remedy="give more footage"
        )
    reader = ClipReader(FolderFootage(videos, long_enough), clips, seed=seed)
    positions = rng.choice(len(long_enough), size=count, replace=False)
    return [reader.read(0, int(position), rng).frames for position in positions]


def _compose(
    background: Frames,
    source: Frames,
    config: CompositesConfig,
    rng: np.random.Generator,
) -> tuple[Frames, ObjectMasks]:
    count = len(background)
    pasted = choose_object(CopyPasteConfig(radius=config.radius, stretch=config.stretch), rng, frames=1, cover=1.0)
    # The outline changes over time.
    phases = [pasted.phases + np.float32(shift) for shift in smooth_curve(rng, count, 1.5)]
    frames, masks = [], []
    transforms, warp = _object_motion(config, rng, count), choose_warp(config.elastic, rng)
    for frame, transform in enumerate(transforms):
        now = dataclasses.replace(pasted, phases=phases[frame])
        frames.append(paste(background[frame : frame + 1], source[frame : frame + 1], now, transform[None])[0])
        points = warp.displace(pixel_centres(config.side_px), frame)
        masks.append(_mask(now, transform, points))
    composed = np.stack(frames)
    return apply_warp(composed, warp) if config.elastic else composed, np.stack(masks)


def _object_motion(config: CompositesConfig, rng: np.random.Generator, count: int) -> Float32[Tensor, "frames 2 3"]:
    """Draw the affine maps from image coordinates to the object's, one per frame."""
    centre = np.stack([rng.uniform(-0.3, 0.3) + smooth_curve(rng, count, config.way) for _ in range(2)], axis=1)
    angle = smooth_curve(rng, count, math.radians(config.turn_degrees))
    scale = np.exp(smooth_curve(rng, count, math.log(config.growth)))
    cos, sin = scale * np.cos(angle), scale * np.sin(angle)
    linear = np.stack([np.stack([cos, -sin], axis=1), np.stack([sin, cos], axis=1)], axis=1)
    shift = -np.einsum("fxy,fy->fx", linear, centre.clip(-0.8, 0.8))
    return torch.from_numpy(np.concatenate([linear, shift[..., None]], axis=2)).float()


def smooth_curve(
    rng: np.random.Generator, count: int, size: float, cycles_range: tuple[float, float] = (0.3, 1.5)
) -> np.ndarray:
    """Draw a smooth curve within +-size: a sum of waves with so many cycles each."""
    weights = rng.standard_normal(_WAVES)
    cycles, phases = rng.uniform(*cycles_range, _WAVES), rng.uniform(0, 2 * math.pi, _WAVES)
    waves = np.sin(2 * math.pi * cycles[:, None] * np.arange(count) / count + phases[:, None])
    curve: np.ndarray = size * (weights / np.abs(weights).sum()) @ waves
    return curve


def _mask(
    pasted: PastedObject, transform: Float32[Tensor, "2 3"], points: Float32[Tensor, "pixels 2"]
) -> Bool[np.ndarray, "side side"]:
    """Return which points of a square image lie on the object."""
    inside = pasted.inside(points @ transform[:, :2].T + transform[:, 2]) > 0
    side = math.isqrt(len(points))
    mask: np.ndarray = inside.reshape(side, side).numpy()
    return mask
