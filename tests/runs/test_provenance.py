"""Records name the commit and the kind of machine, but not the machine's name."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import timecycle
from timecycle.runs.provenance import commit, machine


def test_the_machine_is_described_without_its_name():
    described = machine()
    assert {"processor", "cores", "threads", "python", "torch", "system"} == set(described)
    assert platform.node() not in str(described)


def test_the_commit_of_a_checkout_is_recorded_with_a_note_of_changes(tmp_path):
    root = tmp_path / "checkout"
    shutil.copytree(Path(timecycle.__file__).parent, root / "src" / "timecycle")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(root)]

    def run(*words: str) -> str:
        return subprocess.run([*git, *words], check=True, capture_output=True, text=True).stdout.strip()

    def recorded() -> str:
        code = "from timecycle.runs.provenance import commit; print(commit())"
        # -B, as a folder of bytecode would count as a change.
        process = subprocess.run(
            [sys.executable, "-B", "-c", code], cwd=root / "src", check=True, capture_output=True, text=True
        )
        return process.stdout.strip()

    assert recorded() == "none: not run from a checkout"
    (root / ".gitignore").write_text("__pycache__\n")
    run("init", "-q")
    run("add", "-A")
    run("commit", "-qm", "all")
    index = root / ".git" / "index"
    written = index.stat().st_mtime_ns
    for path in (root / "src").rglob("*.py"):
        os.utime(path)  # git would now like to renew what its index knows of the files
    assert recorded() == run("rev-parse", "HEAD")
    assert index.stat().st_mtime_ns == written, "the record of a run wrote into the checkout"
    (root / "src" / "timecycle" / "version.py").write_text('__version__ = "0"\n')
    assert recorded() == run("rev-parse", "HEAD") + " with changes"


def test_this_checkout_has_a_commit_or_none_is_recorded():
    assert len(commit().split()[0]) == 40 or commit().startswith("none")
