"""Progress on terminals and in logs, help that fits the screen, and closed pipes."""

import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

import timecycle
from clips import small_world, write_clip, write_mask
from timecycle import bars
from timecycle.cli import console
from timecycle.cli.main import _COMMANDS, main

NOTE = "total 1.234 walk 0.567 still 0.123 similarity 0.456 · waiting for clips 12%"


@pytest.fixture
def stderr(monkeypatch):
    """Replace the standard error of the commands by a terminal or a file of some width."""

    def make(*, terminal: bool, width: int = 80) -> io.StringIO:
        text = io.StringIO()
        screen = Console(
            file=text,
            force_terminal=terminal,
            width=width,
            highlight=False,
            markup=False,
            soft_wrap=True,
            legacy_windows=False,
        )
        monkeypatch.setattr(bars, "err", screen)
        return text

    return make


def screen_lines(text: str) -> list[str]:
    """The lines that were on the screen, without control codes."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return [line.rstrip() for line in re.split(r"[\r\n]+", plain) if line.strip()]


@pytest.mark.parametrize("width", [80, 60, 120])
def test_progress_on_a_terminal_is_one_line_that_fits(stderr, width):
    text = stderr(terminal=True, width=width)
    with console.progress_bars() as bar:
        move = bar("propagating")
        for done in (1, 1234, 4000):
            move(done, 4000, NOTE)
            time.sleep(0.15)
    lines = screen_lines(text.getvalue())
    assert lines
    assert all(len(line) <= width for line in lines)
    assert all(line.startswith("propagating") for line in lines)
    assert lines[-1].startswith("propagating ━━━━━━━━━━━━━━━━ 4,000/4,000  in 0:00")
    assert any("left" in line for line in lines[:-1])


def test_80_columns_show_bar_count_time_and_note(stderr):
    text = stderr(terminal=True)
    with console.progress("learning") as move:
        move(20_000, 100_000, NOTE)
        time.sleep(0.15)
    last = screen_lines(text.getvalue())[-1]
    assert "━" in last
    assert "20,000/100,000  -:-- left  total 1.234 walk" in last


def test_log_has_the_first_and_the_last_update_and_few_between(stderr, monkeypatch):
    text = stderr(terminal=False)
    clock = [100.0]
    monkeypatch.setattr(bars.time, "monotonic", lambda: clock[0])
    with console.progress("propagating") as move:
        for done in range(1, 1001):
            move(done, 1000)
            clock[0] += 0.3
    lines = text.getvalue().splitlines()
    assert lines[0] == "propagating  1/1,000  -:-- left"
    assert lines[1] == "propagating  35/1,000  4:49 left"  # ten seconds later, then twenty, then every thirty
    assert lines[-1] == "propagating  1,000/1,000  in 5:00"
    assert 10 <= len(lines) <= 13


def test_time_in_the_log_includes_the_first_step(stderr, monkeypatch):
    text = stderr(terminal=False)
    clock = [100.0]
    monkeypatch.setattr(bars.time, "monotonic", lambda: clock[0])
    with console.progress("videos") as move:
        clock[0] += 8
        move(1, 1)
    assert text.getvalue() == "videos  1/1  in 0:08\n"


def test_many_short_steps_do_not_fill_the_log(stderr):
    text = stderr(terminal=False)
    with console.progress_bars() as bar:
        for clip in range(300):
            move = bar(f"clip {clip}")
            for done in (1, 2, 3):
                move(done, 3)
    lines = text.getvalue().splitlines()
    assert lines[0].startswith("clip 0  1/3")
    assert lines[-1].startswith("clip 299  3/3")
    assert len(lines) <= 4


def test_interrupted_run_leaves_its_last_count_in_the_log(stderr):
    text = stderr(terminal=False)

    def work():
        with console.progress("propagating") as move:
            move(1, 9)
            move(7, 9)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert text.getvalue().splitlines()[-1].startswith("propagating  7/9")


def test_long_text_is_wrapped_on_a_terminal_and_one_line_in_a_file(monkeypatch):
    start, text = (
        " 1. frame 64         2.67 s   ",
        "confidence in camel fell from 0.95 to 0.73 at frame 59, covers 34-63",
    )
    for terminal in (True, False):
        screen = Console(file=io.StringIO(), force_terminal=terminal, width=80)
        monkeypatch.setattr(console, "out", screen)
        lines = console.hanging(start, text).splitlines()
        assert " ".join(line.strip() for line in lines) == (start + text).strip()
        assert len(lines) == (2 if terminal else 1)
        assert not terminal or all(len(line) < 80 for line in lines)
        assert all(line.startswith(" " * len(start)) for line in lines[1:])


def test_hidden_progress_prints_nothing(stderr):
    text = stderr(terminal=False)
    with console.progress_bars(shown=False) as bar:
        bar("learning")(1, 2)
    assert text.getvalue() == ""


# The commands themselves


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    source = str(Path(timecycle.__file__).parents[1])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    words = command.replace("timecycle", f"{sys.executable} -m timecycle")
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words}"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_progress_is_written_to_a_file(tmp_path):
    world = small_world(frames=4)
    write_clip(tmp_path / "clip.mp4", world)
    write_mask(tmp_path / "first.png", world)
    done = shell("timecycle propagate clip.mp4 first.png -o out --encoder rgb 2>log", tmp_path)
    assert done.returncode == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0].startswith("propagating  1/4")
    assert lines[-1].startswith("propagating  4/4  in 0:0")


@pytest.mark.skipif(sys.platform == "win32", reason="Unix pipes")
@pytest.mark.parametrize("command", ["timecycle --help", "timecycle propagate --help", "timecycle doctor"])
def test_closed_pipe_prints_no_error(command, tmp_path):
    done = shell(f"PYTHONUNBUFFERED= {command} | true", tmp_path)
    assert done.stderr == ""
    assert done.returncode in (0, 141)  # like any program that writes to a closed pipe


@pytest.mark.skipif(sys.platform == "win32", reason="Unix pipes")
@pytest.mark.parametrize("unbuffered", ["", "1"])  # Python flushes what is buffered once more at its end
def test_closed_standard_error_ends_the_command(unbuffered, tmp_path):
    command = f"PYTHONUNBUFFERED={unbuffered} timecycle weights list --json 2> >(exec 0<&-)"
    assert shell(command, tmp_path).returncode == 141


def test_ctrl_c_during_imports_is_one_line(tmp_path):
    """The interrupt comes while torch is imported, which takes longest."""
    (tmp_path / "torch.py").write_text("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)")
    path = os.pathsep.join([str(tmp_path), str(Path(timecycle.__file__).parents[1])])
    for command in (["-m", "timecycle"], ["-c", "import sys; from timecycle.__main__ import main; sys.exit(main())"]):
        done = subprocess.run(
            [sys.executable, *command, "demo"], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
        assert (done.stderr, done.returncode) == ("interrupted\n", 130)


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_has_one_line_for_each_command_and_fits_80_columns(words, capsys):
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 80
    commands = [line.split()[0] for line in lines if line.startswith("  ")]
    assert {"propagate", "train", "audit", "demo", "doctor"} <= set(commands)
    assert len(commands) == len(set(commands)) == 18
    assert len(lines) <= 24  # one screen


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("name", [*_COMMANDS, "weights convert", "evaluate davis"])
def test_help_of_every_command_is_wrapped_and_shows_no_empty_defaults(name, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main([*name.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: timecycle {name}")
    assert max(map(len, text.splitlines())) <= 100
    assert "None" not in text
    assert "(default: )" not in text
    assert "(default: False)" not in text


def test_options_are_in_titled_groups(capsys):
    assert main(["propagate", "--help"]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line.endswith(":") and line[0] != " "]
    wanted = ["arguments:", "output:", "annotations:", "video:", "method:", "confidence:", "measurements:", "messages:"]
    assert titles == ["Examples:", *wanted]


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["propagat"]])
def test_help_version_and_typing_errors_do_not_import_torch(words):
    script = f"import sys; from timecycle.cli import main; main({words!r}); print('torch' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "False"


def test_undo_is_told_as_an_option(capsys):
    assert main(["undo", "out"]) == 2
    assert "timecycle correct OUT --undo" in capsys.readouterr().err
