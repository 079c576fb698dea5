"""Unexpected failures give one line without a traceback, and names from files cannot control the terminal."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clips import small_world, write_clip, write_mask
from timecycle.cli import console
from timecycle.cli.main import main
from timecycle.errors import LabelError, TimecycleError
from timecycle.labels import Keypoints
from timecycle.labels.names import check_names
from timecycle.shortages import explain_error


def stderr_text(capsys) -> str:
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize(
    ("error", "words", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "out/frames.csv"), "frames.csv: No space left", 2),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n", 2),
        (MemoryError(), "there is not enough memory", 2),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"), "not enough memory", 2),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            "not enough memory",
            2,
        ),
        (RecursionError("maximum recursion depth exceeded"), "nested too deeply", 2),
        (KeyError("surprise"), "this should not have happened: KeyError: 'surprise'", 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_failures_of_the_system_and_bugs_give_one_line(monkeypatch, capsys, error, words, code):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.delenv("TIMECYCLE_TRACEBACK", raising=False)
    monkeypatch.setattr("timecycle.cli.doctor.Doctor.__call__", fail)
    assert main(["doctor"]) == code
    text = stderr_text(capsys)
    assert words in text
    assert len(text.splitlines()) == 2
    assert "  try: " in text


def test_the_traceback_is_shown_on_request(monkeypatch):
    def fail(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setenv("TIMECYCLE_TRACEBACK", "1")
    monkeypatch.setattr("timecycle.cli.doctor.Doctor.__call__", fail)
    with pytest.raises(KeyError):
        main(["doctor"])


def test_errors_of_the_package_are_kept_as_they_are():
    error = LabelError("a", remedy="b")
    assert explain_error(error) is error
    assert explain_error(ValueError("x")) is None
    assert isinstance(explain_error(torch.OutOfMemoryError("CUDA out of memory")), TimecycleError)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [["--help"], ["doctor"], ["weights", "list"]])
def test_printing_to_a_full_disk_gives_one_line(words):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "timecycle", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


# Names


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\nlines\tare kept", "plain\nlines\tare kept"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("abc\u202etxt.exe", "abc\\u202etxt.exe"),
        ("a\rb", "a\\rb"),
        ("é ü 日本", "é ü 日本"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_in_a_name_are_escaped(text, shown):
    assert console.visible(text) == shown


def test_the_name_of_a_file_cannot_control_the_terminal(tmp_path, capsys):
    assert main(["propagate", f"{tmp_path}/\x1b[2J.mp4", "mask.png", "-o", str(tmp_path / "out")]) == 2
    text = stderr_text(capsys)
    assert "\x1b" not in text
    assert "\\x1b[2J.mp4" in text


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+1", "-1", "@sum"])
def test_a_name_that_a_spreadsheet_would_evaluate_is_refused(tmp_path, name):
    with pytest.raises(LabelError, match="would be a formula in a spreadsheet"):
        check_names({"1": name})
    (tmp_path / "points.csv").write_text(f'frame,name,x,y,visible\n0,"{name}",1,2,1\n')
    with pytest.raises(LabelError, match="would be a formula in a spreadsheet"):
        Keypoints.read(tmp_path / "points.csv")


# A full disk


@pytest.mark.slow  # a disk of its own, and a process that imports torch
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can make a small disk")
def test_a_full_disk_gives_one_line_and_a_run_that_can_be_resumed(tmp_path):
    world = small_world(frames=60)
    clip, mask = write_clip(tmp_path / "clip.mp4", world), write_mask(tmp_path / "first.png", world)
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", disk], check=False).returncode:
        pytest.skip("this machine cannot mount a disk")
    words = [sys.executable, "-m", "timecycle", "propagate", clip, mask, "--encoder", "rgb", "-o", disk / "out"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr
        subprocess.run(["mount", "-o", "remount,size=50M", disk], check=True)
        again = subprocess.run([*words, "--resume"], capture_output=True, text=True, check=False)
        assert again.returncode == 0, again.stderr
        whole = subprocess.run([*words[:-1], tmp_path / "whole"], capture_output=True, text=True, check=False)
        assert whole.returncode == 0, whole.stderr
        for path in sorted((tmp_path / "whole" / "labels").iterdir()):
            assert (disk / "out" / "labels" / path.name).read_bytes() == path.read_bytes()
    finally:
        subprocess.run(["umount", disk], check=True)
