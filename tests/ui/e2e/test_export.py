"""Exports in a real browser: formats of other tools, measurements and the matte, with the bytes of the command line."""

import sys
import zipfile
from pathlib import Path

import pytest

import timecycle as tc
from clips import small_world, write_clip, write_mask
from driven import Driven
from served import served
from timecycle.cli.main import main

WORLD = small_world(frames=10)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of the command line's verb that writes formats of its own."""
    folder = tmp_path_factory.mktemp("run")
    clip, first = write_clip(folder / "clip.mp4", WORLD), write_mask(folder / "first.png", WORLD)
    names, formats = {1: "disc", 2: "box"}, ["cvat", "matte"]
    tc.propagate_to_folder(clip, first, folder / "out", encoder="rgb", config="fast", names=names, formats=formats)
    return folder / "out"


def test_downloads_are_the_bytes_of_the_command_line(browser, run, tmp_path):
    with served(run, cwd=run.parent) as server:
        page = Driven(browser, server).opened()
        page.button("4 Export")
        # As `propagate --format` has written them.
        for name, file in (("cvat", "cvat.xml"), ("matte", "matte.mov")):
            assert page.export(name, tmp_path).read_bytes() == (run / "exports" / file).read_bytes()
        for name, file in (("measurements", "measurements.csv"), ("plot", "measurements.png")):
            assert page.export(name, tmp_path).read_bytes() == (run / file).read_bytes()
        # As `convert` writes it.
        assert main(["convert", str(run), str(tmp_path / "yolo"), "--to", "yolo", "--quiet"]) == 0
        with zipfile.ZipFile(page.export("yolo", tmp_path)) as archive:
            files = {path.relative_to(tmp_path / "yolo").as_posix(): path for path in (tmp_path / "yolo").rglob("*.*")}
            assert {name: archive.read(name) for name in archive.namelist()} == {
                name: path.read_bytes() for name, path in files.items()
            }
        page.shot("60_exports")
        assert page.errors() == []


def test_a_missing_package_is_shown_with_its_command(browser, run, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(HIDES_PYCOCOTOOLS)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *sys.path]))
    with served(run, cwd=run.parent) as server:
        page = Driven(browser, server).opened()
        page.button("4 Export")
        assert page.page.locator('[data-name="export-coco"]').is_disabled()
        item = page.page.locator("li.offer", has=page.page.locator('[data-name="export-coco"]'))
        assert "pip install 'timecycle[coco]'" in item.inner_text()
        assert "Cannot hold:" in item.inner_text()
        assert page.page.locator('[data-name="export-cvat"]').is_enabled()
        item.scroll_into_view_if_needed()
        page.shot("61_missing")
        assert page.errors() == []


HIDES_PYCOCOTOOLS = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name == "pycocotools" else find(name, *more)
"""
