"""Predictions spoilt in known ways, made from the truth alone: what davis_official.json holds the scores of.

Truth and predictions are arrays (frames, height, width) of object ids.
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
def world_truth(name):
    """The ids of a synthetic world, numbered 1, 2, ... without gaps; objects that come later are background.

    The official evaluator counts all numbers up to the highest in the first frame, so a gap would be an object.
    """
    world = make_world(WORLDS[name])
    ids = np.stack([world.mask(t) for t in range(len(world))])
    table = np.zeros(ids.max() + 1, np.uint8)
    shown = [i for i in np.unique(ids[0]) if i != 0]
    table[shown] = np.arange(1, len(shown) + 1)
    truth = table[ids]
    truth.flags.writeable = False  # one array for all who ask
    return truth


def davis_truth(data, name):
    """The one object of a DAVIS-2016 sequence, drawn with 255 there, as 1."""
    paths = sorted(Path(data, "davis2016", "Annotations", "480p", name).glob("*.png"))
    return np.stack([np.asarray(Image.open(path).convert("L")) > 127 for path in paths]).astype(np.uint8)


def davis_names(data):
    """The sequences of DAVIS-2016 val."""
    return Path(data, "davis2016", "ImageSets", "480p", "val.txt").read_text().split()


def identity(truth):
    return np.repeat(truth[:1], len(truth), axis=0)


def shifted(truth, down=5, right=-3):
    moved = np.zeros_like(truth)
    moved[:, down:, :right] = truth[:, :-down, -right:]
    return moved


def grown(truth, px=6):
    """Every object over all within a square of `px` around it; where two meet, the higher id."""
    for axis in (1, 2):
        wide = truth.copy()
        for step in range(1, px + 1):
            ahead, behind = np.moveaxis(wide, axis, 1), np.moveaxis(truth, axis, 1)
            np.maximum(ahead[:, step:], behind[:, :-step], out=ahead[:, step:])
            np.maximum(ahead[:, :-step], behind[:, step:], out=ahead[:, :-step])
        truth = wide
    return truth


def shrunk(truth, px=4):
    """What is left of every object at least `px` from its border, along rows and columns."""
    return np.where(grown(truth, px) == 255 - grown(255 - truth, px), truth, 0)


def speckled(truth, block_px=16, seed=5):
    """One block of pixels in eight emptied, one in sixteen given to object 1."""
    frames, height, width = truth.shape
    rows, columns = -(-height // block_px), -(-width // block_px)
    chance = np.random.default_rng(seed).random((frames, rows, columns))
    chance = chance.repeat(block_px, axis=1).repeat(block_px, axis=2)[:, :height, :width]
    return np.where(chance < 1 / 8, 0, np.where(chance < 3 / 16, 1, truth)).astype(np.uint8)


def lost(truth):
    """Nothing from half the sequence on."""
    kept = truth.copy()
    kept[len(truth) // 2 :] = 0
    return kept


def late(truth):
    """The truth of the frame before."""
    return np.concatenate([truth[:1], truth[:-1]])


def swapped(truth):
    """Objects 1 and 2 taken for each other from a third of the sequence on."""
    wrong = truth.copy()
    start = len(truth) // 3
    wrong[start:] = np.where(truth[start:] == 1, 2, np.where(truth[start:] == 2, 1, truth[start:]))
    return wrong


def without_last(truth):
    """The object with the highest id never predicted."""
    return np.where(truth == truth.max(), 0, truth)


def without_first(truth):
    return np.where(truth == 1, 0, truth)


def nothing(truth):
    return np.zeros_like(truth)


ONE_OBJECT = {f.__name__: f for f in (identity, shifted, grown, shrunk, speckled, lost, late)}
MANY_OBJECTS = ONE_OBJECT | {f.__name__: f for f in (swapped, without_first, without_last, nothing)}
