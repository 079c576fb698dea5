"""Dead leaves: clips that depend on their number alone, without holes, in which things move as one."""

import numpy as np
import pytest

from timecycle.data.augment.dead_leaves import DeadLeavesConfig, make_dead_leaves
from timecycle.errors import SettingsError

SMALL = DeadLeavesConfig(frames=3, side_px=48, leaves=20, noise=0)


def test_a_clip_depends_on_settings_and_number_alone():
    first = make_dead_leaves(SMALL, 3)
    assert np.array_equal(first, make_dead_leaves(SMALL, 3))
    assert not np.array_equal(first, make_dead_leaves(SMALL, 4))


def test_nothing_is_left_unpainted():
    """The ground alone fills the image: the same clip without leaves has no black pixel that a palette lacks."""
    bright = [make_dead_leaves(DeadLeavesConfig(frames=2, side_px=48, leaves=1, noise=0, light=0), n) for n in range(8)]
    corners = np.stack([clip[:, [0, 0, -1, -1], [0, -1, 0, -1]] for clip in bright])
    assert (corners.max(axis=-1) > 8).mean() > 0.9


def test_without_motion_all_frames_are_equal():
    still = DeadLeavesConfig(
        frames=3, side_px=48, leaves=20, way=0, turn_degrees=0, growth=1, swing=0, pan=0, light=0, noise=0
    )
    clip = make_dead_leaves(still, 0)
    assert (clip == clip[:1]).all()
    assert not np.array_equal(clip, make_dead_leaves(SMALL, 0))


def test_a_larger_image_shows_the_same_scene():
    small, large = (make_dead_leaves(DeadLeavesConfig(frames=1, side_px=px, noise=0), 5)[0] for px in (60, 240))
    shrunk = large.reshape(60, 4, 60, 4, 3).mean(axis=(1, 3))
    assert np.abs(shrunk - small).mean() < 12


def test_invalid_settings_are_refused():
    with pytest.raises(SettingsError, match="radius is"):
        DeadLeavesConfig(radius=(0.5, 0.1))
    with pytest.raises(SettingsError, match="bodies is 0"):
        DeadLeavesConfig(bodies=0)
