"""Transfer in one step: it follows the object, and is measured on its mask."""

import numpy as np

from timecycle.model.registry import load_encoder
from transfer import Clip, transfer_overlaps


def test_a_mask_moves_with_its_object_and_not_without_it():
    rng = np.random.default_rng(0)
    background, thing = rng.integers(0, 90, (160, 160, 3)), rng.integers(150, 256, (48, 48, 3))

    def frame(x: int) -> tuple[np.ndarray, np.ndarray]:
        image, mask = background.astype(np.uint8), np.zeros((160, 160), bool)
        image[48:96, x : x + 48] = thing
        mask[48:96, x : x + 48] = True
        return image, mask

    start, there, elsewhere = frame(16), frame(48), frame(100)
    encoder = load_encoder("rgb")
    clips = [
        Clip("moved", [start[0], there[0]], [start[1], there[1]]),
        Clip("wrong", [start[0], there[0]], [start[1], elsewhere[1]]),
    ]
    overlaps = transfer_overlaps(clips, encoder)
    assert overlaps["moved"] > 80
    assert overlaps["wrong"] < 10
