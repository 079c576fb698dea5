"""The release checklist passes where all is in place, and names each thing that is missing."""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import release_check

VERSION, DATE, REPOSITORY = "1.2.3", "2026-01-31", "https://host.example/people/timecycle"
KERNELS = [f"timecycle/kernel/kernel_{variant}.so" for variant in ("generic", "avx2", "avx512")]
MODELS = ("other", "timecycle-v2")  # one of them under other terms
METADATA = f"""Metadata-Version: 2.4
Name: timecycle
Version: {VERSION}
License-Expression: Apache-2.0 AND CC-BY-NC-4.0
License-File: LICENSE
License-File: LICENSE-WEIGHTS

# timecycle

[pages]({REPOSITORY}/blob/v{VERSION}/docs/index.md)
"""
FILES = {
    "src/timecycle/version.py": f'__version__ = "{VERSION}"\n',
    "src/timecycle/weights/other-00000000.json": json.dumps({"licence": "CC-BY-NC-4.0: because"}),
    "src/timecycle/weights/timecycle-v2-00000000.json": json.dumps({"licence": "Apache-2.0: free footage"}),
    "pyproject.toml": f"""[project]
license = "Apache-2.0 AND CC-BY-NC-4.0"
license-files = ["LICENSE", "LICENSE-WEIGHTS"]
urls = {{ Repository = "{REPOSITORY}" }}
""",
    "LICENSE": "Apache License",
    "LICENSE-WEIGHTS": "CC-BY-NC-4.0",
    "CHANGELOG.md": f"# Changelog\n\n## [{VERSION}] - {DATE}\n",
    "CITATION.cff": f"""version: {VERSION}
license: Apache-2.0 # the code
date-released: {DATE}
""",
    "README.md": "# timecycle\n",
    "CODE_OF_CONDUCT.md": "Be kind.\n",
    "CONTRIBUTING.md": "Set up\n",
    "SECURITY.md": "Reporting\n",
    "docs/model.md": "# timecycle-v2\n",
    "docs/research/README.md": "Tables have no placeholders.\n",
    ".gitignore": "dist\nsite\nmodel\n",
}
ANY, X86_64, ARM, MAC = (
    f"timecycle-{VERSION}-py3-none-{platform}.whl"
    for platform in ("any", "manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "macosx_11_0_arm64")
)


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """Make a small tree in which nothing is missing."""
    for name, text in FILES.items():
        write(tmp_path / name, text)
    for name, variants in (
        (ANY, ()),
        (X86_64, ("generic", "avx2", "avx512")),
        (ARM, ("generic",)),
        (MAC, ("generic",)),
    ):
        write_wheel(tmp_path / "dist" / name, [f"timecycle/kernel/kernel_{variant}.so" for variant in variants])
    with tarfile.open(tmp_path / "dist" / f"timecycle-{VERSION}.tar.gz", "w:gz") as archive:
        for name in ("pyproject.toml", "hatch_build.py", "tests/test_packaging.py", "CHANGELOG.md", "CITATION.cff"):
            archive.addfile(tarfile.TarInfo(f"timecycle-{VERSION}/{name}"))
    write(tmp_path / "site/index.html", "<html>")
    matter = "license: mit\nlibrary_name: timecycle\npipeline_tag: image-feature-extraction\ntags: [video]\n"
    for name in MODELS:
        write(tmp_path / "model" / name / "README.md", f"---\n{matter}---\n# {name}\n")
        write(tmp_path / "model" / name / "model.safetensors", name)
        config = {"sha256": hashlib.sha256(name.encode()).hexdigest()}
        write(tmp_path / "model" / name / "config.json", json.dumps(config))
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_wheel(path: Path, more: list[str], metadata: str = METADATA) -> None:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        for name in (*release_check.CONTENTS, *more):
            wheel.writestr(name, "")
        wheel.writestr(f"timecycle-{VERSION}.dist-info/METADATA", metadata)


def git(tree: Path, *words: str) -> None:
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@host.example")
    subprocess.run(["git", *who, *words], cwd=tree, check=True, capture_output=True)


def commit(tree: Path) -> None:
    git(tree, "add", "-A")
    git(tree, "commit", "--quiet", "--allow-empty", "-m", "Change")
    git(tree, "tag", "--force", f"v{VERSION}")


def problems(tree: Path, tag: str | None = None) -> dict[str, list[str]]:
    folders = {"dist": tree / "dist", "models": sorted((tree / "model").iterdir()), "site": tree / "site"}
    return {what: found for what, found in release_check.check_all(tree, **folders, tag=tag) if found}


def test_nothing_is_missing_in_a_tree_that_is_ready(ready):
    assert problems(ready) == {}
    assert problems(ready, tag=f"v{VERSION}") == {}


CHANGES = [  # a file, its new text or None for none, the check that fails, words of what it says
    ("src/timecycle/version.py", '__version__ = "1.2.3.dev0"\n', "one version everywhere", "three numbers"),
    ("CHANGELOG.md", "## [Unreleased]\n", "one version everywhere", "first heading of CHANGELOG.md is Unreleased"),
    ("CHANGELOG.md", f"## [{VERSION}] - unreleased\n", "one version everywhere", "no date"),
    ("CITATION.cff", f"version: 1.2.2\ndate-released: {DATE}\n", "one version everywhere", "says 1.2.2 for version"),
    ("CITATION.cff", f"version: {VERSION}\n", "one version everywhere", "says nothing for date-released"),
    ("README.md", "@software{x,\n  version = {1.2.2},\n}\n", "one version everywhere", "README.md says version 1.2.2"),
    ("LICENSE-WEIGHTS", None, "licences and notices", "a file is missing"),
    ("LICENSE-WEIGHTS", "free", "licences and notices", "is in none of"),
    ("src/timecycle/weights/other-00000000.json", '{"licence": "MIT"}', "licences and notices", "says MIT"),
    ("CITATION.cff", "license: [MIT]\n", "licences and notices", "says MIT for license"),
    ("CITATION.cff", "license:\n  - Apache-2.0\n  - MIT\n", "licences and notices", "says Apache-2.0, MIT for"),
    ("CITATION.cff", "type: software\n", "licences and notices", "says nothing for license"),
    ("README.md", "See TODO.\n", "no placeholders", "README.md:1: TODO"),
    ("docs/model.md", "\n\nplaceholder\n", "no placeholders", "docs/model.md:3"),
    ("docs/research/README.md", "TBD\n", "no placeholders", "docs/research/README.md:1: TBD"),
    ("CODE_OF_CONDUCT.md", None, "no placeholders", "is missing"),
    ("site/index.html", None, "pages", "make docs"),
    ("model/other/README.md", "# other\n", "model folders", "has no license"),
    ("model/timecycle-v2/config.json", None, "model folders", "lacks config.json"),
    ("model/timecycle-v2/model.safetensors", "others", "model folders", "checksum"),
    (f"dist/timecycle-{VERSION}.tar.gz", None, "sdist", "exactly one sdist"),
    (f"dist/{ANY}", None, "wheels", "0 wheels instead of one"),
    (f"dist/{ARM}", None, "wheels", "aarch64"),
    (f"dist/{MAC}", None, "wheels", "macosx"),
]


@pytest.mark.parametrize(("name", "text", "check", "words"), CHANGES)
def test_what_is_missing_or_wrong_is_named(ready, name, text, check, words):
    if text is None:
        (ready / name).unlink()
    else:
        write(ready / name, text)
    found = problems(ready)
    assert any(words in problem for problem in found[check]), found


def test_a_tag_of_another_version_is_refused(ready):
    assert list(problems(ready, tag="v1.2.4")) == ["one version everywhere"]
    git(ready, "tag", "--delete", f"v{VERSION}")
    assert "the tag is missing" in problems(ready)["one version everywhere"][0]


def test_a_changed_tree_is_refused(ready):
    write(ready / "new.py", "")
    assert problems(ready) == {"clean tree": ["not committed: ?? new.py"]}


def test_cards_of_the_weights_are_asked_for(ready):
    for card in (ready / "src/timecycle/weights").iterdir():
        card.unlink()
    assert "no card of the bundled weights" in problems(ready)["licences and notices"][0]


def test_a_folder_of_each_bundled_encoder_is_asked_for(ready):
    shutil.rmtree(ready / "model/timecycle-v2")
    (problem,) = problems(ready)["model folders"]
    assert "lacks the folder of timecycle-v2" in problem


def test_our_own_pages_and_licences_are_in_order():
    assert list(release_check.check_placeholders(release_check.ROOT)) == []
    assert list(release_check.check_licences(release_check.ROOT)) == []


def test_an_address_of_the_repository_is_asked_for(ready):
    text = FILES["pyproject.toml"].replace(REPOSITORY, "")
    write(ready / "pyproject.toml", text)
    commit(ready)
    assert list(problems(ready)) == ["address of the repository"]


@pytest.mark.parametrize(
    ("more", "metadata", "words"),
    [
        (["timecycle/kernel/kernel_generic.so"], METADATA, "has the compiled files"),
        (KERNELS, METADATA.replace("CC-BY-NC", "CC-BY"), "metadata says"),
        (KERNELS, METADATA.replace(f"{REPOSITORY}/blob/v{VERSION}/", ""), "relative link docs/index.md"),
        (KERNELS, f"{METADATA}\n`pip install .`\n", "says pip install ., which needs a checkout"),
        (KERNELS, f"{METADATA}\npip install '.[ui]'\n", "says pip install '., which needs a checkout"),
    ],
)
def test_wheels_with_other_kernels_licences_or_readmes_are_refused(ready, more, metadata, words):
    write_wheel(ready / "dist" / X86_64, more, metadata)
    (problem,) = problems(ready)["wheels"]
    assert words in problem


def test_a_wheel_without_its_encoder_is_refused(ready):
    with zipfile.ZipFile(ready / "dist" / X86_64) as wheel:
        kept = {name: wheel.read(name) for name in wheel.namelist() if "weights/timecycle-v2" not in name}
    with zipfile.ZipFile(ready / "dist" / X86_64, "w") as wheel:
        for name, content in kept.items():
            wheel.writestr(name, content)
    assert problems(ready) == {"wheels": [f"{X86_64}: lacks timecycle/weights/timecycle-v2-"]}


def test_a_wheel_that_was_not_repaired_is_refused(ready):
    write_wheel(ready / "dist" / f"timecycle-{VERSION}-py3-none-linux_x86_64.whl", [])
    assert problems(ready) == {"wheels": [f"timecycle-{VERSION}-py3-none-linux_x86_64.whl is not for this release"]}


def test_the_command_ends_with_an_error_where_something_is_missing(tmp_path):
    words = [sys.executable, release_check.__file__, "--dist", tmp_path, "--model", tmp_path, "--site", tmp_path]
    done = subprocess.run([*map(str, words), "--tag", "v0"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "MISSING  wheels" in done.stdout
    assert "not ready" in done.stderr
