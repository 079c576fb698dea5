"""Predictions degraded in known ways, made from the ground truth alone; davis_official.json holds their scores.

Ground truth and predictions are arrays (frames, height, width) of object ids.
"""

from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from timecycle.synthetic import WorldConfig, make_world

WORLDS = {
    "world-a": WorldConfig(height_px=120, width_px=160, frames=24, objects=5, seed=0),
    "world-b": WorldConfig(height_px=180, width_px=241, frames=31, objects=6, seed=3),
    "world-c": WorldConfig(height_px=135, width_px=240, frames=18, objects=8, seed=7),
}


@cache
def world_ground_truth(name):
    """Return the ids of a synthetic world, numbered 1, 2, ... without gaps; objects that enter later are background.

    The official evaluator counts all numbers up to the highest in the first frame, so a gap would be an object.
    """
    world = make_world(WORLDS[name])
    ids = np.stack([world.mask(t) for t in range(len(world))])
    table = np.zeros(ids.max() + 1, np.uint8)
    present = [i for i in np.unique(ids[0]) if i != 0]
    table[present] = np.arange(1, len(present) + 1)
    ground_truth = table[ids]
    ground_truth.flags.writeable = False  # the cached array is shared
    return ground_truth


def davis_ground_truth(data, name):
    """Return the one object of a DAVIS-2016 sequence, 255 in its masks, as 1."""
    paths = sorted(Path(data, "davis2016", "Annotations", "480p", name).glob("*.png"))
    return np.stack([np.asarray(Image.open(path).convert("L")) > 127 for path in paths]).astype(np.uint8)


def davis_names(data):
    """List the sequences of DAVIS-2016 val."""
    return Path(data, "davis2016", "ImageSets", "480p", "val.txt").read_text().split()


def identity(ground_truth):
    return np.repeat(ground_truth[:1], len(ground_truth), axis=0)


def shifted(ground_truth, down=5, right=-3):
    moved = np.zeros_like(ground_truth)
    moved[:, down:, :right] = ground_truth[:, :-down, -right:]
    return moved


def grown(ground_truth, px=6):
    """Dilate every object by a square of `px`; where two meet, the higher id wins."""
    for axis in (1, 2):
        wide = ground_truth.copy()
        for step in range(1, px + 1):
            ahead, behind = np.moveaxis(wide, axis, 1), np.moveaxis(ground_truth, axis, 1)
            np.maximum(ahead[:, step:], behind[:, :-step], out=ahead[:, step:])
            np.maximum(ahead[:, :-step], behind[:, step:], out=ahead[:, :-step])
        ground_truth = wide
    return ground_truth


def shrunk(ground_truth, px=4):
    """Erode every object by `px` along rows and columns."""
    return np.where(grown(ground_truth, px) == 255 - grown(255 - ground_truth, px), ground_truth, 0)


def speckled(ground_truth, block_px=16, seed=5):
    """Empty one block of pixels in eight, and give one in sixteen to object 1."""
    frames, height, width = ground_truth.shape
    rows, columns = -(-height // block_px), -(-width // block_px)
    random = np.random.default_rng(seed).random((frames, rows, columns))
    random = random.repeat(block_px, axis=1).repeat(block_px, axis=2)[:, :height, :width]
    return np.where(random < 1 / 8, 0, np.where(random < 3 / 16, 1, ground_truth)).astype(np.uint8)


def lost(ground_truth):
    """Predict nothing in the second half of the sequence."""
    kept = ground_truth.copy()
    kept[len(ground_truth) // 2 :] = 0
    return kept


def late(ground_truth):
    """Predict the ground truth of the frame before."""
    return np.concatenate([ground_truth[:1], ground_truth[:-1]])


def swapped(ground_truth):
    """Swap objects 1 and 2 from a third of the sequence on."""
    wrong = ground_truth.copy()
    start = len(ground_truth) // 3
    wrong[start:] = np.where(ground_truth[start:] == 1, 2, np.where(ground_truth[start:] == 2, 1, ground_truth[start:]))
    return wrong


def without_last(ground_truth):
    """Never predict the object with the highest id."""
    return np.where(ground_truth == ground_truth.max(), 0, ground_truth)


def without_first(ground_truth):
    return np.where(ground_truth == 1, 0, ground_truth)


def nothing(ground_truth):
    return np.zeros_like(ground_truth)


ONE_OBJECT = {f.__name__: f for f in (identity, shifted, grown, shrunk, speckled, lost, late)}
MANY_OBJECTS = ONE_OBJECT | {f.__name__: f for f in (swapped, without_first, without_last, nothing)}
