"""Articulated composites: exact masks of a body that swings its limbs, moves and is occluded, from settings alone."""

import numpy as np
import pytest

from timecycle.data.augment.articulated import ArticulatedConfig, make_articulated
from timecycle.errors import SettingsError

CONFIG = ArticulatedConfig(frames=6, side_px=64, limbs=(2, 3), noise=0, exposure=0, light=0)


def test_a_composite_is_a_function_of_settings_number_and_videos(videos, index):
    entries = index.entries
    frames, masks = make_articulated(videos, entries, CONFIG, 1)
    again, masks_again = make_articulated(videos, entries, CONFIG, 1)
    other, _ = make_articulated(videos, entries, CONFIG, 2)
    assert frames.shape == (6, 64, 64, 3)
    assert masks.shape == (6, 64, 64)
    assert np.array_equal(frames, again)
    assert np.array_equal(masks, masks_again)
    assert not np.array_equal(frames, other)


def test_the_body_is_visible_and_moves(videos, index):
    entries = index.entries
    _, masks = make_articulated(videos, entries, CONFIG, 0)
    assert masks[0].any()
    assert all((masks[t] != masks[t + 1]).any() for t in range(5))


def test_bodies_with_limbs_cover_more_than_those_without(videos, index):
    entries = index.entries
    still = {"way": 0.0, "growth": 1.0, "occluders": 0, "twins": 0.0}
    limbed, plain = (ArticulatedConfig(frames=6, side_px=64, limbs=limbs, **still) for limbs in ((4, 4), (0, 0)))
    area = [
        np.mean([make_articulated(videos, entries, config, number)[1].mean() for number in range(3)])
        for config in (limbed, plain)
    ]
    assert area[0] > area[1] * 1.1


def test_too_little_footage_is_refused(videos, index):
    entries = index.entries
    with pytest.raises(SettingsError, match=r"videos in .* have 500 frames and motion"):
        make_articulated(videos, entries, ArticulatedConfig(frames=500), 0)
