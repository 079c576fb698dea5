"""No change to interpolation, labels, windows or encoders moves a score unseen."""

import json

import pytest
from golden import FIXTURE, METHODS, scores, short_davis

# Processors round differently, and a pixel on an outline may then fall to either side; a shift of half a pixel, a cell
# or a frame moves scores by several times as much.
TOLERANCE = 2e-3


@pytest.mark.data
@pytest.mark.parametrize("method", METHODS)
def test_scores_are_what_they_were(method, data, tmp_path):
    expected = json.loads(FIXTURE.read_text())[method]
    found = scores(short_davis(data / "davis2016", tmp_path / "davis"), method, tmp_path / "out")
    for sequence, values in expected.items():
        assert found[sequence] == pytest.approx(values, abs=TOLERANCE), sequence
