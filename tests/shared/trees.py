"""Small datasets in the layouts of the real ones, with footage of the synthetic world."""

from pathlib import Path

import numpy as np
from PIL import Image

from timecycle.evaluation.protocols.davis import CLIPS, Year
from timecycle.synthetic import World, WorldConfig, make_world


def davis_tree(
    root: Path, *, year: Year = "2016", frames: int = 5, clips: int = 2, static: bool = False
) -> list[World]:
    """A DAVIS validation set of which the first `clips` exist; the list names all of them."""
    names = [f"clip{number:02d}" for number in range(CLIPS[year])]
    listing = root / "ImageSets" / ("2017" if year == "2017" else "480p") / "val.txt"
    listing.parent.mkdir(parents=True)
    line = "{0}\n" if year == "2017" else "/JPEGImages/480p/{0}/00000.jpg /Annotations/480p/{0}/00000.png\n"
    listing.write_text("".join(line.format(name) for name in names))
    worlds = []
    for number, name in enumerate(names[:clips]):
        world = make_world(WorldConfig(height_px=64, width_px=96, frames=max(frames, 2), seed=number, static=static))
        worlds.append(world)
        for folder in ("JPEGImages", "Annotations"):
            (root / folder / "480p" / name).mkdir(parents=True)
        for t in range(frames):
            Image.fromarray(world.frame(t)).save(root / "JPEGImages" / "480p" / name / f"{t:05d}.jpg", quality=95)
            ids = world.mask(t).astype(np.uint8)
            mask = ids if year == "2017" else (ids > 0).astype(np.uint8) * 255
            Image.fromarray(mask).save(root / "Annotations" / "480p" / name / f"{t:05d}.png")
    return worlds
