"""Shapes of CVAT that are none are refused with a message."""

import numpy as np
import pytest

from timecycle.errors import LabelError
from timecycle.integrations.cvat.shapes import begin

IMAGE = np.zeros((20, 30, 3), np.uint8)


@pytest.mark.parametrize("kind", ["polygon", "points", "rectangle"])
@pytest.mark.parametrize("points", [[], [1.0], [1.0, 2.0, 3.0], [1.0, 2.0, float("nan"), 4.0], [1, 2, 3, float("inf")]])
def test_coordinates_that_are_none_are_refused(kind, points):
    with pytest.raises(LabelError, match=f"the {kind} has no valid coordinates; draw it again"):
        begin(kind, points, IMAGE)


def test_a_rectangle_has_four_numbers():
    with pytest.raises(LabelError, match="the rectangle has no valid coordinates"):
        begin("rectangle", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], IMAGE)


def test_a_polygon_outside_of_the_frame_is_refused():
    with pytest.raises(LabelError, match="covers no pixel"):
        begin("polygon", [100.0, 100.0, 110.0, 100.0, 110.0, 110.0], IMAGE)
