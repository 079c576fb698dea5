"""Coordinates of a static or shifted frame are exact up to the border."""

import numpy as np
import pytest
import torch

from timecycle.errors import LabelError
from timecycle.grid import grid_over
from timecycle.labels.coordinates import Coordinates, CoordinateSpace

grids = pytest.mark.parametrize(
    "grid",
    [
        grid_over(65, 97, cells=(9, 13), stride_px=8, first_px=0),
        grid_over(61, 90, cells=(8, 12), stride_px=8, first_px=0),
        grid_over(61, 90, cells=(8, 12), stride_px=8, first_px=0).rescaled(120, 201),
        grid_over(7, 5, cells=(1, 1), stride_px=8, first_px=0),
        grid_over(56, 70, cells=(4, 5), stride_px=14, first_px=6.5),
    ],
)


def own_coordinates(grid):
    return Coordinates.of_image(grid.y.pixels, grid.x.pixels)


def test_pixels_of_the_annotated_frame_have_their_own_position():
    xy = Coordinates.of_image(5, 9).xy
    assert xy[3, 7].tolist() == [7, 3]
    assert Coordinates(xy).size() == (5, 9)


@grids
def test_annotated_frame_is_decoded_exactly(grid):
    space = CoordinateSpace()
    values = space.encode(own_coordinates(grid), grid)
    assert torch.equal(values, grid.centres())
    assert np.array_equal(space.decode(values, grid).xy, own_coordinates(grid).xy)


@grids
def test_shifted_coordinates_are_decoded_exactly_up_to_the_border(grid):
    shifted = Coordinates(own_coordinates(grid).xy + np.array([12.5, -7.25], np.float32))
    space = CoordinateSpace()
    assert np.allclose(space.decode(space.encode(shifted, grid), grid).xy, shifted.xy, atol=1e-3)


def test_scaled_coordinates_are_decoded_exactly_between_the_outer_cells():
    grid = grid_over(65, 97, cells=(9, 13), stride_px=8, first_px=0)
    scaled = Coordinates(own_coordinates(grid).xy * np.float32(1.1))
    space = CoordinateSpace()
    decoded = space.decode(space.encode(scaled, grid), grid).xy
    assert np.allclose(decoded[8:-8, 8:-8], scaled.xy[8:-8, 8:-8], atol=1e-3)


def test_coordinates_survive_a_file(tmp_path):
    xy = np.random.default_rng(0).normal(size=(4, 6, 2)).astype(np.float32)
    Coordinates(xy).write(tmp_path / "0.npy")
    assert np.array_equal(Coordinates.read(tmp_path / "0.npy").xy, xy)


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (np.zeros((4, 6), np.float32), r"its shape is \(4, 6\)"),
        (np.zeros((4, 6, 3), np.float32), r"its shape is \(4, 6, 3\)"),
        (np.full((4, 6, 2), np.nan, np.float32), "not finite"),
        (np.array([["a"]]), "not one array of numbers"),
        (np.array([{}], dtype=object), "Python objects"),
    ],
)
def test_array_of_other_shape_or_type_is_refused(tmp_path, array, problem):
    np.save(tmp_path / "0.npy", array, allow_pickle=True)
    with pytest.raises(LabelError, match=rf"cannot read .*0\.npy as coordinates: .*{problem}.*; give a float32 \.npy"):
        Coordinates.read(tmp_path / "0.npy")


@pytest.mark.parametrize("content", [b"", b"not an array"])
def test_file_without_an_array_is_refused(tmp_path, content):
    (tmp_path / "0.npy").write_bytes(content)
    with pytest.raises(LabelError, match=r"cannot read .*0\.npy as coordinates: .*; give a float32 \.npy"):
        Coordinates.read(tmp_path / "0.npy")


def test_annotated_coordinates_constrain_both_channels_and_are_restored():
    annotation, decoded = Coordinates.of_image(3, 4), Coordinates.of_image(3, 4)
    space = Coordinates.space([annotation])
    assert space.channels == 2
    assert space.annotated_channels(annotation).all()
    assert space.restore_annotated(annotation, decoded) is annotation
    for second in (lambda: space.extended(decoded), lambda: Coordinates.space([annotation, decoded])):
        with pytest.raises(LabelError, match="coordinates were given for more than one frame; give one frame"):
            second()
