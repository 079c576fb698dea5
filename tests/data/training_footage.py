"""A small folder of videos to learn from, some of which are trouble."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from films import write_film
from timecycle.synthetic import World, WorldConfig, make_world

HEIGHT, WIDTH = 64, 96


def world(seed: int = 0, *, frames: int = 16, still: bool = False) -> World:
    return make_world(WorldConfig(height_px=HEIGHT, width_px=WIDTH, frames=frames, seed=seed, still=still))


def write_video(path: Path, images: Iterable[np.ndarray], *, fps: float = 12) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_film(path, list(images), fps=fps)


def write_images(folder: Path, images: Iterable[np.ndarray]) -> Path:
    folder.mkdir(parents=True)
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{number:05d}.png")
    return folder


def moving_folder(folder: Path, *, videos: int = 5) -> Path:
    for number in range(videos):
        write_video(folder / f"v_Play_g{number // 2:02d}_c{number % 2:02d}.mp4", world(number).frames())
    return folder
