"""Atomic writes, folder locks, error texts of the operating system, name order and checksums."""

import hashlib
import os
import signal
import stat
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timecycle import files
from timecycle.errors import OutputError
from timecycle.files import atomic_write, lock, make_folder, natural_order, sha256, waiting_lock, write_text


def python(code, *arguments):
    """Return a command that runs `code` with the package's modules but without its slow `__init__`."""
    package = f"""
    import sys, types
    sys.modules["timecycle"] = types.ModuleType("timecycle")
    sys.modules["timecycle"].__path__ = [{str(Path(files.__file__).parent)!r}]
    """
    return [sys.executable, "-c", textwrap.dedent(package) + textwrap.dedent(code), *map(str, arguments)]


# Atomic writes


def test_written_bytes_are_read_back(tmp_path):
    with atomic_write(tmp_path / "a.bin") as file:
        file.write(b"\x00\r\n\xff")
    assert (tmp_path / "a.bin").read_bytes() == b"\x00\r\n\xff"
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.skipif(sys.platform == "win32", reason="folders are synced on Unix alone")
def test_the_folder_is_synced_after_the_rename(tmp_path, monkeypatch):
    """Without it, a power failure may bring the old file back."""
    events = []
    plain_sync, plain_replace = os.fsync, Path.replace

    def fsync(descriptor):
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        plain_sync(descriptor)

    def replace(path, target):
        events.append("rename")
        return plain_replace(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write_text(tmp_path / "a.txt", "x")
    assert events == ["file", "rename", "folder"]


def test_text_is_utf8_with_untranslated_newlines(tmp_path):
    write_text(tmp_path / "a.txt", "φ\n1\r\n")
    assert (tmp_path / "a.txt").read_bytes() == "φ\n1\r\n".encode()


def test_the_old_file_stays_until_the_new_one_is_complete(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    with atomic_write(tmp_path / "a.txt") as file:
        file.write(b"new")
        file.flush()
        assert (tmp_path / "a.txt").read_text() == "old"
    assert (tmp_path / "a.txt").read_text() == "new"


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_failed_write_leaves_only_the_old_file(tmp_path, failure):
    write_text(tmp_path / "a.txt", "old")

    def write_half():
        with atomic_write(tmp_path / "a.txt") as file:
            file.write(b"half of the ne")
            raise failure

    with pytest.raises(failure):
        write_half()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_failed_first_write_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="no"), atomic_write(tmp_path / "a.txt"):
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="modes and umask are Unix's")
def test_a_written_file_has_the_mode_of_any_new_file(tmp_path):
    write_text(tmp_path / "a.txt", "a")
    (tmp_path / "b.txt").write_text("b")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "b.txt").stat().st_mode


@pytest.mark.skipif(sys.platform == "win32", reason="modes and umask are Unix's")
def test_writing_never_changes_the_umask(tmp_path, monkeypatch):
    """Two threads that set and restore it can leave it at 0, and every new file writable for everyone."""
    before = os.umask(0o027)
    calls = []
    plain = os.umask
    monkeypatch.setattr(os, "umask", lambda mask: calls.append(mask) or plain(mask))
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: write_text(tmp_path / f"{i % 40}.txt", str(i)), range(400)))
        assert calls == []
        (tmp_path / "plain").write_text("")
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}
        assert len(list(tmp_path.iterdir())) == 41
    finally:
        plain(before)


def test_concurrent_writes_leave_one_complete_text(tmp_path):
    texts = [str(i) * 10_000 for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_text(tmp_path / "a.txt", text), texts * 10))
    assert (tmp_path / "a.txt").read_text() in texts
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.skipif(sys.platform == "win32", reason="resource limits are Unix's")
def test_a_full_disk_gives_one_line_with_a_remedy_and_keeps_the_old_file(tmp_path):
    """A limit on file sizes stands in for a full disk: the system fails in the middle of a write."""
    write_text(tmp_path / "big.bin", "old")
    code = """
    import resource, sys
    from pathlib import Path
    from timecycle.errors import OutputError
    from timecycle.files import atomic_write
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    try:
        with atomic_write(Path(sys.argv[1])) as file:
            for _ in range(100):
                file.write(bytes(10_000))
    except OutputError as error:
        print(error)
    """
    done = subprocess.run(python(code, tmp_path / "big.bin"), capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"cannot write {tmp_path / 'big.bin'}: ")
    assert done.stdout.endswith("; choose a folder you may write to, with free space, with -o\n")
    assert done.stdout.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["big.bin"]
    assert (tmp_path / "big.bin").read_text() == "old"


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    """Nobody can write below a regular file, not even root."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*file.a\.txt: .+; choose a folder you may write to"):
        write_text(tmp_path / "file" / "a.txt", "x")
    with pytest.raises(OutputError, match=r"cannot write .*file.folder: .+; choose a folder"):
        make_folder(tmp_path / "file" / "folder")
    with pytest.raises(OutputError, match=r"cannot write .*\.lock: "), lock(tmp_path / "file"):
        pass


def test_make_folder_creates_parents_and_accepts_an_existing_folder(tmp_path):
    assert make_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert make_folder(tmp_path / "a" / "b").is_dir()


def test_make_folder_refuses_a_path_that_is_a_file(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*out"):
        make_folder(tmp_path / "out")


# Locks

TRY_LOCK = """
import sys
from pathlib import Path
from timecycle.errors import OutputError
from timecycle.files import lock
for _ in range(2):  # a refused process must not release the holder's lock
    try:
        with lock(Path(sys.argv[1])):
            print("locked")
    except OutputError as error:
        print(error)
