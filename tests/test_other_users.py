"""Missing permissions give one line that names the file. Root has all permissions, so commands run as another user."""

import contextlib
import io
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from clips import small_world, write_clip, write_mask
from folders import contents
from timecycle.cli.main import main

NOBODY = 65534
FAST = ("--preset", "fast", "--encoder", "rgb")

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user"
)


@pytest.fixture(scope="module")
def folder():
    """A folder that other users may read, with a clip, a mask and a run; they may not read tmp_path."""
    folder = Path(tempfile.mkdtemp(prefix="timecycle-test-"))
    folder.chmod(0o755)
    world = small_world(frames=4)
    write_clip(folder / "clip.mp4", world)
    write_mask(folder / "first.png", world)
    # This also imports everything: another user may not be allowed to read the interpreter's packages.
    words = ["propagate", folder / "clip.mp4", folder / "first.png", "-o", folder / "run", *FAST]
    assert main([str(word) for word in words]) == 0
    yield folder
    shutil.rmtree(folder)


def as_nobody(*words: object) -> tuple[int, str]:
    """Run a command as a user without permissions; return its exit code and output."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 99
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            output = io.StringIO()
            with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
                code = main([str(word) for word in words])
            os.write(writer, output.getvalue().encode())
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


@pytest.mark.parametrize("name", ["clip.mp4", "first.png"])
def test_an_unreadable_input_is_named(folder, name):
    (folder / name).chmod(0o600)
    (folder / "open").mkdir(exist_ok=True)
    (folder / "open").chmod(0o777)
    code, text = as_nobody("propagate", folder / "clip.mp4", folder / "first.png", "-o", folder / "open/out", *FAST)
    (folder / name).chmod(0o644)
    assert code == 2, text
    assert name in text
    assert "Traceback" not in text


def test_an_unwritable_output_is_named(folder):
    code, text = as_nobody("propagate", folder / "clip.mp4", folder / "first.png", "-o", folder / "new", *FAST)
    assert code == 2, text
    assert str(folder / "new") in text
    assert "Traceback" not in text


@pytest.mark.parametrize("command", ["check", "correct", "undo", "overwrite"])
def test_a_run_of_another_user_is_left_unchanged(folder, command):
    words = {
        "check": ("check", folder / "run"),
        "correct": ("correct", folder / "run", f"2={folder / 'first.png'}"),
        "undo": ("correct", folder / "run", "--undo"),
        "overwrite": (
            "propagate",
            folder / "clip.mp4",
            folder / "first.png",
            "-o",
            folder / "run",
            *FAST,
            "--overwrite",
        ),
    }
    before = contents(folder / "run")
    code, text = as_nobody(*words[command])
    assert code == 2, text
    assert "Traceback" not in text
    assert contents(folder / "run") == before


def test_labels_are_converted_into_a_folder_of_ones_own_below_one_of_others(folder):
    target = folder / "mine"
    target.mkdir()
    os.chown(target, NOBODY, NOBODY)
    for overwrite in ((), ("--overwrite",)):
        code, said = as_nobody("convert", folder / "run", target, "--to", "yolo", *overwrite)
        assert code == 0, said
        assert sorted(path.name for path in target.iterdir()) == ["data.yaml", "labels"]
    code, said = as_nobody("convert", folder / "run", folder / "new", "--to", "yolo")
    assert (code, "new: Permission denied" in said) == (2, True), said
