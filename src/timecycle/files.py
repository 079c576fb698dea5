"""Atomic writes, checksums and locks: the only module that depends on how the operating system treats files."""

import contextlib
import hashlib
import io
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from timecycle.errors import OutputError

_DIGEST_BYTES = 32
_START_AGAIN = "start again with --overwrite"


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` when the block ends; on any failure the old file stays."""
    path = Path(path)
    with writing(path):
        # `mkstemp` makes private files. A file opened under a random name gets the mode that the umask gives to any new
        # file; reading the umask means setting it, which other threads would notice.
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        file = temporary.open("xb")
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def atomic_text(path: str | Path) -> Iterator[io.TextIOWrapper]:
    """Open a temporary text file, UTF-8 without translated newlines, that replaces `path` when the block ends."""
    with atomic_write(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.detach()  # flushes; `atomic_write` closes the file


def sync_folder(folder: Path) -> None:
    """Flush the folder's entries to the disk: until then, a power failure may undo a rename."""
    if os.name == "nt":  # Windows cannot open folders, and NTFS journals renames
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def clear_unfinished(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files and folders that killed processes left in a folder: all, or those of `name`.

    Nobody else may be writing these files.
    """
    prefix = "." if name is None else f".{name}."
    for temporary in folder.glob(".*.part"):
        if not temporary.name.startswith(prefix):
            continue
        if temporary.is_dir() and not temporary.is_symlink():
            shutil.rmtree(temporary)
        else:
            temporary.unlink(missing_ok=True)


def copy_file(source: Path, target: Path) -> None:
    """Copy `source` to `target` atomically; a symbolic link at `target` is replaced, not followed."""
    with source.open("rb") as old, atomic_write(target) as new:
        shutil.copyfileobj(old, new, 1 << 20)


def prepend_checksum(content: bytes) -> bytes:
    """Return the content with its SHA-256 in front of it, for `read_checksummed`."""
    return hashlib.sha256(content).digest() + content


def read_checksummed(path: Path) -> bytes:
    """Read a file written with `prepend_checksum`; raise OutputError if its content does not match its checksum."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise OutputError(f"{path} cannot be read: {error.strerror or error}", remedy=_START_AGAIN) from error
    content = data[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != data[:_DIGEST_BYTES]:
        raise OutputError(f"{path} is damaged: its checksum is wrong", remedy=_START_AGAIN)
    return content


def write_text(path: str | Path, text: str) -> None:
    """Write `text` atomically, as UTF-8 and without translating newlines."""
    with atomic_write(path) as file:
        file.write(text.encode())


def make_folder(path: Path) -> Path:
    """Create the folder and its parents if they are missing, and return it."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def user_cache(kind: str, source: str) -> Path:
    """Return the folder of the user's cache for one source, such as a folder of videos or a pack's address."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "timecycle" / kind / hashlib.sha256(source.encode()).hexdigest()[:20]


def sha256(paths: Iterable[Path]) -> str:
    """Return one SHA-256, in hex, over the contents of the files in this order."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Lock the folder for this process; raise OutputError at once if another process holds it.

    The operating system releases the lock when the process ends, however it ends. filelock opens no symbolic link, and
    takes a lock file that was removed between opening and locking for one in use.
    """
    path = folder / ".lock"
    with writing(path):
        folder.stat()  # filelock would create a missing folder
        try:
            held = FileLock(path, blocking=False, fallback_to_soft=False).acquire()
        except Timeout:
            raise OutputError(
                f"{folder} is in use by another run",
                remedy="wait for that run to end, or choose another output folder with -o",
            ) from None
    with held:
        try:
            yield
        finally:
            if os.name != "nt":  # Windows cannot remove an open file; there filelock removes it on release
                path.unlink(missing_ok=True)  # while it is held: afterwards it may be the next run's


@contextlib.contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Lock the file at `path` for this process; wait while another process holds it."""
    with writing(path), FileLock(path, fallback_to_soft=False):
        yield


def is_special(path: Path) -> bool:
    """Return whether the path exists and is a pipe, a socket or a device."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def frame_number(path: Path) -> int | None:
    """Return the last number in a file's name (12 for shot2_0012.png), or None if it has no number."""
    digits = re.findall(r"\d+", path.stem)
    return int(digits[-1]) if digits else None


def natural_order(path: Path) -> tuple[tuple[int, int | str], ...]:
    """Return a sort key that puts frame2 before frame10."""
    parts = re.split(r"(\d+)", path.name)
    # The name breaks ties, so that the order of frame1 and frame01 is fixed.
    return (*((0, int(part)) if part.isdecimal() else (1, part) for part in parts), (-1, path.name))


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise errors of the operating system as an OutputError that names the path."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}",
            remedy="choose a folder you may write to, with free space, with -o",
        ) from error
