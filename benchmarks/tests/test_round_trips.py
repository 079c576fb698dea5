"""Round trips: the region whose mask is propagated is one that moves unlike the camera."""

import numpy as np
import pytest

from round_trips import moving_region, paired


def scene(shift: int, camera: int = 0) -> np.ndarray:
    """Return a textured square, moved by so many pixels, before another texture, moved with the camera."""
    rng = np.random.default_rng(0)
    texture = np.kron(rng.integers(60, 110, (60, 80, 3)), np.ones((4, 4, 1))).astype(np.uint8)
    image = np.roll(texture, camera, axis=1)[:160, :240].copy()
    image[50:100, 80 + shift : 140 + shift] = np.kron(rng.integers(150, 255, (25, 30, 3)), np.ones((2, 2, 1)))
    return image


@pytest.mark.parametrize("camera", [0, 5])
def test_the_region_is_what_moves_unlike_the_camera(camera):
    mask = moving_region(scene(0), scene(8, camera))
    assert mask is not None
    square = np.zeros(mask.shape, bool)
    square[50:100, 80:140] = True
    assert (mask & square).sum() / (mask | square).sum() > 0.5


def test_a_static_scene_has_no_region():
    assert moving_region(scene(0), scene(0)) is None


def test_paired_differences_have_a_standard_error():
    difference, error = paired({"a": 0.5, "b": 0.7, "c": 0.9}, {"a": 0.4, "b": 0.5, "c": 0.6})
    assert difference == pytest.approx(0.2)
    assert error == pytest.approx(0.1 / 3**0.5)
