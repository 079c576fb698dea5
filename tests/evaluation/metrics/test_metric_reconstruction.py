"""Laws of the L1 error of images."""

import numpy as np
import pytest

from timecycle.errors import LabelError
from timecycle.evaluation.metrics.reconstruction import L1, l1


def test_an_image_rebuilt_exactly_costs_nothing_and_black_for_white_costs_all():
    black, white = np.zeros((4, 5, 3), np.uint8), np.full((4, 5, 3), 255, np.uint8)
    assert l1(white, white) == L1(0, 0)
    assert l1(black, white) == l1(white, black) == L1(255, 765)


def test_one_channel_of_one_pixel():
    a, b = np.zeros((2, 2, 5, 3), np.uint8)
    b[0, 3, 2] = 200
    found = l1(a, b)
    assert found.mean_of_channels == pytest.approx(200 / 30)
    assert found.sum_of_channels == pytest.approx(200 / 10)


def test_the_sum_is_three_times_the_mean():
    a, b = np.random.default_rng(0).integers(0, 256, (2, 9, 8, 3)).astype(np.uint8)
    found = l1(a, b)
    assert found.sum_of_channels == pytest.approx(3 * found.mean_of_channels)
    steps = [abs(int(p) - int(q)) for p, q in zip(a.flat, b.flat, strict=True)]
    assert found.mean_of_channels == pytest.approx(sum(steps) / len(steps))


def test_another_size_is_refused():
    with pytest.raises(LabelError, match=r"the reconstruction has the shape \(4, 5, 3\) but the frame \(4, 4, 3\)"):
        l1(np.zeros((4, 5, 3), np.uint8), np.zeros((4, 4, 3), np.uint8))
