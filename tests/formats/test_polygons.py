"""Outlines give back their region exactly, with holes and parts, and are filled as pycocotools and OpenCV fill them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from label_samples import mask
from timecycle.formats.polygons import fill, outline


@given(arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_an_outline_encloses_its_region_and_nothing_else(region):
    if region.any():
        assert np.array_equal(fill(outline(region), region.shape), region)


def test_a_rectangle_has_four_corners():
    region = np.zeros((20, 30), bool)
    region[3:9, 4:20] = True
    assert sorted(outline(region).tolist()) == [[4, 3], [4, 9], [20, 3], [20, 9]]


def test_polygons_beyond_the_image_are_cut_off():
    square = np.array([(-1e5, -1e5), (1e5, -1e5), (1e5, 3), (-1e5, 3)])
    assert fill(square, (6, 8)).sum() == 3 * 8


@given(st.lists(st.tuples(st.floats(1, 30), st.floats(1, 20)), min_size=3, max_size=3))
def test_triangles_are_nearly_those_of_pycocotools(corners):
    tools = pytest.importorskip("pycocotools.mask")
    flat = [value for corner in corners for value in corner]
    theirs = tools.decode(tools.merge(tools.frPyObjects([flat], 22, 32))).astype(bool)
    x, y = np.array(corners).T
    perimeter_px = np.hypot(x - np.roll(x, 1), y - np.roll(y, 1)).sum()
    assert (fill(np.array(corners), (22, 32)) ^ theirs).sum() <= perimeter_px + 3


def test_trainers_that_fill_with_opencv_get_the_hole_and_both_parts():
    cv2 = pytest.importorskip("cv2")
    region = np.repeat(np.repeat(mask(2).ids == 1, 8, 0), 8, 1)  # OpenCV fills the border pixels too: make them few
    canvas = np.zeros(region.shape, np.uint8)
    cv2.fillPoly(canvas, [outline(region).astype(np.int32)], 1)
    filled = canvas.astype(bool)
    assert (filled & region).sum() / (filled | region).sum() > 0.9
    assert cv2.connectedComponents((1 - canvas).astype(np.uint8))[0] - 1 >= 2  # the surroundings and the hole
