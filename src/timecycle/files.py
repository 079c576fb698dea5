"""Atomic writes, checksums and locks: the only module that knows how an operating system behaves."""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from timecycle.errors import OutputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_DIGEST_BYTES = 32
_BEGIN_ANEW = "begin anew with --overwrite"


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """A file that appears under `path` whole or not at all; on any failure the old file stays."""
    path = Path(path)
    with writing(path):
        # A random name instead of `mkstemp`, whose files are private: the system then gives a new file its usual mode.
        # The process's umask cannot be read without setting it, which other threads would notice.
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


def sync_folder(folder: Path) -> None:
    """Bring the folder's names to the disk: until then, a rename may be undone by a loss of power."""
    if os.name == "nt":  # folders cannot be opened there, and renames are journalled
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def clear_parts(folder: Path) -> None:
    """Remove what atomic writes of a killed process left in a folder; only for who alone writes there."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)


def copy_file(source: Path, target: Path) -> None:
    """Put a copy in the place of `target`, whole or not at all; a link there is replaced, never followed."""
    with source.open("rb") as old, atomic_write(target) as new:
        shutil.copyfileobj(old, new, 1 << 20)


def seal(content: bytes) -> bytes:
    """The content with its checksum before it, for `unseal`."""
    return hashlib.sha256(content).digest() + content


def unseal(path: Path) -> bytes:
    """What was written with `seal`; a file that was changed since is refused."""
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise OutputError(f"{path} cannot be read: {error.strerror or error}", remedy=_BEGIN_ANEW) from error
    content = whole[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != whole[:_DIGEST_BYTES]:
        raise OutputError(f"{path} is damaged: its checksum is wrong", remedy=_BEGIN_ANEW)
    return content


def write_text(path: str | Path, text: str) -> None:
    """Write `text` (UTF-8, newlines as they are) atomically."""
    with atomic_write(path) as file:
        file.write(text.encode())


def make_folder(path: Path) -> Path:
    """The folder, made if it was missing."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def user_cache(kind: str, place: str) -> Path:
    """Where the user's caches keep what belongs to a place."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "timecycle" / kind / hashlib.sha256(place.encode()).hexdigest()[:20]


def sha256(paths: Iterable[Path]) -> str:
    """One checksum over the contents of the files, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; a second process that wants it is refused at once."""
    if fcntl is None:
        yield
        return
    path = folder / ".lock"
    with writing(path):
        # Never through a link: it might be made anywhere.
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "r+")
    with file:
        with writing(path):
            held = _held(file, path)
        if not held:
            raise OutputError(
                f"{folder} is in use by another run",
                remedy="wait for that run to end, or choose another output folder with -o",
            )
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # while it is still held: afterwards it may be the next run's


@contextlib.contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Hold the file at `path` for this process; a second process waits."""
    with writing(path), path.open("a") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_special(path: Path) -> bool:
    """Whether something that exists is neither a file nor a folder: a pipe, a socket or a device."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def frame_number(path: Path) -> int | None:
    """The last number in a file's name, its frame's: 12 of shot2_0012.png. None where there is none."""
    digits = re.findall(r"\d+", path.stem)
    return int(digits[-1]) if digits else None


def natural_order(path: Path) -> tuple[tuple[int, int | str], ...]:
    """Sort key that puts frame2 before frame10."""
    parts = re.split(r"(\d+)", path.name)
    # The name itself comes last, so that frame1 and frame01 always have the same order.
    return (*((0, int(part)) if part.isdecimal() else (1, part) for part in parts), (-1, path.name))


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals into one line with a remedy."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}",
            remedy="choose a folder you may write to, with free space, with -o",
        ) from error


def _held(file: IO[str], path: Path) -> bool:
    """Take the lock if it is free."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A run that ended between our opening and our locking has removed the file: ours has no name any more,
        # and a third run would lock a new one.
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False
