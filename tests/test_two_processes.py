"""Commands refuse an output folder that another process is using.

Two `bulk` processes with one output folder share the work instead: tests/scale/test_bulk.py.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from clips import small_world, write_clip, write_mask
from folders import contents
from timecycle.cli.main import main

HOLD = "import sys; from pathlib import Path; from timecycle.files import lock\n" + (
    "with lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
)
FAST = ("--preset", "fast", "--encoder", "rgb")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    world = small_world(frames=6)
    (folder / "videos").mkdir()
    write_clip(folder / "videos/clip.mp4", world)
    write_mask(folder / "first.png", world)
    return folder


def words_of(command: str, inputs: Path, out: Path) -> list[str]:
    clip, mask = inputs / "videos/clip.mp4", inputs / "first.png"
    words = {
        "propagate": ("propagate", clip, mask, "-o", out, *FAST, "--overwrite"),
        "resume": ("propagate", clip, mask, "-o", out, *FAST, "--resume"),
        "correct": ("correct", out, f"3={mask}"),
        "undo": ("correct", out, "--undo"),
        "check": ("check", out),
        "train": ("train", inputs / "videos", "-o", out),
        "pack": ("pack", inputs / "videos", inputs / "pack", "--work", out),
    }
    return [str(word) for word in words[command]]


@pytest.mark.parametrize("command", ["propagate", "resume", "correct", "undo", "check", "train", "pack"])
def test_a_folder_in_use_is_refused_and_left_unchanged(inputs, tmp_path, capsys, command):
    out = tmp_path / "out"
    if command not in ("train", "pack"):
        assert main(words_of("propagate", inputs, out)) == 0
    if command == "undo":
        assert main(words_of("correct", inputs, out)) == 0
    out.mkdir(exist_ok=True)
    before = contents(out)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        capsys.readouterr()
        code = main(words_of(command, inputs, out))
        error = capsys.readouterr().err
        holder.communicate()
    assert (code, contents(out)) == (2, before)
    assert "is in use by another run" in error
    if command != "train":  # which would run for minutes
        assert main(words_of(command, inputs, out)) in (0, 1)  # after the other process has ended
