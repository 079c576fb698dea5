"""Short videos to pack."""

from pathlib import Path

import numpy as np

from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import Size, VideoWriter, open_video


def film(path: Path, seed: int, *, frames: int = 16, still: bool = False, fps: float = 12) -> Path:
    world = make_world(WorldConfig(height_px=64, width_px=96, frames=frames, seed=seed, still=still))
    return write_film(path, list(world.frames()), fps=fps)


def write_film(path: Path, images: list[np.ndarray], *, fps: float = 12) -> Path:
    timing = open_video(np.zeros((1, 2, 2, 3), np.uint8), fps=fps)
    with VideoWriter(path, Size(*images[0].shape[:2]), timing.time_base) as writer:
        for pts, image in enumerate(images):
            writer.write(image, pts)
    return path
