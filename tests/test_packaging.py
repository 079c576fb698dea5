"""The sdist: it has everything its tests need, the licences of all its contents, and a README that reads anywhere."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tarfile
from email import message_from_string
from pathlib import Path

import pytest

import release_check
from timecycle.version import __version__

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


def test_sdist_names_and_contains_the_licence_and_the_notices(sdist):
    metadata = message_from_string((sdist / "PKG-INFO").read_text())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert sorted(metadata.get_all("License-File")) == ["LICENSE", "THIRD_PARTY_NOTICES"]
    assert "Apache License" in (sdist / "LICENSE").read_text()
    assert "CC BY 4.0" in (sdist / "THIRD_PARTY_NOTICES").read_text()


def test_sdist_holds_no_weights_that_are_not_free(sdist):
    cards = list(sdist.glob("**/weights/*.json"))
    assert cards
    assert {json.loads(card.read_text())["licence"].partition(":")[0] for card in cards} == {"Apache-2.0"}


def test_links_of_the_readme_become_absolute():
    hatch_build = load_hatch_build()
    readme = "![swan](docs/swan.jpg) [page](docs/ui.md#safety) [below](#python) [paper](https://arxiv.org/abs/1)"
    assert hatch_build.link_to(readme, "https://host.example/a/b", tag="v1.2.3") == (
        "![swan](https://host.example/a/b/raw/v1.2.3/docs/swan.jpg) "
        "[page](https://host.example/a/b/blob/v1.2.3/docs/ui.md#safety) "
        "[below](https://host.example/a/b/blob/v1.2.3/README.md#python) "
        "[paper](https://arxiv.org/abs/1)"
    )


def test_address_of_the_repository_decides_about_the_links():
    hatch_build = load_hatch_build()
    hook = hatch_build.ReadmeForIndex(str(ROOT), {})
    without: dict = {"urls": {"Paper": "https://arxiv.org/abs/1"}}
    hook.update(without)
    assert without["readme"]["text"] == hatch_build.install_by_name((ROOT / "README.md").read_text())
    told: dict = {"urls": {"Repository": "https://host.example/a/b/"}}
    hook.update(told)
    assert f"](https://host.example/a/b/blob/v{__version__}/docs/ui.md)" in told["readme"]["text"]
    assert not re.search(r"\]\((?!https://)", told["readme"]["text"])


def test_package_is_installed_by_its_name_where_there_is_no_checkout():
    hatch_build = load_hatch_build()
    readme = """pip install .                # from a checkout; Python 3.11 or newer
timecycle demo               # a small clip
pip install '.[eval]'        # in `pip install .` and (`pip install '.[ui]'`)
pip install torch ./other
pip install ."""
    assert (
        hatch_build.install_by_name(readme)
        == """pip install timecycle        # Python 3.11 or newer
timecycle demo               # a small clip
pip install 'timecycle[eval]'        # in `pip install timecycle` and (`pip install 'timecycle[ui]'`)
pip install torch ./other
pip install timecycle"""
    )


def test_readme_of_the_index_does_not_speak_of_a_checkout():
    metadata: dict = {"urls": {}}
    load_hatch_build().ReadmeForIndex(str(ROOT), {}).update(metadata)
    text = metadata["readme"]["text"]
    assert "pip install timecycle " in text
    assert "pip install 'timecycle[ui]'" in text
    assert not release_check.FROM_CHECKOUT.search(text)
    assert "from a checkout" not in text


def load_hatch_build():
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
