"""Masks of a strong method: the object in a box is cut out, and agreement with masks is J&F of propagation."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from strong_masks import _BOXES, agreement, object_in
from timecycle.model.registry import load_encoder


def disc(shift: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a textured disc before another texture, and its mask."""
    rng = np.random.default_rng(0)
    image = np.kron(rng.integers(60, 110, (30, 40, 3)), np.ones((4, 4, 1))).astype(np.uint8)
    y, x = np.mgrid[:120, :160]
    mask = (y - 60) ** 2 + (x - 70 - shift) ** 2 < 30**2
    texture = np.roll(np.kron(rng.integers(150, 255, (30, 40, 3)), np.ones((4, 4, 1))), shift, axis=1)
    image[mask] = texture[mask]
    return image, mask


def test_the_object_in_a_box_is_cut_out():
    image, mask = disc()
    found = object_in(image, (38, 28, 102, 92))
    assert (found & mask).sum() / (found | mask).sum() > 0.9
    assert not found[:20].any()


@pytest.mark.parametrize(("moved", "least", "most"), [(0, 85, 100), (40, 0, 70)])
def test_agreement_is_high_where_masks_follow_the_object(tmp_path: Path, moved, least, most):
    for index in range(4):
        image, mask = disc(2 * index)
        Image.fromarray(image).save(tmp_path / f"{index:05d}.png")
        wrong = np.roll(mask, moved if index else 0, axis=1)
        Image.fromarray(wrong.astype(np.uint8)).save(tmp_path / f"{index:05d}_mask.png")
    assert least < agreement(tmp_path, load_encoder()) <= most


def test_every_box_has_an_area():
    for left, top, right, bottom in tomllib.loads(_BOXES.read_text(encoding="utf-8")).values():
        assert 0 <= left < right
        assert 0 <= top < bottom
