"""Which process holds a lease, told so that another can find out whether it still lives."""

import os
import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A process, for as long as it holds one lease."""

    host: str
    space: str  # of process numbers: boot and container; empty where the system does not tell
    pid: int
    started: str  # when the process began, since numbers are used again
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @classmethod
    def here(cls) -> "Owner":
        """This process."""
        return cls(host=socket.gethostname(), space=_space(), pid=os.getpid(), started=_started(os.getpid()))

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended; of another machine or container nothing is known."""
        return bool(self.space) and self.space == _space() and _started(self.pid) != self.started


def _space() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux
        return ""


def _started(pid: int) -> str:
    """The start of a process in ticks since boot; empty if there is no such process, or it is a zombie."""
    try:
        # Behind the command's name, which may hold anything: state is the first field, the start the 20th.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
