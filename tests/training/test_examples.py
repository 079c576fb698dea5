"""Training examples of walks: their views, and what the settings change of them."""

import numpy as np

from timecycle.config import train_config
from timecycle.data.augment.clips import Clip, ClipChoice
from timecycle.training.corpus import Examples


class NoiseClips:
    """Clips of coloured noise."""

    def __len__(self):
        return 8

    def read(self, epoch, position, rng):
        frames = np.random.default_rng([epoch, position]).integers(0, 256, (2, 168, 168, 3), dtype=np.uint8)
        return Clip(frames, f"{position}.mp4", ClipChoice((0, 1), 176, 0, 0, False))

    def nearby(self, position, rng):
        return int(rng.integers(len(self)))


def example(position=0, *settings):
    return Examples(NoiseClips(), train_config("bundled", settings))(0, position)


def is_grey(frames):
    return bool((frames == frames[..., :1]).all())


def test_the_second_view_lacks_the_last_frame_that_no_walk_visits():
    one = example()
    assert one.forward.shape == (2, 128, 128, 3)
    assert one.backward.shape == (1, 128, 128, 3)


def test_a_share_of_the_clips_is_grey_in_both_views_with_all_that_is_pasted():
    assert not any(is_grey(view) for n in range(6) for view in (example(n).forward, example(n).backward))
    assert all(
        is_grey(view)
        for n in range(6)
        for one in [example(n, "views.grey_clips=1")]
        for view in (one.forward, one.backward)
    )
    halves = [example(n, "views.grey_clips=0.5") for n in range(24)]
    assert 4 < sum(is_grey(one.forward) for one in halves) < 20
    assert all(is_grey(one.forward) == is_grey(one.backward) for one in halves)


def test_grey_clips_change_colours_alone():
    coloured, grey = example(3), example(3, "views.grey_clips=1")
    brightness = coloured.forward[0] @ [0.299, 0.587, 0.114]
    assert np.abs(grey.forward[0, ..., 0] - brightness).max() <= 1


def test_a_varied_clip_is_turned_and_recoloured_alike_in_both_views():
    same_views = ("views.rotation_degrees=0", "views.scale=1,1", "views.shift=0", "copy_paste.most=0")
    for n in range(8):
        plain, varied = (
            example(n, *same_views, *settings) for settings in ((), ("variety.turns=true", "variety.colours=1"))
        )
        np.testing.assert_array_equal(varied.forward[0], varied.backward[0])
        assert not np.array_equal(varied.forward, plain.forward)
