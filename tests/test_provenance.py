"""A record says where it comes from, and nothing about whose machine it was."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import timecycle
from timecycle.provenance import commit, machine


def test_the_machine_is_described_without_names():
    described = machine()
    assert {"processor", "cores", "threads", "python", "torch", "system"} == set(described)
    assert platform.node() not in str(described)


def test_a_checkout_gives_its_commit_and_says_when_it_was_changed(tmp_path):
    root = tmp_path / "checkout"
    shutil.copytree(Path(timecycle.__file__).parent, root / "src" / "timecycle")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(root)]

    def run(*words: str) -> str:
        return subprocess.run([*git, *words], check=True, capture_output=True, text=True).stdout.strip()

    def said() -> str:
        code = "from timecycle.provenance import commit; print(commit())"
        # Not where a bytecode folder would count as a change.
        found = subprocess.run(
            [sys.executable, "-B", "-c", code], cwd=root / "src", check=True, capture_output=True, text=True
        )
        return found.stdout.strip()

    assert said() == "none: not run from a checkout"
    (root / ".gitignore").write_text("__pycache__\n")
    run("init", "-q")
    run("add", "-A")
    run("commit", "-qm", "all")
    assert said() == run("rev-parse", "HEAD")
    (root / "src" / "timecycle" / "version.py").write_text('__version__ = "0"\n')
    assert said() == run("rev-parse", "HEAD") + " with changes"


def test_this_checkout_has_a_commit_or_says_that_there_is_none():
    assert len(commit().split()[0]) == 40 or commit().startswith("none")
