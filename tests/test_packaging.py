"""The sdist: it has everything its tests need, and the licences of all its contents."""

import os
import subprocess
import sys
import tarfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    """Build and unpack the sdist of this tree."""
    for tool in ("build", "hatchling"):
        pytest.importorskip(tool)
    folder = tmp_path_factory.mktemp("sdist")
    words = ["-m", "build", "--no-isolation", "--sdist", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def test_sdist_names_and_contains_both_licences(sdist):
    metadata = message_from_string((sdist / "PKG-INFO").read_text())
    assert metadata["License-Expression"] == "Apache-2.0 AND CC-BY-NC-4.0"
    assert sorted(metadata.get_all("License-File")) == ["LICENSE", "LICENSE-WEIGHTS"]
    assert "Apache License" in (sdist / "LICENSE").read_text()
    text = (sdist / "LICENSE-WEIGHTS").read_text()
    assert "CC-BY-NC-4.0" in text
    assert "https://creativecommons.org/licenses/by-nc/4.0/" in text


@pytest.mark.slow  # imports every test and all they import
def test_all_tests_of_the_sdist_can_be_collected(sdist):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"],
        cwd=sdist,
        env={**os.environ, "PYTHONPATH": str(sdist / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    here = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    assert here == {str(path.relative_to(sdist)) for path in (sdist / "tests").rglob("test_*.py")}
