"""Clips that are turned and recoloured as a whole."""

import numpy as np
import pytest

from timecycle.data.augment.variety import VarietyConfig, vary
from timecycle.errors import SettingsError

FRAMES = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)


def varied(seed, **settings):
    return vary(FRAMES, VarietyConfig(**settings), np.random.default_rng(seed))


def test_without_variety_clips_are_as_filmed_and_nothing_is_drawn():
    rng = np.random.default_rng(0)
    assert vary(FRAMES, VarietyConfig(), rng) is FRAMES
    assert rng.integers(2**32) == np.random.default_rng(0).integers(2**32)


def test_turns_are_all_quarters_of_a_circle_and_the_same_in_all_frames():
    quarters = [np.stack([np.rot90(frame, count) for frame in FRAMES]) for count in range(4)]
    found = [
        [np.array_equal(varied(seed, turns=True), turned) for turned in quarters].index(True) for seed in range(40)
    ]
    assert set(found) == {0, 1, 2, 3}


def test_colours_change_by_one_map_for_all_frames():
    """Pixels of equal colour stay equal, wherever and whenever they are."""
    equal = FRAMES.copy()
    equal[2] = equal[0][::-1]
    for seed in range(10):
        changed = vary(equal, VarietyConfig(colours=1), np.random.default_rng(seed))
        np.testing.assert_array_equal(changed[2], changed[0][::-1])
        assert not np.array_equal(changed, equal)


def test_the_share_is_how_far_colours_go():
    def distance(colours):
        return np.mean([np.abs(varied(seed, colours=colours).astype(int) - FRAMES).mean() for seed in range(20)])

    assert 0 < distance(0.1) < distance(0.5) < distance(1.0)
    with pytest.raises(SettingsError, match=r"variety.colours is 2\b"):
        VarietyConfig(colours=2)
