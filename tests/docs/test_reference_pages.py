"""The reference is complete: options and settings as the program has them, every public name, every output file."""

import csv
import json
import re
import runpy
from pathlib import Path

import pytest

import timecycle as tc
from clips import small_world, write_clip
from timecycle.cli import main
from timecycle.cli.main import _COMMANDS
from timecycle.runs.folder import _FOLDERS, FILES, RECORD

DOCS = Path(__file__).parents[2] / "docs"
OUTPUTS = (DOCS / "outputs.md").read_text(encoding="utf-8")


def test_pages_written_by_the_program_are_current():
    reference = runpy.run_path(str(DOCS / "reference.py"))
    again = "run python docs/reference.py"
    assert (DOCS / "options.md").read_text(encoding="utf-8") == reference["options_page"](), again
    assert (DOCS / "settings.md").read_text(encoding="utf-8") == reference["settings_page"](), again


def test_every_public_name_is_shown_once():
    shown = re.findall(r"^::: (\S+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    # `timecycle.bulk` is also the name of a package, which readers of the source alone find first.
    names = [name.removeprefix("timecycle.").removeprefix("api.many.") for name in shown]
    assert sorted(names) == sorted(tc.__all__)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The output folders of masks and of keypoints, after `check`."""
    folder = tmp_path_factory.mktemp("outputs")
    world = small_world(frames=4)
    clip = write_clip(folder / "dog.mp4", world)
    points = world.keypoints(0)
    for name, labels in (
        ("masks", tc.Masks(world.mask(0))),
        ("points", tc.Keypoints(points.names, points.xy, points.visible)),
    ):
        tc.propagate_to_folder(clip, labels, folder / name, encoder="rgb", config="fast", formats=["cvat"])
        assert main(["check", str(folder / name), "-q"]) == 0
    return folder


def test_every_file_of_a_run_is_listed(runs):
    written = {path.name for run in ("masks", "points") for path in (runs / run).iterdir()}
    assert written >= {*FILES, RECORD, "labels", "report.html"}
    assert not [name for name in {*written, *_FOLDERS, *FILES} if f"`{name}" not in OUTPUTS]


@pytest.mark.parametrize(
    ("run", "file", "page"),
    [
        ("masks", "frames.csv", "outputs.md"),
        ("masks", "objects.csv", "outputs.md"),
        ("points", "keypoints.csv", "outputs.md"),
        ("masks", "measurements.csv", "measurements.md"),
    ],
)
def test_every_column_is_explained(runs, run, file, page):
    with (runs / run / file).open(encoding="utf-8") as text:
        columns = next(csv.reader(text))
    _, _, after = (
        (DOCS / page).read_text(encoding="utf-8").partition(f"`{file}`" if page != "outputs.md" else f"\n`{file}`")
    )
    explained = first_column(after[after.index("| column |") :])
    assert [column for column in columns if column not in explained] == []
    extra = set(explained) - set(columns)
    assert extra <= {"distance_px"}  # only with --pairs


def test_every_key_of_the_record_is_explained(runs):
    record = json.loads((runs / "masks" / "run.json").read_text())
    explained = first_column(OUTPUTS[OUTPUTS.index("| key |") :])
    assert set(record) <= set(explained)


def test_every_writing_command_is_there():
    silent = {"demo", "audit", "tune", "convert", "weights", "presets", "benchmark", "doctor"}
    assert all(
        f"`{name}`" in OUTPUTS or f"`timecycle {name}`" in OUTPUTS
        for name in set(_COMMANDS) - silent - {"check", "correct"}
    )
    assert "## check and correct" in OUTPUTS


def first_column(text: str) -> list[str]:
    """The names in the first column of the table that the text begins with."""
    rows = text.partition("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
