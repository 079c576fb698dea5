"""Laws of mean, recall and decay."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.errors import LabelError
from timecycle.evaluation.metrics.summary import summarise

some = settings(deadline=None, max_examples=30)

curves = st.lists(st.floats(0, 1), min_size=1, max_size=40).map(np.array)


@some
@given(st.floats(0, 1), st.integers(1, 40))
def test_a_constant_does_not_decay(value, frames):
    summary = summarise(np.full(frames, value))
    assert summary.mean == pytest.approx(value)
    assert summary.recall == (value > 0.5)
    assert summary.decay == pytest.approx(0)


@some
@given(curves)
def test_backwards_decay_changes_its_sign_where_quarters_mirror(values):
    if len(values) % 4 == 1:
        assert summarise(values[::-1]).decay == pytest.approx(-summarise(values).decay)


@pytest.mark.parametrize(
    ("values", "decay"),
    [
        ([0.7], 0),
        ([1.0, 0.0], 1),  # borders 0 0 1 1 1: a quarter of one frame each
        ([1.0, 0.5, 0.0], 0.75 - 0.0),  # borders 0 1 1 2 2: halves go up, so the first quarter is longer
        ([1.0, 0.8, 0.4, 0.2], 0.9 - 0.3),  # borders 0 1 2 2 3: two frames each
        ([1.0, 1.0, 0.5, 0.0, 0.0], 1),
        ([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 6),  # 9 8 7 and 3 2 1: both borders belong
    ],
)
def test_quarters_include_both_borders(values, decay):
    assert summarise(np.array(values)).decay == pytest.approx(decay)


def test_exactly_one_half_is_a_miss():
    assert summarise(np.array([0.5, 0.5, 0.500001, 1.0])).recall == 0.5


def test_long_sequences_have_the_same_quarters():
    """With indices of 8 bits the last quarter of 1001 frames would start before the first one ends."""
    values = np.linspace(1, 0, 1001)
    assert summarise(values).decay == pytest.approx(values[:251].mean() - values[750:].mean())


def test_a_frame_without_score_is_a_miss_but_not_a_zero():
    summary = summarise(np.array([1.0, np.nan, 1.0, 1.0]))
    assert summary.mean == 1
    assert summary.recall == 0.75
    assert np.isnan(summarise(np.array([np.nan])).mean)


def test_no_frames_are_refused():
    with pytest.raises(LabelError, match="there is no frame to summarise; score at least one frame"):
        summarise(np.array([]))
