"""napari as people run it, with a Qt that needs no screen; where napari is not installed the tests are skipped."""

import os
import time

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ["NAPARI_CONFIG"] = ""  # the settings of whoever runs the tests are neither read nor written


@pytest.fixture(scope="session")
def qt_app():
    pytest.importorskip("napari", reason="napari is not installed")
    from napari.qt import get_qapp

    return get_qapp()


@pytest.fixture
def viewer(qt_app):
    """napari's layers and dimensions without its window, which needs OpenGL."""
    from napari.components import ViewerModel

    return ViewerModel()


@pytest.fixture
def wait_for(qt_app):
    """Let Qt work until a condition holds."""

    def wait(condition, seconds=120):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not happen in time"
            qt_app.processEvents()
            time.sleep(0.005)

    return wait
