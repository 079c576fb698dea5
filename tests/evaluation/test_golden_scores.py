"""Scores do not change unnoticed with interpolation, labels, windows or encoders."""

import json

import pytest
from golden import FIXTURE, cases, scores, short_davis

# Processors round differently, and a pixel on a boundary may then fall on either side; a shift of half a pixel, a cell
# or a frame changes scores by several times as much.
TOLERANCE = 2e-3


@pytest.mark.data
@pytest.mark.parametrize("name", cases())
def test_scores_equal_the_golden_scores(name, data, tmp_path):
    expected = json.loads(FIXTURE.read_text())[name]
    actual = scores(short_davis(data / "davis2016", tmp_path / "davis"), *cases()[name], tmp_path / "out")
    for sequence, values in expected.items():
        assert actual[sequence] == pytest.approx(values, abs=TOLERANCE), sequence
