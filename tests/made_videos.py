"""Short synthetic videos for tests."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import Size, VideoWriter, open_video


def make_video(path: Path, seed: int, *, frames: int = 16, static: bool = False, fps: float = 12) -> Path:
    """Write a video of the synthetic world; a static one repeats its first frame."""
    images = list(make_world(WorldConfig(height_px=64, width_px=96, frames=frames, seed=seed)).frames())
    return write_video(path, images[:1] * frames if static else images, fps=fps)


def make_manifest(folder: Path, count: int, *, frames: int) -> list[str]:
    """Write videos with a mask each, and the manifest videos.csv; return the manifest's lines."""
    lines = ["video,labels"]
    for number in range(count):
        world = make_world(WorldConfig(height_px=64, width_px=96, frames=frames, seed=number))
        make_video(folder / f"v{number}.mp4", number, frames=frames)
        Image.fromarray(world.mask(0).astype("uint8")).save(folder / f"m{number}.png")
        lines.append(f"v{number}.mp4,m{number}.png")
    (folder / "videos.csv").write_text("\n".join(lines) + "\n")
    return lines


def write_video(path: Path, images: Iterable[np.ndarray], *, fps: float = 12) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    images = list(images)
    timing = open_video(np.zeros((1, 2, 2, 3), np.uint8), fps=fps)
    with VideoWriter(path, Size(*images[0].shape[:2]), timing.time_base) as writer:
        for pts, image in enumerate(images):
            writer.write(image, pts)
    return path
