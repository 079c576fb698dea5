"""Leases: among all processes that write to one output, each video has one owner at a time.

In a folder, a lease is a locked file, which the system unlocks when its owner ends, however it ends. In an object
store, and on a file system without locks, it is an object that its owner renews; others may take it after it expired.
"""

import errno
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from timecycle.errors import InUseError, MissingError, StoreError
from timecycle.files import make_folder, writing
from timecycle.store import Store

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LEASES = ".leases"
LEASE_SECONDS = 120.0  # much longer than a busy machine or a slow store delays a renewal
_RENEWALS = 4  # in this time
_READS, _READ_SECONDS = 20, 0.25  # some stores show a new object a little later
_NO_LOCKS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL}
_REMEDY = "wait for it to end"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The process that holds a lease, identified so that others can find out whether it is still alive."""

    host: str
    space: str  # of process ids: boot and container; empty where the system does not say
    pid: int
    started: str  # start time of the process, since process ids are reused
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @classmethod
    def this_process(cls) -> "Owner":
        return cls(host=socket.gethostname(), space=_process_space(), pid=os.getpid(), started=_start_time(os.getpid()))

    @property
    def is_gone(self) -> bool:
        """Whether the process is known to have ended; never true of another machine or container."""
        return bool(self.space) and self.space == _process_space() and _start_time(self.pid) != self.started


def _process_space() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux
        return ""


def _start_time(pid: int) -> str:
    """The start time of a process in ticks since boot; empty if it has ended or is a zombie."""
    try:
        # The command name may hold anything. After it, the state is field 0 and the start time field 19.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


class Lease:
    """The right to write the output of one video."""

    is_exclusive = True  # no other process can hold it: unfinished files were left by processes that ended

    def check(self) -> None:
        """Raise InUseError if another process holds the lease now."""


@contextmanager
def lease(store: Store, folder: Path | None, name: str) -> Iterator[Lease]:
    """Hold the lease of a video; InUseError if another process holds it."""
    if folder is not None and fcntl is not None:
        path = folder / LEASES / f"{name}.lock"
        descriptor = _open(path)
        try:
            if _lock(descriptor, path, name):
                try:
                    yield Lease()
                finally:
                    path.unlink(missing_ok=True)  # while it is locked: afterwards it may belong to the next owner
                return
        finally:
            os.close(descriptor)
    with renewed_lease(store, name) as held:
        yield held


@contextmanager
def renewed_lease(store: Store, name: str, *, seconds: float = LEASE_SECONDS) -> Iterator["RenewedLease"]:
    """Hold a lease that is an object in a store; a thread renews it."""
    held = RenewedLease(store, name, seconds=seconds)
    try:
        held.take()
    except BaseException:
        held.release()  # or it would keep this process out too, until it expires
        raise
    stop = threading.Event()
    thread = threading.Thread(target=held.renew, args=(stop,), name=f"lease-{name}", daemon=True)
    thread.start()
    try:
        yield held
    finally:
        stop.set()
        thread.join()
        held.release()


class RenewedLease(Lease):
    """An object that says which process holds the video, and until when.

    Times are those of the owners' clocks. If clocks differ by more than the length of a lease, two processes may work
    on one video. This costs time only: commits are atomic, and the record is compared with the output.
    """

    is_exclusive = False

    def __init__(self, store: Store, name: str, *, seconds: float) -> None:
        self._store, self._video, self._seconds = store, name, seconds
        self._name = f"{LEASES}/{name}.json"
        self._owner = Owner.this_process()
        self._until = 0.0  # by the monotonic clock

    def take(self) -> None:
        """Take the lease if it is free, or its owner has ended or let it expire."""
        held = self._read()
        if held is not None and not _has_expired(held):
            raise _in_use(self._video, held)
        if held is None:
            self._store.create(self._name, self._text())
        else:
            self._store.write(self._name, self._text())
        # A store may replace the object instead of refusing, and two processes may replace an expired lease: the last
        # one holds it.
        self._until = time.monotonic() + self._seconds
        for _ in range(_READS):
            if (held := self._read()) is not None:
                break
            time.sleep(_READ_SECONDS)
        if not self._is_ours(held):
            raise _in_use(self._video, held or {})

    def renew(self, stop: threading.Event) -> None:
        """Renew the lease until `stop` is set, or until another process holds it."""
        while not stop.wait(self._seconds / _RENEWALS):
            with suppress(StoreError):  # a short outage of the store; `check` notices a long one
                start = time.monotonic()
                if not self._is_ours(self._read()):
                    self._until = 0.0
                    return
                self._store.write(self._name, self._text())
                self._until = start + self._seconds

    def check(self) -> None:
        held = self._read()
        if time.monotonic() > self._until or not self._is_ours(held):
            raise _in_use(self._video, held or {})

    def release(self) -> None:
        """Remove the lease if it is still ours; if that fails it expires."""
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


def _has_expired(held: dict[str, Any]) -> bool:
    try:
        owner = Owner(**{name: held[name] for name in ("host", "space", "pid", "started", "token")})
        return float(held["until"]) < time.time() or owner.is_gone
    except (KeyError, TypeError, ValueError):  # not a lease
        return True


def _in_use(name: str, held: dict[str, Any]) -> InUseError:
    return InUseError(f"{name} is in use by process {held.get('pid')} on {held.get('host')}", remedy=_REMEDY)


def _open(path: Path) -> int:
    for _ in range(10):
        make_folder(path.parent)
        with writing(path), suppress(FileNotFoundError):  # a process that ended removed the empty folder
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    raise InUseError(f"{path.parent} keeps being removed", remedy="find out which program removes it")


def _lock(descriptor: int, path: Path, name: str) -> bool:
    """Lock the file; False where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # If the owner ended between our open and our lock, it removed the file, and we locked one without a name.
        if not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise InUseError(f"{name} has just been in use by another process", remedy=_REMEDY)
    except (BlockingIOError, FileNotFoundError) as error:
        holder = os.pread(descriptor, 500, 0).decode(errors="replace") or "another process"
        raise InUseError(f"{name} is in use by {holder}", remedy=_REMEDY) from error
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    with writing(path):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(Owner.this_process()).encode(), 0)
    return True
