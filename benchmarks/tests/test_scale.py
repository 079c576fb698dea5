"""Memory does not grow with the length of a video, and time hardly with the number of objects."""

import sys

import pytest

from scale import footprint, object_ratio


@pytest.mark.slow  # 4,200 frames, so that growth would show
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_and_open_files_do_not_depend_on_length():
    short, long = footprint(200, 64, 96), footprint(4000, 64, 96)
    assert long.peak_rss_mib < 1.1 * short.peak_rss_mib
    assert abs(long.open_files - short.open_files) <= 1


@pytest.mark.slow  # real size, 854x480 pixels, where the cost of labels would show
def test_a_hundred_objects_cost_little_more_than_one():
    assert object_ratio(8)["ratio_100_over_1"] < 1.3
