"""A first look at HDF5 files by a process of its own.

The C library of HDF5 can crash on a damaged file, or read it without end. It then does so in a process that may end;
this takes a quarter of a second.
"""

import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from timecycle.errors import LabelError

_SECONDS = 5  # of the processor
_BYTES_PER_SECOND = 10 << 20  # a slow reader
_CRASHED = 1 << 30  # Windows reports a crash as such an exit code, other systems as a negative one
# Read all attributes and values but the pixels of videos, which no reader here asks for. What merely cannot be read is
# left to the reader, whose message is better.
_LOOK = """
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError, OSError):
    pass  # Windows has no such limits
import h5py
def look(name, item):
    try:
        dict(item.attrs)
        if isinstance(item, h5py.Dataset) and not name.endswith("/video"):
            item[()]
    except Exception:
        pass
with h5py.File(sys.argv[1], "r") as file:
    look("", file)
    file.visititems(look)
"""


def check_hdf5(path: Path, *, remedy: str) -> None:
    """Raise LabelError for a file on which the library of HDF5 crashes or does not end."""
    state = path.stat()
    if not _ends_well(path.resolve(), state.st_size, state.st_mtime_ns):
        raise LabelError(f"{path} is damaged: the library of HDF5 fails on it", remedy=remedy)


@lru_cache(maxsize=64)
def _ends_well(path: Path, size_bytes: int, _: int) -> bool:
    seconds = _SECONDS + size_bytes // _BYTES_PER_SECOND
    # -P: modules in the current folder are not imported. An error of Python is an exit code above 0.
    words = [sys.executable, "-P", "-c", _LOOK, str(path), str(seconds)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603  our own
    return 0 <= done.returncode < _CRASHED
