"""Where outputs go: each appears whole, once, and its record after it.

A folder gets a folder for every video, as `timecycle propagate` writes it; an object store gets one tar, since a
store of many small objects is slow and dear. The record lists every file with size and checksum, and counts only while
the files are there: records/NAME.json. bulk.json keeps the settings that all of an output's videos were made with.
"""

import hashlib
import io
import json
import logging
import os
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from timecycle.bulk.lease import LEASES, Lease, lease
from timecycle.errors import MissingError, OutputError, SettingsError, StoreError
from timecycle.files import make_folder, sha256, sync_folder, writing
from timecycle.store import Store, is_address, open_store

log = logging.getLogger("timecycle")

RECORDS, DEAD, SETTINGS = "records", "dead", "bulk.json"
_WORK, _REPLACED = ".work", ".replaced"
_READERS = 8  # threads: nearly all of their time is waiting
_RUN = "run.json"

Files = dict[str, tuple[int, str]]  # name to size and sha256


class Outputs:
    """The place of a bulk run's outputs."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._store: Store = open_store(place)
        self._folder = None if is_address(place) else make_folder(Path(place))

    # Everything at once

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Keep the settings of this output, or refuse others than those kept."""
        text = json.dumps({"timecycle_bulk": 1, **settings}, indent=2) + "\n"
        if not self.read(SETTINGS):
            self._store.create(SETTINGS, text.encode())
        kept = _fields(self.read(SETTINGS))
        if kept is None or kept.get("timecycle_bulk") != 1:
            raise OutputError(f"{self.place}/{SETTINGS} cannot be used", remedy="choose another output with -o")
        for part, now in json.loads(text).items():
            was = kept.get(part)
            for name in {**now, **(was if isinstance(was, dict) else {})} if isinstance(now, dict) else ():
                before = was.get(name) if isinstance(was, dict) else None
                if before != now.get(name):
                    raise SettingsError(
                        f"{self.place} was made with {part} {name} = {before}, now it is {now.get(name)}",
                        remedy="give the same encoder and settings, or another output with -o",
                    )

    def records(self, under: str = RECORDS) -> dict[str, dict[str, Any]]:
        """Names and records of what is finished, or of what was given up; what is no record is not believed."""
        names = [name for name in self._store.sizes(under) if name.endswith(".json")]
        with ThreadPoolExecutor(_READERS) as pool:
            found = pool.map(lambda name: (name, _fields(self.read(name))), names)
            return {
                fields["name"]: fields
                for name, fields in found
                if fields is not None and name == f"{under}/{fields.get('name')}.json"
            }

    def record(self, name: str) -> dict[str, Any] | None:
        """The record of one video."""
        return _fields(self.read(f"{RECORDS}/{name}.json"))

    def listing(self) -> dict[str, int]:
        """Names and sizes of all objects, for `difference`: one request for thousands of them; nothing of a folder."""
        return {} if self._folder is not None else self._store.sizes()

    def difference(
        self, record: Mapping[str, Any], *, checksums: bool = False, listing: Mapping[str, int] | None = None
    ) -> str:
        """How an output differs from its record, in words; empty if it does not.

        Sizes are compared, with `checksums` contents too. An output that `timecycle correct` changed since is as it
        should be: its own history says how.
        """
        name, listed = record["name"], record.get("files")
        if not isinstance(listed, dict) or not listed:
            return f"the record of {name} lists no files"
        try:
            for file, (size, digest) in listed.items():
                if self._folder is None:
                    problem = self._object_difference(file, size, digest if checksums else None, listing)
                else:
                    problem = _file_difference(self._folder / name / file, size, digest if checksums else None)
                if problem:
                    return "" if self._folder is not None and _is_corrected(self._folder / name) else problem
        except (TypeError, ValueError) as error:
            return f"the record of {name} cannot be used: {error}"
        return ""

    def refuse_strangers(self, names: Iterable[str]) -> None:
        """Refuse names under which something else lies, before any work is done."""
        if self._folder is not None:
            for name in names:
                _check_replaceable(self._folder / name)

    def write(self, name: str, text: str) -> None:
        """A file about the whole run."""
        self._store.write(name, text.encode())

    def read(self, name: str) -> str:
        """It, or nothing if there is none yet."""
        try:
            return self._store.read(name).decode(errors="replace")
        except MissingError:
            return ""

    def tidy(self) -> None:
        """Remove the empty folders that work needed."""
        if self._folder is not None:
            for name in (LEASES, _WORK):
                with suppress(OSError):  # another process is at work there
                    (self._folder / name).rmdir()

    # One video

    def lease(self, name: str) -> AbstractContextManager[Lease]:
        """The right to write the video; InUseError if another process has it."""
        return lease(self._store, self._folder, name)

    @contextmanager
    def work_folder(self, name: str, held: Lease) -> Iterator[Path]:
        """An empty folder for one video; on the disk that the output goes to, if it goes to a disk."""
        if self._folder is None:
            with tempfile.TemporaryDirectory(prefix="timecycle-") as folder:
                yield Path(folder)
            return
        place = self._folder / _WORK / name
        if held.is_exclusive:  # what lies there is of an owner that was killed
            shutil.rmtree(place, ignore_errors=True)
        mine = _make(place / secrets.token_hex(8))
        try:
            yield mine
        finally:
            shutil.rmtree(mine, ignore_errors=True)
            with suppress(OSError):
                place.rmdir()

    def commit(self, name: str, folder: Path, record: Mapping[str, Any], held: Lease) -> None:
        """Put a finished folder into its place, then its record."""
        if self._folder is None:
            files = self._commit_tar(name, folder, held)
        else:
            files = _listed(folder)
            held.check()
            self._commit_folder(self._folder / name, folder, files)
        about = {**record, "name": name, "files": files}
        if problem := self.difference(about):
            raise StoreError(f"{problem}, a moment ago", remedy="find out who else writes there, then run it again")
        self._store.clear_unfinished(f"{RECORDS}/{name}.json")
        self._store.write(f"{RECORDS}/{name}.json", (json.dumps(about) + "\n").encode())

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
                self._make_way(target, folder, files)
            folder.rename(target)
            sync_folder(target.parent)

    def _make_way(self, target: Path, folder: Path, files: Files) -> None:
        """Move an earlier output aside; it is kept unless this one says the same."""
        if all(_same(target / name, *files[name]) for name in files if name != _RUN) and not _is_corrected(target):
            target.rename(folder.parent / "replaced")  # in the work folder, which is removed
            return
        aside = _make(target.parent / _REPLACED) / f"{target.name}-{secrets.token_hex(4)}"
        target.rename(aside)
        log.warning("%s was replaced; what was there is now %s", target, aside)

    def _commit_tar(self, name: str, folder: Path, held: Lease) -> Files:
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                    content = path.read_bytes()
                    head = tarfile.TarInfo(path.relative_to(folder).as_posix())
                    head.size, head.mode = len(content), 0o644
                    tar.addfile(head, io.BytesIO(content))
            file.flush()
            held.check()
            self._store.put(Path(file.name), f"{name}.tar")
            return {f"{name}.tar": (Path(file.name).stat().st_size, sha256([Path(file.name)]))}

    def _object_difference(self, name: str, size: int, digest: str | None, listing: Mapping[str, int] | None) -> str:
        where = f"{self.place}/{name}"
        try:
            if digest is not None:
                is_same = hashlib.sha256(self._store.read(name)).hexdigest() == digest
            elif listing is not None:
                is_same = listing.get(name) == size
            else:
                is_same = self._store.sizes(name).get(name) == size
        except MissingError:
            return f"{where} is gone"
        return "" if is_same else f"{where} is gone or not what was written"


