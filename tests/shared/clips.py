"""Small clips on disk for tests of whole runs."""

from pathlib import Path

import numpy as np

from timecycle.labels import Masks
from timecycle.synthetic import World, WorldConfig, make_world
from timecycle.video import Size, VideoWriter, open_video


def small_world(frames: int = 12, height_px: int = 64, width_px: int = 96) -> World:
    return make_world(WorldConfig(height_px=height_px, width_px=width_px, frames=frames))


def write_clip(path: Path, world: World) -> Path:
    """Write a video of the world; frames are rendered one at a time."""
    timing = open_video(np.zeros((1, 2, 2, 3), np.uint8), fps=24)
    size = Size(world.config.height_px, world.config.width_px)
    with VideoWriter(path, size, timing.time_base) as writer:
        for t, image in enumerate(world.frames()):
            writer.write(image, t)
    return path


def write_mask(path: Path, world: World, t: int = 0) -> Path:
    Masks(world.mask(t)).write(path)
    return path