"""


def test_a_second_process_is_refused_while_the_first_holds_the_lock(tmp_path):
    with lock(tmp_path):
        done = subprocess.run(python(TRY_LOCK, tmp_path), capture_output=True, text=True, check=True)
    refusal = (
        f"{tmp_path} is in use by another run; wait for that run to end, or choose another output folder with -o\n"
    )
    assert done.stdout == refusal * 2


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_killed_process_releases_its_lock(tmp_path):
    code = """
    import os, signal, sys
    from pathlib import Path
    from timecycle.files import lock
    with lock(Path(sys.argv[1])):
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert subprocess.run(python(code, tmp_path), check=False).returncode == -signal.SIGKILL
    assert (tmp_path / ".lock").exists()
    with lock(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("exists", [True, False])
def test_a_lock_is_not_taken_through_a_symlink(tmp_path, exists):
    folder, target = make_folder(tmp_path / "out"), tmp_path / "elsewhere"
    if exists:
        target.write_text("precious")
    (folder / ".lock").symlink_to(target)
    with pytest.raises(OutputError, match=r"cannot write .*\.lock: "), lock(folder):
        pass
    assert (target.read_text() if exists else target.exists()) == ("precious" if exists else False)


def test_locking_a_missing_folder_does_not_create_it(tmp_path):
    with pytest.raises(OutputError, match=r"cannot write .*\.lock: No such file"), lock(tmp_path / "missing"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_waiting_lock_waits_for_its_holder(tmp_path):
    code = """
    import sys
    from pathlib import Path
    from timecycle.files import waiting_lock
    with waiting_lock(Path(sys.argv[1])):
        print("locked")
    """
    with waiting_lock(tmp_path / "x.lock"):
        waiter = subprocess.Popen(python(code, tmp_path / "x.lock"), stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            waiter.communicate(timeout=1)
    assert waiter.communicate(timeout=60) == ("locked\n", None)


@pytest.mark.parametrize("failure", [None, ValueError])
def test_a_released_lock_leaves_no_file_and_can_be_taken_again(tmp_path, failure):
    for _ in range(2):
        try:
            with lock(tmp_path):
                if failure:
                    raise failure
        except ValueError:
            pass
        assert list(tmp_path.iterdir()) == []


def test_a_lock_file_removed_before_it_is_locked_does_not_count(tmp_path, monkeypatch):
    """Between opening and locking, the former holder may have ended and removed the file."""
    fcntl = pytest.importorskip("fcntl")
    plain = fcntl.flock

    def flock_after_removal(file, how):
        (tmp_path / ".lock").unlink()
        plain(file, how)

    monkeypatch.setattr(fcntl, "flock", flock_after_removal)
    with pytest.raises(OutputError, match="in use by another run"), lock(tmp_path):
        pass


# Order and checksums


def test_numbers_in_names_sort_as_numbers():
    names = ["frame10.png", "frame2.png", "frame1.png", "a1b10", "a1b9", "frame.png", "10", "9"]
    ordered = [path.name for path in sorted(map(Path, names), key=natural_order)]
    assert ordered == ["9", "10", "a1b9", "a1b10", "frame1.png", "frame2.png", "frame10.png", "frame.png"]


@given(st.sets(st.text(st.sampled_from("ab019²٣.½"), min_size=1).filter(lambda s: s.strip("."))))
def test_natural_order_does_not_depend_on_the_input_order(names):
    paths = [Path(name) for name in names]
    backwards = list(reversed(paths))
    assert sorted(paths, key=natural_order) == sorted(backwards, key=natural_order)


def test_a_checksum_covers_the_concatenated_contents(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(b"x" * (1 << 20) + b"y")
    second.write_bytes(b"z")
    assert sha256([first]) == hashlib.sha256(first.read_bytes()).hexdigest()
    assert sha256([first, second]) == hashlib.sha256(first.read_bytes() + b"z").hexdigest()
    assert sha256([second, first]) != sha256([first, second])
    assert sha256([]) == hashlib.sha256().hexdigest()
