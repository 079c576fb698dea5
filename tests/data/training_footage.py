"""A small folder of moving videos to train on."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from made_videos import make_video
from timecycle.synthetic import World, WorldConfig, make_world

HEIGHT, WIDTH = 64, 96  # of the videos of make_video too


def world(seed: int = 0, *, frames: int = 16) -> World:
    return make_world(WorldConfig(height_px=HEIGHT, width_px=WIDTH, frames=frames, seed=seed))


def write_images(folder: Path, images: Iterable[np.ndarray]) -> Path:
    folder.mkdir(parents=True)
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{number:05d}.png")
    return folder


def moving_folder(folder: Path, *, videos: int = 5) -> Path:
    for number in range(videos):
        make_video(folder / f"v_Play_g{number // 2:02d}_c{number % 2:02d}.mp4", number)
    return folder
