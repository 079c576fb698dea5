"""The outputs of a bulk run. Each output is committed atomically, and its record is written after it.

In a folder, every video has a folder as `timecycle propagate` writes it. In an object store it has one tar, since many
small objects are slow and expensive. The record of a video, records/NAME.json, lists every file with size and checksum;
it is valid only while the files exist. bulk.json holds the settings that all videos of an output share.
"""

import hashlib
import json
import logging
import os
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from timecycle.bulk.lease import LEASES, Lease, lease
from timecycle.concurrency import read_ahead
from timecycle.errors import InUseError, MissingError, OutputError, SettingsError, StoreError
from timecycle.files import make_folder, sha256, sync_folder, writing
from timecycle.runs.folder import RECORD
from timecycle.store import Store, is_address, open_store

log = logging.getLogger("timecycle")

RECORDS, DEAD, SETTINGS = "records", "dead", "bulk.json"
WORK, _REPLACED = ".work", ".replaced"

Files = dict[str, tuple[int, str]]  # name to size and sha256


class Outputs:
    """A folder or an object store with the outputs of a bulk run."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.store: Store = open_store(location)
        self.folder = None if is_address(location) else make_folder(Path(location))

    # The whole run

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Record the settings of this output, or refuse settings that differ from the recorded ones."""
        text = json.dumps({"timecycle_bulk": 1, **settings}, indent=2) + "\n"
        if not self.read(SETTINGS):
            self.store.create(SETTINGS, text.encode())
        recorded = parse_object(self.read(SETTINGS))
        if recorded is None or recorded.get("timecycle_bulk") != 1:
            raise OutputError(f"{self.location}/{SETTINGS} cannot be used", remedy="choose another output with -o")
        for section, now in json.loads(text).items():
            if not isinstance(now, dict):
                continue
            before = recorded.get(section)
            before = before if isinstance(before, dict) else {}
            for name in {**now, **before}:
                if before.get(name) != now.get(name):
                    raise SettingsError(
                        f"{self.location} was made with {section} {name} = {before.get(name)}, "
                        f"now it is {now.get(name)}",
                        remedy="give the same encoder and settings, or another output with -o",
                    )

    def records(self, under: str = RECORDS) -> dict[str, dict[str, Any]]:
        """Read the records of finished videos, or of failed ones (`DEAD`), by name; invalid records are ignored."""
        names = [name for name in self.store.sizes(under) if name.endswith(".json")]
        read = read_ahead(lambda name: (name, parse_object(self.read(name))), names)
        return {
            fields["name"]: fields
            for name, fields in read
            if fields is not None and name == f"{under}/{fields.get('name')}.json"
        }

    def record(self, name: str) -> dict[str, Any] | None:
        """The record of one video."""
        return parse_object(self.read(f"{RECORDS}/{name}.json"))

    def listing(self) -> dict[str, int]:
        """List names and sizes of all objects for `difference`, with few requests; empty for a folder."""
        return {} if self.folder is not None else self.store.sizes()

    def difference(
        self, record: Mapping[str, Any], *, checksums: bool = False, listing: Mapping[str, int] | None = None
    ) -> str:
        """Describe how an output differs from its record; empty if it does not.

        Sizes are compared, with `checksums` contents too. An output that `timecycle correct` changed is valid: it has
        a history of its own.
        """
        name, listed = record["name"], record.get("files")
        if not isinstance(listed, dict) or not listed:
            return f"the record of {name} lists no files"
        try:
            for file, (size, digest) in listed.items():
                if self.folder is None:
                    problem = self._object_difference(file, size, digest if checksums else None, listing)
                else:
                    problem = _file_difference(self.folder / name / file, size, digest if checksums else None)
                if problem:
                    return "" if self.folder is not None and _is_corrected(self.folder / name) else problem
        except (TypeError, ValueError) as error:
            return f"the record of {name} is invalid: {error}"
        return ""

    def check_replaceable(self, names: Iterable[str]) -> None:
        """Refuse names that other files already have, before any video is processed."""
        if self.folder is not None:
            for name in names:
                _check_replaceable(self.folder / name)

    def write(self, name: str, text: str) -> None:
        """Write a file about the whole run."""
        self.store.write(name, text.encode())

    def read(self, name: str) -> str:
        """Read a file about the whole run; empty if it does not exist."""
        try:
            return self.store.read(name).decode(errors="replace")
        except MissingError:
            return ""

    def remove_empty_folders(self, *, keep_work: bool = False) -> None:
        """Remove the folders of leases and unfinished work, with what killed processes left in them."""
        if self.folder is not None:
            locks = {path.stem for path in (self.folder / LEASES).glob("*.lock")}
            unfinished = set() if keep_work else {path.name for path in (self.folder / WORK).glob("*")}
            for name in sorted(locks | unfinished):
                with suppress(InUseError), self.lease(name) as lease:  # releasing it removes the lock file
                    if not lease.is_exclusive:
                        break  # no locks on this file system
                    if name in unfinished:
                        shutil.rmtree(self.folder / WORK / name, ignore_errors=True)
            for name in (LEASES, WORK):
                with suppress(OSError):  # another process works there
                    (self.folder / name).rmdir()

    # One video

    def lease(self, name: str) -> AbstractContextManager[Lease]:
        """Hold the exclusive right to write a video; InUseError if another process holds it."""
        return lease(self.store, self.folder, name)

    @contextmanager
    def work_folder(self, name: str, lease: Lease) -> Iterator[Path]:
        """Make an empty folder for the unfinished output of a video, on the same disk as a folder of outputs."""
        if self.folder is None:
            with tempfile.TemporaryDirectory(prefix="timecycle-") as temporary:
                yield Path(temporary)
            return
        parent = self.folder / WORK / name
        if lease.is_exclusive:  # what is there was left by a killed process
            shutil.rmtree(parent, ignore_errors=True)
        folder = make_shared(parent / secrets.token_hex(8))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                parent.rmdir()

    def commit(self, name: str, folder: Path, record: Mapping[str, Any], lease: Lease) -> None:
        """Move a finished folder to its final name, then write its record."""
        if self.folder is None:
            files = self._commit_tar(name, folder, lease)
        else:
            files = _list_files(folder)
            lease.check()
            self._commit_folder(self.folder / name, folder, files)
        complete = {**record, "name": name, "files": files}
        if problem := self.difference(complete):
            raise StoreError(
                f"{problem} just after it was written", remedy="find out what else writes there, then run it again"
            )
        self.store.clear_unfinished(f"{RECORDS}/{name}.json")
        self.store.write(f"{RECORDS}/{name}.json", (json.dumps(complete) + "\n").encode())

    def _commit_folder(self, target: Path, folder: Path, files: Files) -> None:
        with writing(target):
            for path in folder.rglob("*"):
                if path.is_file():
                    _sync(path)
                else:
                    sync_folder(path)
            sync_folder(folder)
            _check_replaceable(target)
            if target.exists():
                self._move_aside(target, folder, files)
            folder.rename(target)
            sync_folder(target.parent)

    def _move_aside(self, target: Path, folder: Path, files: Files) -> None:
        """Move an earlier output aside; it is kept unless the new one is the same."""
        if all(_is_same(target / name, *files[name]) for name in files if name != RECORD) and not _is_corrected(target):
            target.rename(folder.parent / "replaced")  # in the work folder, which is removed
            return
        aside = make_shared(target.parent / _REPLACED) / f"{target.name}-{secrets.token_hex(4)}"
        target.rename(aside)
        log.warning("%s was replaced; the earlier output is now %s", target, aside)

    def _commit_tar(self, name: str, folder: Path, lease: Lease) -> Files:
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                add_to_tar(tar, folder)
            file.flush()
            lease.check()
            self.store.put(Path(file.name), f"{name}.tar")
            return {f"{name}.tar": (Path(file.name).stat().st_size, sha256([Path(file.name)]))}

    def _object_difference(self, name: str, size: int, digest: str | None, listing: Mapping[str, int] | None) -> str:
        address = f"{self.location}/{name}"
        try:
            if digest is not None:
                is_same = hashlib.sha256(self.store.read(name)).hexdigest() == digest
            elif listing is not None:
                is_same = listing.get(name) == size
            else:
                is_same = self.store.sizes(name).get(name) == size
        except MissingError:
            return f"{address} is missing"
        return "" if is_same else f"{address} is missing or was changed"