def _file_difference(path: Path, size: int, digest: str | None) -> str:
    if not path.is_file():
        return f"{path} is gone"
    is_same = path.stat().st_size == size and (digest is None or sha256([path]) == digest)
    return "" if is_same else f"{path} is not what was written"


def _fields(text: str) -> dict[str, Any] | None:
    """The fields of a JSON object; None if the text is none."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _listed(folder: Path) -> Files:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): (path.stat().st_size, sha256([path])) for path in files}


def _same(path: Path, size: int, digest: str) -> bool:
    return path.is_file() and path.stat().st_size == size and sha256([path]) == digest


def _run_record(folder: Path) -> dict[str, Any]:
    try:
        return _fields((folder / _RUN).read_text(encoding="utf-8", errors="replace")) or {}
    except OSError:
        return {}


def _is_corrected(folder: Path) -> bool:
    return "corrections" in _run_record(folder) or (folder / "history").is_dir()


def _check_replaceable(target: Path) -> None:
    """Refuse to replace anything but an output, or an empty folder: it may be the user's only copy."""
    if not os.path.lexists(target):
        return
    with writing(target):
        is_ours = target.is_dir() and not target.is_symlink()
        is_ours = is_ours and (not any(target.iterdir()) or "timecycle" in _run_record(target))
    if not is_ours:
        raise OutputError(
            f"{target} exists and is no output of timecycle",
            remedy="choose another output with -o, or give the video another name in the manifest",
        )


def _make(folder: Path) -> Path:
    """Make a folder even while other processes remove empty ones above it."""
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
