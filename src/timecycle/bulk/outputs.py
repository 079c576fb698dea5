"""Where outputs go: each appears whole, once, and its record after it. What has a record is done.

A folder gets a folder for every video, as `timecycle propagate` writes it; an object store gets one tar, since a
store of many small objects is slow and dear.
"""

import glob
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from timecycle.errors import MissingError
from timecycle.files import make_folder, writing
from timecycle.store import Store, is_address, open_store

_RECORDS = "records"
_READERS = 8  # threads: nearly all of their time is waiting


class Outputs:
    """The place of a bulk run's outputs."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._store: Store = open_store(place)
        self._folder = None if is_address(place) else make_folder(Path(place))

    def done(self) -> dict[str, dict[str, Any]]:
        """Names and records of what is finished."""
        names = [name for name in self._store.sizes(_RECORDS) if name.endswith(".json")]
        with ThreadPoolExecutor(_READERS) as pool:
            records = pool.map(lambda name: json.loads(self._store.read(name)), names)
            return {record["name"]: record for record in records}

    def work_folder(self, name: str) -> tempfile.TemporaryDirectory[str]:
        """An empty folder for one video; on the disk that the output goes to, if it goes to a disk."""
        if self._folder is None:
            return tempfile.TemporaryDirectory(prefix="timecycle-")
        for old in self._folder.glob(f".{glob.escape(name)}.*.part"):  # of a try that was killed
            shutil.rmtree(old, ignore_errors=True)
        return tempfile.TemporaryDirectory(dir=self._folder, prefix=f".{name}.", suffix=".part")

    def commit(self, name: str, folder: Path, record: Mapping[str, Any]) -> None:
        """Put a finished folder into its place, then its record.

        A worker that outlives its driver may come second with the same bytes: what has a record is left as it is.
        """
        if self.read(f"{_RECORDS}/{name}.json"):
            return
        if self._folder is None:
            self._commit_tar(name, folder)
        else:
            self._commit_folder(self._folder / name, folder)
        self._store.write(f"{_RECORDS}/{name}.json", (json.dumps(record) + "\n").encode())

    def write(self, name: str, text: str) -> None:
        """A file about the whole run."""
        self._store.write(name, text.encode())

    def read(self, name: str) -> str:
        """It, or nothing if there is none yet."""
        try:
            return self._store.read(name).decode()
        except MissingError:
            return ""

    def _commit_folder(self, target: Path, folder: Path) -> None:
        with writing(target):
            for path in (*(file for file in folder.rglob("*") if file.is_file()), folder):
                _sync(path)
            if target.exists():  # of a try that was killed before its record
                shutil.rmtree(target)
            folder.rename(target)
            _sync(target.parent)

    def _commit_tar(self, name: str, folder: Path) -> None:
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                    content = path.read_bytes()
                    head = tarfile.TarInfo(path.relative_to(folder).as_posix())
                    head.size, head.mode = len(content), 0o644
                    tar.addfile(head, io.BytesIO(content))
            file.flush()
            self._store.put(Path(file.name), f"{name}.tar")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
