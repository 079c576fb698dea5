"""The clip that most tests of the page open."""

from pathlib import Path

import pytest

from clips import small_world, write_clip


@pytest.fixture(scope="module")  # some tests damage it
def clip(tmp_path_factory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clip") / "clip.mp4", small_world(frames=10))
