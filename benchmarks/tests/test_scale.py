"""Memory does not grow with the length of a video, and time hardly with the number of objects."""

import sys

import pytest

from scale import Sample, footprint, growth, object_ratio


def test_growth_is_found_after_a_frame_and_not_before_it():
    """Memory rises while a run begins; a leak shows later, as a single file that stays open does."""
    begins = [Sample(frame, 200 + frame / 10, 9) for frame in range(0, 1000, 50)]
    steady = [Sample(frame, 300, 9) for frame in range(1000, 5000, 50)]
    sound = growth([*begins, *steady], after=1000)
    assert sound["growth"] == pytest.approx(0, abs=0.01)
    assert sound["open_files_later"] == [9]
    leaks = [Sample(one.frame, 300 + (one.frame - 1000) / 100, 9 + one.frame // 2500) for one in steady]
    leaking = growth([*begins, *leaks], after=1000)
    assert leaking["growth"] == pytest.approx(0.13, abs=0.01)
    assert (leaking["open_files_around"], leaking["open_files_later"]) == ([9], [9, 10])


@pytest.mark.slow  # 4,200 frames, so that growth would show
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_and_open_files_do_not_depend_on_length():
    short, long = footprint(200, 64, 96), footprint(4000, 64, 96)
    assert long.peak_rss_mib < 1.1 * short.peak_rss_mib
    assert abs(long.open_files - short.open_files) <= 1


@pytest.mark.slow  # real size, 854x480 pixels, where the cost of labels would show
def test_a_hundred_objects_cost_little_more_than_one():
    assert object_ratio(8)["ratio_100_over_1"] < 1.3
