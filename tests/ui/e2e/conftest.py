"""A headless Chromium for the tests of the page; without one they are skipped."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
playwright = pytest.importorskip("playwright.sync_api")

_SWITCHES = (
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(_SWITCHES))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def swan(tmp_path_factory) -> Path:
    """The first frames of a real clip as a folder of images; without footage, a synthetic clip."""
    folder = tmp_path_factory.mktemp("footage") / "blackswan"
    source = Path(os.environ.get("TIMECYCLE_DATA") or "/nowhere") / "davis2016" / "JPEGImages" / "480p" / "blackswan"
    if source.is_dir():
        folder.mkdir()
        for index in range(34):
            shutil.copy(source / f"{index:05d}.jpg", folder)
        return folder
    from clips import small_world, write_clip

    return write_clip(folder.with_suffix(".mp4"), small_world(frames=34, height_px=240, width_px=424))