def add_to_tar(tar: tarfile.TarFile, folder: Path, prefix: str = "") -> None:
    """Add the files of a folder, in the order of their names and without times and owners."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        head = tarfile.TarInfo(prefix + path.relative_to(folder).as_posix())
        head.size, head.mode = path.stat().st_size, 0o644
        with path.open("rb") as file:
            tar.addfile(head, file)


def _file_difference(path: Path, size: int, digest: str | None) -> str:
    if not path.is_file():
        return f"{path} is missing"
    is_same = path.stat().st_size == size and (digest is None or sha256([path]) == digest)
    return "" if is_same else f"{path} was changed"


def parse_object(text: str) -> dict[str, Any] | None:
    """Parse a JSON object; None if the text is not one."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _list_files(folder: Path) -> Files:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): (path.stat().st_size, sha256([path])) for path in files}


def _is_same(path: Path, size: int, digest: str) -> bool:
    return path.is_file() and path.stat().st_size == size and sha256([path]) == digest


def _run_record(folder: Path) -> dict[str, Any]:
    try:
        return parse_object((folder / RECORD).read_text(encoding="utf-8", errors="replace")) or {}
    except OSError:
        return {}


def _is_corrected(folder: Path) -> bool:
    return "corrections" in _run_record(folder) or (folder / "history").is_dir()


def _check_replaceable(target: Path) -> None:
    """Refuse to replace anything but an output or an empty folder: it may be the only copy of something."""
    if not os.path.lexists(target):
        return
    with writing(target):
        is_folder = target.is_dir() and not target.is_symlink()
        is_output = is_folder and (not any(target.iterdir()) or "timecycle" in _run_record(target))
    if not is_output:
        raise OutputError(
            f"{target} exists and is not an output of timecycle",
            remedy="choose another output with -o, or give the video another name in the manifest",
        )


def make_shared(folder: Path) -> Path:
    """Make a folder, even while other processes remove its empty parents."""
    for _ in range(10):
        with suppress(FileNotFoundError):
            folder.mkdir(parents=True, exist_ok=True)
            return folder
    return make_folder(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
