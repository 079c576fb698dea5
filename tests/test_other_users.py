"""What a user may not read or write is named in one line. Root may everything, so these run as another user."""

import contextlib
import io
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from clips import small_world, write_clip, write_mask
from timecycle.cli.main import main

NOBODY = 65534
FAST = ("--preset", "fast", "--encoder", "rgb")

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user"
)


@pytest.fixture(scope="module")
def place():
    """A folder that others may look into, with a clip, a mask and a run; tmp_path is closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="timecycle-test-"))
    folder.chmod(0o755)
    world = small_world(frames=4)
    write_clip(folder / "clip.mp4", world)
    write_mask(folder / "first.png", world)
    # Also imports all that is needed: another user may not be allowed to read the interpreter's packages.
    assert (
        main(["propagate", str(folder / "clip.mp4"), str(folder / "first.png"), "-o", str(folder / "run"), *FAST]) == 0
    )
    yield folder
    shutil.rmtree(folder)


def as_nobody(*words: object) -> tuple[int, str]:
    """Run a command as a user without rights; returns its exit code and what it said."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 99
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            said = io.StringIO()
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                code = main([str(word) for word in words])
            os.write(writer, said.getvalue().encode())
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("what", ["clip.mp4", "first.png"])
def test_an_input_that_may_not_be_read_is_named(place, what):
    (place / what).chmod(0o600)
    (place / "open").mkdir(exist_ok=True)
    (place / "open").chmod(0o777)
    code, said = as_nobody("propagate", place / "clip.mp4", place / "first.png", "-o", place / "open/out", *FAST)
    (place / what).chmod(0o644)
    assert code == 2, said
    assert what in said
    assert "Traceback" not in said


def test_an_output_that_may_not_be_written_is_named(place):
    code, said = as_nobody("propagate", place / "clip.mp4", place / "first.png", "-o", place / "new", *FAST)
    assert code == 2, said
    assert str(place / "new") in said
    assert "Traceback" not in said


@pytest.mark.parametrize("command", ["check", "correct", "undo", "overwrite"])
def test_somebody_elses_run_is_left_as_it_is(place, command):
    words = {
        "check": ("check", place / "run"),
        "correct": ("correct", place / "run", f"2={place / 'first.png'}"),
        "undo": ("correct", place / "run", "--undo"),
        "overwrite": ("propagate", place / "clip.mp4", place / "first.png", "-o", place / "run", *FAST, "--overwrite"),
    }
    before = contents(place / "run")
    code, said = as_nobody(*words[command])
    assert code == 2, said
    assert "Traceback" not in said
    assert contents(place / "run") == before
