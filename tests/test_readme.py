"""The figures, presets and commands in the README are correct."""

import json
import re
import shlex
from pathlib import Path

from timecycle.cli import main
from timecycle.config import preset_names

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def measured(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())["measured"]


def test_figures_that_are_not_generated_match_the_result_files():
    box = measured("box")["mean"]
    assert f"of {box['refined']:.2f} with the true mask where the box itself has {box['unrefined']:.2f}" in " ".join(
        README.split()
    )


def test_every_preset_is_listed():
    assert all(f"| `{name}` |" in README for name in preset_names("propagate"))


def test_the_first_command_comes_early():
    lines = README.splitlines()
    assert next(i for i, line in enumerate(lines, start=1) if line.startswith("timecycle ")) <= 20


def test_commands_can_be_parsed(tmp_path, monkeypatch, capsys):
    """Run in an empty folder, each command must fail because its files are missing, and for no other reason."""
    monkeypatch.chdir(tmp_path)
    commands = [
        line.partition("#")[0] for line in README.splitlines() if line.startswith(("timecycle p", "timecycle f"))
    ]
    assert len(commands) >= 9
    for command in commands:
        assert main(shlex.split(command)[1:]) == 2, command
        assert re.search(r"dog\.mp4|frames|shot_", capsys.readouterr().err), command
