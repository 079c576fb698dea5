"""One owner for every video at a time, among all processes that write to one output.

In a folder a lease is a locked file: the system frees it when its owner ends, however it ends, and never before. An
object store, and a file system without locks, get an object that the owner renews: others may take it once it lapsed.
"""

import errno
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from timecycle.bulk.owner import Owner
from timecycle.errors import InUseError, MissingError, StoreError
from timecycle.files import make_folder, writing
from timecycle.store import Store

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LEASES = ".leases"
LEASE_SECONDS = 120.0  # far above what a busy machine or a slow store delays a renewal by
_RENEWALS = 4  # in that time
_LOOKS, _LOOK_SECONDS = 20, 0.25  # for what was just written: some stores show it a little later
_NO_LOCKS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL}
_REMEDY = "wait for it to end"


class Lease:
    """The right to write one video's output."""

    is_exclusive = True  # nobody else can have it: what lies about is of processes that ended

    def check(self) -> None:
        """Raise InUseError if another process has it by now."""


@contextmanager
def lease(store: Store, folder: Path | None, name: str) -> Iterator[Lease]:
    """Hold the lease of a video; InUseError if another process has it."""
    if folder is not None and fcntl is not None:
        path = folder / LEASES / f"{name}.lock"
        descriptor = _open(path)
        try:
            if _lock(descriptor, path, name):
                try:
                    yield Lease()
                finally:
                    path.unlink(missing_ok=True)  # while it is held: afterwards it may be the next owner's
                return
        finally:
            os.close(descriptor)
    with renewed_lease(store, name) as held:
        yield held


@contextmanager
def renewed_lease(store: Store, name: str, *, seconds: float = LEASE_SECONDS) -> Iterator["RenewedLease"]:
    """Hold a lease that is an object of the store, renewed by a thread."""
    held = RenewedLease(store, name, seconds=seconds)
    try:
        held.take()
    except BaseException:
        held.give_back()  # or it would keep this process out too, until it lapses
        raise
    stop = threading.Event()
    thread = threading.Thread(target=held.keep, args=(stop,), name=f"lease-{name}", daemon=True)
    thread.start()
    try:
        yield held
    finally:
        stop.set()
        thread.join()
        held.give_back()


class RenewedLease(Lease):
    """An object that says who holds the video and until when.

    Times are those of the owners' clocks. Clocks that differ by more than the lease's time make two processes do one
    video, which costs time and nothing else: what is committed appears at once, and its record is compared with it.
    """

    is_exclusive = False

    def __init__(self, store: Store, name: str, *, seconds: float) -> None:
        self._store, self._video, self._seconds = store, name, seconds
        self._name = f"{LEASES}/{name}.json"
        self._owner = Owner.here()
        self._until = 0.0  # by the monotonic clock

    def take(self) -> None:
        """Take it if it is free, or its owner has ended or let it lapse."""
        held = self._read()
        if held is not None and not _has_lapsed(held):
            raise _in_use(self._video, held)
        if held is None:
            self._store.create(self._name, self._text())
        else:
            self._store.write(self._name, self._text())
        # A store may ignore that it should only create, and two may replace a lapsed lease: the last one has it.
        self._until = time.monotonic() + self._seconds
        for _ in range(_LOOKS):
            if (held := self._read()) is not None:
                break
            time.sleep(_LOOK_SECONDS)
        if not self._is_ours(held):
            raise _in_use(self._video, held or {})

    def keep(self, stop: threading.Event) -> None:
        """Renew it until told to stop, or until it is another's."""
        while not stop.wait(self._seconds / _RENEWALS):
            with suppress(StoreError):  # a store that is away for a moment; `check` knows for how long
                began = time.monotonic()
                if not self._is_ours(self._read()):
                    self._until = 0.0
                    return
                self._store.write(self._name, self._text())
                self._until = began + self._seconds

    def check(self) -> None:
        held = self._read()
        if time.monotonic() > self._until or not self._is_ours(held):
            raise _in_use(self._video, held or {})

    def give_back(self) -> None:
        """Remove it if it is still ours; where that fails it lapses."""
        with suppress(StoreError):
            if self._is_ours(self._read()):
                self._store.remove(self._name)

    def _is_ours(self, held: dict[str, Any] | None) -> bool:
        return held is not None and held.get("token") == self._owner.token

    def _read(self) -> dict[str, Any] | None:
        try:
            held = json.loads(self._store.read(self._name))
        except MissingError:
            return None
        except (ValueError, RecursionError):
            return {}
        return held if isinstance(held, dict) else {}

    def _text(self) -> bytes:
        return json.dumps(asdict(self._owner) | {"until": time.time() + self._seconds}).encode()


def _has_lapsed(held: dict[str, Any]) -> bool:
    try:
        owner = Owner(**{name: held[name] for name in ("host", "space", "pid", "started", "token")})
        return float(held["until"]) < time.time() or owner.is_gone
    except (KeyError, TypeError, ValueError):  # no lease of ours
        return True


def _in_use(name: str, held: dict[str, Any]) -> InUseError:
    return InUseError(f"{name} is in the hands of process {held.get('pid')} on {held.get('host')}", remedy=_REMEDY)


def _open(path: Path) -> int:
    for _ in range(10):
        make_folder(path.parent)
        with writing(path), suppress(FileNotFoundError):  # a process that ended has removed the empty folder
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    raise InUseError(f"{path.parent} is removed again and again", remedy="find out by whom")


def _lock(descriptor: int, path: Path, name: str) -> bool:
    """Lock the file; False where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # An owner that ended between our opening and our locking has removed the file: ours has no name any more.
        if not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise InUseError(f"{name} changes hands", remedy=_REMEDY)
    except (BlockingIOError, FileNotFoundError) as error:
        holder = os.pread(descriptor, 500, 0).decode(errors="replace") or "another process"
        raise InUseError(f"{name} is in the hands of {holder}", remedy=_REMEDY) from error
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    with writing(path):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(Owner.here()).encode(), 0)
    return True
