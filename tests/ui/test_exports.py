"""Exports of the page, by HTTP: every format that can hold the labels, with the bytes of the command line."""

import io
import shutil
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import timecycle as tc
from clips import small_world, write_mask
from served import Served, served
from timecycle.cli.main import main
from timecycle.formats.registry import FORMATS, read_file
from timecycle.labels.keypoints import keypoints_csv
from timecycle.ui import format_exports

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

WORLD = small_world(frames=10)
FILES = {
    "measurements": "measurements.csv",
    "plot": "measurements.png",
    "overlay": "overlay.mp4",
    "tables": None,
    "everything": None,
}


@pytest.fixture(scope="module")
def of_masks(clip, tmp_path_factory) -> Served:
    """A server of a run of masks that was started on the command line, with names beyond ASCII."""
    folder = tmp_path_factory.mktemp("masks")
    first = write_mask(folder / "first.png", WORLD)
    names = {1: "Müllers Zelle", 2: "box"}
    tc.propagate_to_folder(clip, first, folder / "out", encoder="rgb", config="fast", names=names)
    with served(folder / "out", cwd=folder) as server:
        server.project()  # opens it
        yield server


@pytest.fixture(scope="module")
def of_points(clip, tmp_path_factory) -> Served:
    folder = tmp_path_factory.mktemp("points")
    points = tc.Keypoints(("nose", "tail"), np.array([[20, 20], [60, 40]], np.float32), np.ones(2, bool))
    tc.propagate_to_folder(clip, {0: points}, folder / "out", encoder="rgb", config="fast")
    with served(folder / "out", cwd=folder) as server:
        server.project()  # opens it
        yield server


def formats(server: Served) -> dict[str, dict]:
    server.project()
    return {one["name"]: one for one in server.ask("GET", "/api/run").json["formats"]}


def exported(server: Served, name: str) -> bytes:
    job = server.job("export", format=name)
    assert job["status"] == "done", job
    return server.ask("GET", f"/api/exports/{job['result']['file']}").body


def unzipped(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["masks", "keypoints"])
def test_every_format_of_the_registry_is_listed_with_what_it_cannot_hold(kind, of_masks, of_points):
    listed = formats(of_masks if kind == "masks" else of_points)
    for name, one in FORMATS.items():
        assert (name in listed) == (one.write is not None and kind in one.kinds), name
        if name in listed:
            entry = listed[name]
            assert (entry["title"], entry["about"], entry["group"]) == (one.title, one.loses, "labels")
            assert (entry["install"] is None) == (one.module is None or find_spec(one.module) is not None)
    assert ("deeplabcut.h5" in listed) == (kind == "keypoints")
    assert set(FILES) <= set(listed)


def test_an_export_of_masks_is_what_convert_writes(of_masks, tmp_path):
    for name in ("png", "coco", "matte"):  # the others in this process, as a job takes seconds to start
        check_export(of_masks, name, lambda name: exported(of_masks, name), tmp_path)
    for name in FORMATS.keys() & formats(of_masks).keys() - {"png", "coco", "matte"}:
        check_export(of_masks, name, lambda name: written(of_masks, name, tmp_path), tmp_path)


def test_an_export_of_keypoints_is_what_convert_writes(of_points, tmp_path):
    for name in ("csv", "deeplabcut.h5"):
        check_export(of_points, name, lambda name: exported(of_points, name), tmp_path)
    for name in FORMATS.keys() & formats(of_points).keys() - {"csv"}:
        check_export(of_points, name, lambda name: written(of_points, name, tmp_path), tmp_path)


def written(server: Served, name: str, folder: Path) -> bytes:
    """Write what the job would write."""
    target = folder / f"written_{name}{formats(server)[name]['suffix']}"
    format_exports.write(Path(server.project()["folder"]), name, target, lambda *_: None)
    return target.read_bytes()


def check_export(server: Served, name: str, export: Callable[[str], bytes], tmp_path: Path) -> None:
    """Compare an export with what `timecycle convert` writes."""
    entry = formats(server)[name]
    if entry["install"]:
        return  # its package is missing here, which the test of the list has checked
    folder, target = Path(server.project()["folder"]), tmp_path / f"labels_{name.partition('.')[0]}"
    target = target if entry["suffix"] == ".zip" else target.with_suffix(entry["suffix"])
    assert main(["convert", str(folder), str(target), "--to", name.partition(".")[0], "--quiet"]) == 0
    content = export(name)
    if target.is_dir():
        assert unzipped(content) == files_of(target), name
    elif name == "deeplabcut.h5":  # PyTables writes the time into the file
        (ours := tmp_path / "ours.h5").write_bytes(content)
        one, other = (read_file(path).labels for path in (ours, target))
        assert [keypoints_csv({i: one[i]}) for i in one] == [keypoints_csv({i: other[i]}) for i in other]
    else:
        assert content == target.read_bytes(), name


def test_files_of_the_run_are_exported_as_they_are(of_masks):
    run = Path(of_masks.project()["folder"])
    for name, file in FILES.items():
        content = exported(of_masks, name)
        if file is not None:
            assert content == (run / file).read_bytes()
            continue
        for entry, data in unzipped(content).items():
            assert data == (run / (entry.partition("/")[2] if name == "everything" else entry)).read_bytes()


def test_a_format_whose_package_is_missing_says_how_to_install_it(clip, tmp_path, monkeypatch):
    hide = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name == "pycocotools" else find(name, *more)
"""
    (tmp_path / "sitecustomize.py").write_text(hide)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *sys.path]))
    first = write_mask(tmp_path / "first.png", WORLD)
    tc.propagate_to_folder(clip, first, tmp_path / "out", encoder="rgb", config="fast")
    with served(tmp_path / "out", cwd=tmp_path) as server:
        assert formats(server)["coco"]["install"] == "pip install 'timecycle[coco]'"
        answer = server.ask("POST", "/api/jobs/export", {"format": "coco"})
        assert answer.status == 400
        assert answer.json["error"]["remedy"] == "pip install 'timecycle[coco]'"
        assert formats(server)["cvat"]["install"] is None


def test_what_cannot_be_exported_is_refused(of_masks, of_points):
    for server, name in ((of_masks, "x"), (of_masks, "tapvid"), (of_points, "matte"), (of_masks, "../out")):
        answer = server.ask("POST", "/api/jobs/export", {"format": name})
        assert answer.status == 400
        assert "no export" in answer.problem
        assert "choose one of these" in answer.json["error"]["remedy"]


def test_an_export_leaves_the_run_as_it_was(of_masks, tmp_path):
    run = Path(of_masks.project()["folder"])
    before = shutil.copytree(run, tmp_path / "before")
    exported(of_masks, "yolo")
    assert files_of(run) == files_of(before)
    assert sorted(path.name for path in (run.parent / "out_annotations" / "exports").iterdir()) == ["out_yolo.zip"]
