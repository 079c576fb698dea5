"""Measurements of regions obey the laws of geometry, and are those of scikit-image."""

import math
from dataclasses import asdict, astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timecycle.labels.geometry import Region, measure_regions


def shape(seed: int, side_px: int = 24) -> np.ndarray:
    """A random blob with holes, away from the borders."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((side_px, side_px), np.uint16)
    y, x = np.mgrid[:side_px, :side_px]
    for _ in range(3):
        cx, cy, a, b = rng.uniform((8, 8, 2, 2), (16, 16, 6, 6))
        ids[((x - cx) / a) ** 2 + ((y - cy) / b) ** 2 <= 1] = 7
    ids[rng.random(ids.shape) < 0.1] = 0
    return ids


def picture(ids: np.ndarray, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*ids.shape, 3), dtype=np.uint8)


def measured(ids: np.ndarray, image: np.ndarray | None = None) -> Region:
    (region,) = measure_regions(ids, picture(ids) if image is None else image).values()
    return region


def test_a_rectangle_has_its_own_sides():
    ids = np.zeros((20, 30), np.uint16)
    ids[3:6, 2:12] = 300
    region = measured(ids, np.full((20, 30, 3), 90, np.uint8))
    assert astuple(region)[:7] == (30, 6.5, 4.0, 2, 3, 10, 3)
    assert region.major_axis_px == pytest.approx(4 * math.sqrt((10**2 - 1) / 12))
    assert region.minor_axis_px == pytest.approx(4 * math.sqrt((3**2 - 1) / 12))
    assert (region.angle_degrees, region.mean_intensity) == (0.0, 90.0)


def test_a_single_pixel_has_no_axes_and_no_angle():
    ids = np.zeros((4, 4), np.uint16)
    ids[1, 2] = 1
    region = measured(ids)
    assert (region.major_axis_px, region.minor_axis_px, region.angle_degrees) == (0, 0, None)


def test_nothing_is_measured_on_an_empty_frame():
    assert measure_regions(np.zeros((4, 5), np.uint16), np.zeros((4, 5, 3), np.uint8)) == {}


@given(seed=st.integers(0, 1000), dx=st.integers(0, 40), dy=st.integers(0, 40))
def test_a_moved_region_has_the_same_measurements_at_another_place(seed, dx, dy):
    ids = shape(seed)
    image = picture(ids)
    there, moved = np.zeros((64, 64), np.uint16), np.zeros((64, 64, 3), np.uint8)
    there[dy : dy + 24, dx : dx + 24] = ids
    moved[dy : dy + 24, dx : dx + 24] = image
    before, after = asdict(measured(ids, image)), asdict(measured(there, moved))
    for name, shift in (("x_px", dx), ("left_px", dx), ("y_px", dy), ("top_px", dy)):
        assert after.pop(name) == pytest.approx(before.pop(name) + shift, abs=1e-9)
    assert after == before


@given(seed=st.integers(0, 1000))
def test_a_quarter_turn_swaps_the_sides_and_turns_the_angle(seed):
    ids = shape(seed)
    image = picture(ids)
    one, turned = measured(ids, image), measured(np.rot90(ids).copy(), np.rot90(image).copy())
    assert (turned.width_px, turned.height_px) == (one.height_px, one.width_px)
    assert turned.x_px == pytest.approx(one.y_px)
    assert turned.y_px == pytest.approx(23 - one.x_px)
    assert turned.major_axis_px == pytest.approx(one.major_axis_px)
    assert turned.minor_axis_px == pytest.approx(one.minor_axis_px)
    assert turned.mean_intensity == one.mean_intensity
    assert (turned.angle_degrees - one.angle_degrees) % 180 == pytest.approx(90)


@given(seed=st.integers(0, 1000), factor=st.integers(2, 5))
def test_an_enlarged_region_has_enlarged_measurements(seed, factor):
    ids = shape(seed)
    image = picture(ids)
    one = measured(ids, image)
    large = measured(ids.repeat(factor, 0).repeat(factor, 1), image.repeat(factor, 0).repeat(factor, 1))
    assert large.area_px == factor**2 * one.area_px
    assert large.mean_intensity == pytest.approx(one.mean_intensity)
    assert large.x_px + 0.5 == pytest.approx(factor * (one.x_px + 0.5))

    def variance(axis_px: float) -> float:  # of an area: a pixel is a square, whose own variance is 1/12
        return (axis_px / 4) ** 2 + 1 / 12

    for large_px, px in ((large.major_axis_px, one.major_axis_px), (large.minor_axis_px, one.minor_axis_px)):
        assert variance(large_px) == pytest.approx(factor**2 * variance(px))


@given(seed=st.integers(0, 1000))
def test_the_union_of_disjoint_parts_adds_their_areas_and_averages_the_rest(seed):
    ids, image = shape(seed), picture(shape(seed))
    split = ids.copy()
    split[:, 12:][split[:, 12:] > 0] = 900
    parts, whole = measure_regions(split, image), measured(ids, image)
    area = sum(part.area_px for part in parts.values())
    assert area == whole.area_px
    for name in ("x_px", "y_px", "mean_intensity"):
        mean = sum(part.area_px * getattr(part, name) for part in parts.values()) / area
        assert mean == pytest.approx(getattr(whole, name))
    assert min(part.left_px for part in parts.values()) == whole.left_px
    assert max(part.left_px + part.width_px for part in parts.values()) == whole.left_px + whole.width_px


@given(seed=st.integers(0, 1000))
def test_measurements_are_those_of_scikit_image(seed):
    measure = pytest.importorskip("skimage.measure")
    ids = shape(seed).astype(int)
    ids[2:5, 1:4] = 300
    image = picture(ids)
    ours = measure_regions(ids, image)
    for theirs in measure.regionprops(ids, intensity_image=image):
        region = ours[theirs.label]
        top, left, bottom, right = theirs.bbox
        assert (region.left_px, region.top_px) == (left, top)
        assert (region.width_px, region.height_px) == (right - left, bottom - top)
        assert region.area_px == theirs.area
        assert (region.y_px, region.x_px) == pytest.approx(theirs.centroid)
        assert region.major_axis_px == pytest.approx(theirs.axis_major_length)
        assert region.minor_axis_px == pytest.approx(theirs.axis_minor_length)
        assert region.mean_intensity == pytest.approx(np.mean(theirs.intensity_mean))
        if region.angle_degrees is not None:  # theirs is measured from the y axis
            between = math.radians(90 - region.angle_degrees) - theirs.orientation
            assert math.sin(between) == pytest.approx(0, abs=1e-6)
