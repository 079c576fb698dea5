"""The assisted tool, on made pictures: what strokes change, and what they leave alone."""

import numpy as np
import pytest

from timecycle.ui import assist
from timecycle.ui.assist import Hints, Stroke, segment

pytest.importorskip("cv2")

SIZE = 160
BOX = (30, 30, 130, 130)


def shared_colours() -> tuple[np.ndarray, np.ndarray]:
    """A grey object on a lighter ground, with a block beside it of the object's own grey, inside the box."""
    noise = np.random.default_rng(0).normal(0, 6, (SIZE, SIZE, 3))
    image = np.full((SIZE, SIZE, 3), 150.0) + noise
    mask = np.zeros((SIZE, SIZE), bool)
    mask[40:120, 40:95] = True
    image[mask] -= 60
    image[50:110, 100:128] -= 60
    return image.clip(0, 255).astype(np.uint8), mask


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    return float((a & b).sum() / (a | b).sum())


def whole(image: np.ndarray, hints: Hints) -> np.ndarray:
    x0, y0, x1, y1 = hints.region(*image.shape[:2])
    mask = np.zeros(image.shape[:2], bool)
    mask[y0:y1, x0:x1] = segment(np.ascontiguousarray(image[y0:y1, x0:x1]), hints, (x0, y0))
    return mask


def test_a_stroke_outside_on_shared_colours_keeps_the_object():
    image, truth = shared_colours()
    before = whole(image, Hints(BOX, [], []))
    assert before[60:100, 105:120].mean() > 0.9  # the block has the object's colours
    after = whole(image, Hints(BOX, [], [Stroke([(114, 55), (114, 105)], 8)]))
    assert not after[60:100, 112:116].any()
    assert overlap(after, truth) > max(overlap(before, truth), 0.9)


def test_a_stroke_inside_on_shared_colours_keeps_the_object():
    """A spot of the object has the colours of the ground: the stroke says so, not that all else is outside."""
    image, truth = shared_colours()
    image[100:118, 45:90] = image[2:20, 2:47]
    before = overlap(whole(image, Hints(BOX, [], [])), truth)
    stroked = Hints(BOX, [Stroke([(50, 109), (85, 109)], 8)], [])
    assert overlap(whole(image, stroked), truth) > before


def test_a_stroke_changes_nothing_far_from_it():
    image, _ = shared_colours()
    before = whole(image, Hints(BOX, [], []))
    after = whole(image, Hints(BOX, [], [Stroke([(114, 55), (114, 70)], 8)]))
    assert np.array_equal(before[:, :80], after[:, :80])


def test_the_result_does_not_depend_on_what_was_asked_before():
    image, _ = shared_colours()
    first, second = Stroke([(114, 55), (114, 105)], 8, 0), Stroke([(60, 60), (60, 100)], 8, 1)
    hints = [Hints(BOX, [], []), Hints(BOX, [], [first]), Hints(BOX, [second], [first])]
    step_by_step = [whole(image, one) for one in hints]
    assist._masks.clear()
    assert np.array_equal(whole(image, hints[2]), step_by_step[2])
    assert len(assist._masks) == 3


def test_strokes_alone_grow_with_their_region():
    image, truth = shared_colours()
    first, second = Stroke([(50, 50), (55, 60)], 8, 0), Stroke([(70, 80), (80, 110)], 8, 1)
    one, two = whole(image, Hints(None, [first], [])), whole(image, Hints(None, [first, second], []))
    assert two[80:110, 74:76].any()
    assert (one & ~two).sum() == 0  # a stroke inside takes nothing away
    assert (two & truth).sum() >= (one & truth).sum()
