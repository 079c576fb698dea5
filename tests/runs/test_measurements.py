"""measurements.csv agrees with the labels of the run, whether they were propagated, resumed or corrected."""

import csv
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

from annotated_twice import spec_of
from clips import small_world
from timecycle.errors import OutputError, SettingsError
from timecycle.labels import Coordinates, Keypoints, Masks
from timecycle.propagation.settings import PropagateConfig
from timecycle.review.corrections import correct, undo
from timecycle.runs.folder import OutputFolder
from timecycle.runs.measurements import MeasurementConfig, Scale, parse_pairs, parse_scale
from timecycle.runs.opened import Run
from timecycle.runs.run import run

CONFIG = PropagateConfig(window_px=32, anchor_window_px=32)


@pytest.fixture(scope="module")
def world():
    return small_world()


@pytest.fixture(scope="module")
def spec(world):
    return spec_of(world, names={"1": "Müller's cell"}, measurements=MeasurementConfig(Scale(4.0, "mm")))


@pytest.fixture(scope="module")
def template(spec, tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured") / "out"
    run(spec, folder)
    return folder


@pytest.fixture
def out(template, tmp_path):
    return shutil.copytree(template, tmp_path / "out")


def rows(folder):
    with (folder / "measurements.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def check_against_labels(folder):
    """Every row is what the label file of its frame says, and every object of a label file has a row."""
    done, table = Run(folder), rows(folder)
    positions = {}
    for row in table:
        ids = done.labels[int(row["index"])].ids
        y, x = np.nonzero(ids == int(row["object"]))
        assert int(row["area_px"]) == len(x)
        if not len(x):
            assert row["x_px"] == row["major_axis_px"] == row["speed_px_per_second"] == ""
            continue
        assert (float(row["x_px"]), float(row["y_px"])) == pytest.approx((x.mean(), y.mean()), abs=1e-4)
        positions[int(row["index"]), row["object"]] = (x.mean(), y.mean())
    for row in table:
        here, before = ((int(row["index"]) - back, row["object"]) for back in (0, 1))
        if here in positions and before in positions:
            speed = math.dist(positions[here], positions[before]) * 12.5
            assert float(row["speed_px_per_second"]) == pytest.approx(speed, abs=1e-2)
        else:
            assert row["speed_px_per_second"] == ""
    there = {(i, str(one)) for i in range(12) for one in np.unique(done.labels[i].ids) if one}
    assert there == set(positions)


def test_every_object_on_every_frame_is_measured_as_its_label_file_says(template):
    check_against_labels(template)


def test_confidence_source_and_state_are_those_of_the_other_tables(template):
    objects = {(r["index"], r["object"]): r for r in csv.DictReader((template / "objects.csv").open(encoding="utf-8"))}
    for row in rows(template):
        other = objects[row["index"], row["object"]]
        assert [row[name] for name in ("frame_number", "name", "confidence", "source", "state")] == [
            other[name] for name in ("frame_number", "name", "confidence", "source", "state")
        ]
    assert {row["name"] for row in rows(template)} == {"Müller's cell", ""}


def test_scale_adds_columns_in_the_unit(template):
    for row in rows(template):
        if row["x_px"]:
            assert float(row["area_mm2"]) == pytest.approx(int(row["area_px"]) / 16)
            assert float(row["x_mm"]) == pytest.approx(float(row["x_px"]) / 4, abs=1e-4)
        if row["speed_px_per_second"]:
            assert float(row["speed_mm_per_second"]) == pytest.approx(float(row["speed_px_per_second"]) / 4, abs=1e-4)


def test_corrections_measure_again_and_undo_restores_every_byte(out, spec, world):
    before = {name: (out / name).read_bytes() for name in ("measurements.csv", "measurements.png")}
    empty = Masks(np.zeros_like(world.mask(5)), exhaustive=True)
    correct(out, {5: empty}, video=spec.video, encoder=spec.encoder)
    check_against_labels(out)
    assert {row["area_px"] for row in rows(out) if row["index"] == "5"} == {"0"}
    assert (out / "measurements.csv").read_bytes() != before["measurements.csv"]
    undo(out)
    assert {name: (out / name).read_bytes() for name in before} == before


def test_a_run_whose_measurements_were_removed_can_be_corrected(out, spec, world):
    (out / "measurements.csv").unlink()
    correct(out, {5: Masks(world.mask(5))}, video=spec.video, encoder=spec.encoder)
    assert not (out / "measurements.csv").exists()


def test_keypoints_have_positions_speeds_and_distances_of_pairs(world, spec, tmp_path):
    points = world.keypoints(0)
    first, second = points.names[:2]
    labels = {0: Keypoints(points.names, points.xy, points.visible)}
    run(replace(spec, labels=labels, names={}, measurements=MeasurementConfig(pairs=((first, second),))), tmp_path)
    table = rows(tmp_path)
    assert "area_px" not in table[0]
    positions = {(r["index"], r["object"]): (float(r["x_px"]), float(r["y_px"])) for r in table if r["x_px"]}
    keypoints = {(r["frame"], r["name"]): r for r in csv.DictReader((tmp_path / "keypoints.csv").open())}
    for key, at in positions.items():
        assert at == pytest.approx((float(keypoints[key]["x"]), float(keypoints[key]["y"])), abs=1e-4)
    measured = [row for row in table if row["object"] == f"{first}:{second}"]
    assert measured
    for row in measured:
        distance = math.dist(positions[row["index"], first], positions[row["index"], second])
        assert float(row["distance_px"]) == pytest.approx(distance, abs=1e-3)


def test_coordinates_have_nothing_to_measure(world, spec, tmp_path):
    labels = {0: Coordinates.of_image(64, 96)}
    run(replace(spec, labels=labels, names={}, measurements=MeasurementConfig()), tmp_path)
    assert not (tmp_path / "measurements.csv").exists()


@pytest.mark.parametrize(
    ("text", "scale"), [("4.2", Scale(4.2)), ("4.2px/mm", Scale(4.2, "mm")), ("1e3/µm", Scale(1000, "µm"))]
)
def test_a_scale_is_pixels_per_unit(text, scale):
    assert parse_scale(text) == scale


@pytest.mark.parametrize("text", ["", "mm", "0", "-1", "nan", "inf", "4.2/", "4/=1", "1.2.3"])
def test_what_is_not_a_scale_is_refused(text):
    with pytest.raises(SettingsError, match="pixels per unit"):
        parse_scale(text)


def test_a_scale_without_a_number_is_named_in_the_refusal():
    with pytest.raises(SettingsError, match=r"^'far' is not a scale; give pixels per unit"):
        parse_scale("far")


def test_pairs_must_be_of_points_that_are_there(spec, tmp_path):
    with pytest.raises(SettingsError, match="is not a pair"):
        parse_pairs(["nose"])
    with pytest.raises(SettingsError, match="keypoints"):
        run(replace(spec, measurements=MeasurementConfig(pairs=(("a", "b"),))), tmp_path)


def test_a_damaged_table_is_refused_by_a_correction(out, spec, world):
    text = (out / "measurements.csv").read_text(encoding="utf-8")
    (out / "measurements.csv").write_text(text.replace("annotated", "x", 1).replace("0,0,", "zero,0,", 1))
    with pytest.raises(OutputError, match=r"measurements\.csv cannot be read"):
        correct(out, {5: Masks(world.mask(5))}, video=spec.video, encoder=spec.encoder)
    assert OutputFolder(out).finished_record()["status"] == "finished"
