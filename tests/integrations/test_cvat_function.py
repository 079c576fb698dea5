"""The tracking function for CVAT, run by CVAT's own command line, agent and SDK."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clips import small_world
from cvat_server import CvatServer, serving
from oracle import iou
from timecycle.errors import LabelError, SettingsError
from timecycle.formats.polygons import fill
from timecycle.integrations import cvat
from timecycle.integrations.cvat.shapes import begin
from timecycle.labels import Keypoints, Masks

sdk_masks = pytest.importorskip("cvat_sdk.masks")
cvataa = pytest.importorskip("cvat_sdk.auto_annotation")
pytest.importorskip("cvat_cli")
pytest.importorskip("cv2")

FRAMES, HEIGHT, WIDTH = 4, 120, 160
FUNCTION = ("--function-module", "timecycle.integrations.cvat", "-p", "encoder=str:rgb", "-p", "preset=str:fast")


@pytest.fixture(scope="module")
def world():
    return small_world(frames=24, height_px=HEIGHT, width_px=WIDTH)  # of which the first few are tracked


def box_of(region):
    rows, columns = (np.flatnonzero(region.any(axis=axis)) for axis in (1, 0))
    return [float(columns[0]), float(rows[0]), float(columns[-1]) + 1, float(rows[-1]) + 1]


def filled(box):
    x0, y0, x1, y1 = box
    return fill(np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]]), (HEIGHT, WIDTH))


def centre_of(region):
    ys, xs = np.nonzero(region)
    return [float(xs.mean()) + 0.5, float(ys.mean()) + 0.5]


def cvat_cli(server, *words):
    home = {"PYTHONPATH": str(Path(cvat.__file__).parents[3]), "CVAT_ACCESS_TOKEN": "token"}
    command = [sys.executable, "-m", "cvat_cli", "--server-host", server.url, "function", *words]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | home)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.mark.slow  # three processes load torch
def test_cvats_agent_tracks_shapes_of_every_type(world):
    region = world.mask(0) == 1
    shapes = [
        {"type": "mask", "points": sdk_masks.encode_mask(region)},
        {"type": "polygon", "points": [number for corner in _corners(box_of(region)) for number in corner]},
        {"type": "rectangle", "points": box_of(region)},
        {"type": "points", "points": centre_of(region) + centre_of(world.mask(0) == 2)},
    ]
    with serving(CvatServer([world.frame(t) for t in range(FRAMES)], shapes)) as server:
        assert cvat_cli(server, "create-native", "timecycle", *FUNCTION) == "7"
        cvat_cli(server, "run-agent", "7", "--burst", *FUNCTION)
    assert (server.function["kind"], server.failures) == ("tracker", [])
    assert server.function["supported_shape_types"] == ["mask", "points", "polygon", "rectangle"]
    assert sorted(server.tracked) == list(range(1, FRAMES))
    for frame, found in server.tracked.items():
        assert [shape["type"] for shape in found] == [shape["type"] for shape in shapes]
        mask, polygon, rectangle, points = (shape["points"] for shape in found)
        expected = world.mask(frame) == 1
        assert iou(sdk_masks.decode_mask(mask, image_width=WIDTH, image_height=HEIGHT), expected) > 0.8
        drawn = fill(np.array(polygon).reshape(-1, 2), (HEIGHT, WIDTH))
        assert iou(drawn, filled(box_of(expected))) > 0.6
        assert iou(filled(rectangle), filled(box_of(expected))) > 0.7
        assert np.hypot(*(np.array(points[:2]) - centre_of(expected))) < 10  # little more than a feature cell


def _corners(box):
    x0, y0, x1, y1 = box
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


@pytest.mark.slow  # two processes load torch
def test_cvat_is_told_why_a_shape_cannot_be_tracked(world):
    shapes = [{"type": "polygon", "points": [1.1, 1.1, 1.2, 1.1, 1.2, 1.2]}]
    with serving(CvatServer([world.frame(0)], shapes)) as server:
        server.function = {"id": 7, "provider": "native", "kind": "tracker", "supported_shape_types": ["polygon"]}
        cvat_cli(server, "run-agent", "7", "--burst", *FUNCTION)
    assert len(server.failures) == 1
    assert "covers no pixel of the frame; draw it larger" in server.failures[0]


def test_only_the_chosen_types_are_offered():
    assert cvat.create(encoder="rgb", shapes="mask, polygon").spec.supported_shape_types == {"mask", "polygon"}
    with pytest.raises(SettingsError, match="'ellipse' cannot be tracked; choose from mask"):
        cvat.create(encoder="rgb", shapes="ellipse")


def test_shapes_come_back_as_they_were_drawn(world):
    """Labels that equal the annotation give the shape that was drawn."""
    image, region = world.frame(0), world.mask(0) == 1
    mask = [float(number) for number in sdk_masks.encode_mask(region)]
    box = [box_of(region)[0] - 3.5, *box_of(region)[1:]]
    square = [number for corner in _corners([20.0, 30.0, 50.0, 44.0]) for number in corner]
    for kind, points in (("mask", mask), ("rectangle", box), ("points", [3.5, 4.5, 30.25, 11.0])):
        labels, to_shape = begin(kind, points, image)
        assert to_shape(labels) == pytest.approx(points), kind
    labels, to_shape = begin("polygon", square, image)
    assert np.array_equal(fill(np.array(to_shape(labels)).reshape(-1, 2), (HEIGHT, WIDTH)), labels.ids > 0)


def test_a_polygon_follows_the_largest_part_without_its_holes(world):
    _, to_shape = begin("polygon", [0, 0, 9, 0, 9, 9], world.frame(0))
    region = np.zeros((HEIGHT, WIDTH), bool)
    region[20:60, 30:90] = True
    expected = region.copy()
    region[30:40, 40:50] = False
    region[80:85, 5:10] = True
    drawn = to_shape(Masks.of(region))
    assert np.array_equal(fill(np.array(drawn).reshape(-1, 2), (HEIGHT, WIDTH)), expected)
    assert len(drawn) == 8


def test_specks_do_not_stretch_a_rectangle(world):
    region = world.mask(0) == 1
    labels, to_shape = begin("rectangle", box_of(region), world.frame(0))
    specks = labels.ids > 0
    specks[0, 0] = specks[-1, -1] = True
    assert to_shape(Masks.of(specks)) == pytest.approx(to_shape(labels))


def test_objects_that_left_the_frame_give_no_shape(world):
    nothing = Masks.of(np.zeros((HEIGHT, WIDTH), bool))
    region = world.mask(0) == 1
    for kind, points in (("mask", sdk_masks.encode_mask(region)), ("rectangle", box_of(region))):
        assert begin(kind, points, world.frame(0))[1](nothing) is None
    _, to_shape = begin("points", [3.5, 4.5, 9.5, 9.5], world.frame(0))
    lost = np.full((2, 2), np.nan, np.float32)
    names = ("point 0", "point 1")
    assert to_shape(Keypoints(names, lost, np.zeros(2, bool))) is None
    one_left = np.array([[7, 8], [np.nan, np.nan]], np.float32)
    assert to_shape(Keypoints(names, one_left, np.array([True, False]))) == [7.5, 8.5, 9.5, 9.5]


def test_damaged_masks_are_refused(world):
    with pytest.raises(LabelError, match="the mask is damaged"):
        begin("mask", [3, 4, 0, 0, 2, 2], world.frame(0))


@pytest.mark.parametrize(
    ("kind", "points"),
    [
        ("mask", [2**33, 4, 0, 0, 2, 2]),  # would fill the memory
        ("polygon", [1e300, 4, 30, 5, 28, 25]),
        ("rectangle", [4, 4, 30]),
        ("points", [4]),
    ],
)
def test_coordinates_that_are_no_coordinates_are_refused(world, kind, points):
    with pytest.raises(LabelError, match=f"the {kind} has no valid coordinates"):
        begin(kind, points, world.frame(0))
