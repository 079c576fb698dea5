"""The built wheel, installed outside of the checkout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clips import small_world, write_clip, write_mask

ROOT = Path(__file__).parents[2]


@pytest.mark.slow  # builds and installs the wheel
def test_installed_wheel_propagates_labels(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("timecycle-*.whl")
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(tmp_path / "site"), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}

    def python(*words: object) -> str:
        done = subprocess.run(
            [sys.executable, *map(str, words)], env=environment, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert str(tmp_path / "site") in python("-c", "import timecycle; print(timecycle.__file__)")
    world = small_world(frames=5)
    clip, mask = write_clip(tmp_path / "mine.mp4", world), write_mask(tmp_path / "first.png", world)
    assert "5 frames in" in python("-m", "timecycle", "propagate", clip, mask, "-o", "out", "--preset", "fast")
    assert len(list((tmp_path / "out" / "labels").glob("*.png"))) == 5
