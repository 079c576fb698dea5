"""The outputs of chunks: chunks/000123.tar holds the files of its videos, chunks/000123.jsonl a record of each.

The records are written last: a chunk is finished when they exist. One listing tells which chunks are finished.
"""

import hashlib
import io
import json
import logging
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from timecycle.bulk.fingerprints import checksum
from timecycle.bulk.lease import Lease
from timecycle.bulk.outputs import WORK, Outputs, add_to_tar, make_shared, parse_object
from timecycle.errors import DamagedError, InUseError, MissingError, OutputError, first_line
from timecycle.files import lock, make_folder, sha256, user_cache, write_text

log = logging.getLogger("timecycle")

CHUNKS = "chunks"
_FILE = re.compile(rf"{CHUNKS}/(\d{{6,}})\.(tar|jsonl)")
REMOVE_AND_RUN = "remove it and run again: its videos are then labelled again"


class ChunkRecord(NamedTuple):  # quicker to make than a dataclass: a run may read a million
    """What became of one video of a chunk."""

    name: str
    source: str  # path or address of the video
    error: str | None  # why it failed
    tries: int
    frames: int = 0
    confidence: float | None = None  # mean over frames
    lowest: float | None = None  # over frames
    damage: str | None = None  # of a damaged video that was allowed
    sha256: str | None = None  # of its files in the tar, see `folder_checksum`
    video: str = ""  # fingerprints, see fingerprints.inputs_of
    video_sha256: str | None = None
    labels: str = ""
    manifest: str = ""  # checksum of the chunk's lines


# A mean of confidences may be written as a whole number.
_TYPES = {name: kind | int if kind == float | None else kind for name, kind in get_type_hints(ChunkRecord).items()}


def list_chunks(outputs: Outputs, count: int) -> tuple[set[int], set[int]]:
    """List the finished ones of `count` chunks, and those whose tar was removed since; no file is read."""
    kinds: dict[int, set[str]] = {}
    for name in outputs.store.sizes(CHUNKS):
        if match := _FILE.fullmatch(name):
            kinds.setdefault(int(match[1]), set()).add(match[2])
    for index in sorted(kinds):
        if index >= count:
            raise OutputError(
                f"{outputs.location}/{CHUNKS} has a chunk {index}, but the manifest has only {count} chunks",
                remedy="give the manifest that the output was begun with, or choose another output with -o",
            )
    finished = {index for index, found in kinds.items() if len(found) == 2}
    return finished, {index for index, found in kinds.items() if found == {"jsonl"}}


def read_records(outputs: Outputs, name: str) -> list[ChunkRecord]:
    """Read the records of a chunk; none if it is not finished. DamagedError if the file is not what was written."""
    return parse_records(outputs.read(f"{CHUNKS}/{name}.jsonl"), f"{outputs.location}/{CHUNKS}/{name}.jsonl")


def parse_records(text: str, location: str) -> list[ChunkRecord]:
    """Parse the records of a chunk."""
    if text and not text.endswith("\n"):
        raise DamagedError(f"{location} is truncated", remedy=REMOVE_AND_RUN)
    return [_record(line, f"{location} line {number}") for number, line in enumerate(text.splitlines(), start=1)]


def _record(line: str, location: str) -> ChunkRecord:
    found = parse_object(line)
    if found is None or list(found) != list(_TYPES):
        raise DamagedError(f"{location} is not the record of a video", remedy=REMOVE_AND_RUN)
    if wrong := _wrong_field(tuple(map(type, found.values()))):
        raise DamagedError(f"{location} has the {wrong} {found[wrong]!r}", remedy=REMOVE_AND_RUN)
    return ChunkRecord(**found)


@lru_cache(maxsize=1000)  # a million records have the same few types
def _wrong_field(types: tuple[type, ...]) -> str:
    """Name a field of a wrong type; empty if there is none."""
    return next((name for name, kind in zip(_TYPES, types, strict=True) if not issubclass(kind, _TYPES[name])), "")


def commit_chunk(outputs: Outputs, name: str, work: "Work", records: Sequence[ChunkRecord], lease: Lease) -> None:
    """Write the files of all videos as one tar, then the records."""
    with tempfile.NamedTemporaryFile(dir=work.folder, suffix=".tar") as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            for record in records:
                if record.error is None:
                    add_to_tar(tar, work.output(record.name), f"{record.name}/")
        file.flush()
        lease.check()
        if lease.is_exclusive:
            for suffix in ("tar", "jsonl"):
                outputs.store.clear_unfinished(f"{CHUNKS}/{name}.{suffix}")
        # Where this replaces a chunk, the new tar has all that the old records list.
        outputs.store.put(Path(file.name), f"{CHUNKS}/{name}.tar")
    outputs.write(f"{CHUNKS}/{name}.jsonl", "".join(json.dumps(record._asdict()) + "\n" for record in records))


def unpack_chunk(outputs: Outputs, name: str, records: Sequence[ChunkRecord], work: "Work") -> None:
    """Bring the videos of a finished chunk to the work folder, unless they are there or are not intact."""
    missing = {record.name: record for record in records if work.read(record.name) is None}
    unpacked = make_folder(work.unfinished())
    with _fetched(outputs, name) as tar:
        for member in _files(tar, name):
            if member.name.partition("/")[0] in missing:
                tar.extract(member, unpacked, filter="data")
    for record in missing.values():
        if record.error is not None:
            work.write(record)
        elif folder_checksum(unpacked / record.name) == record.sha256:
            work.keep(unpacked / record.name, record)
        else:
            log.warning("%s is processed again: its files in chunk %s are damaged", record.name, name)
    shutil.rmtree(unpacked)


def is_intact(outputs: Outputs, name: str, records: Sequence[ChunkRecord]) -> bool:
    """Compare the checksums of all files of a finished chunk."""
    files: dict[str, list[tuple[str, str]]] = {}
    with _fetched(outputs, name) as tar:
        for member in _files(tar, name):
            video, _, file = member.name.partition("/")
            content = tar.extractfile(member)
            digest = hashlib.sha256(content.read() if content else b"").hexdigest()
            files.setdefault(video, []).append((file, digest))
    return all(record.error is not None or _checksum(files.get(record.name, [])) == record.sha256 for record in records)


@contextmanager
def _fetched(outputs: Outputs, name: str) -> Iterator[tarfile.TarFile]:
    """Open the tar of a chunk; an empty one if it is not a tar."""
    with tempfile.TemporaryDirectory(prefix="timecycle-") as folder:
        path = Path(folder) / "chunk.tar"
        try:
            outputs.store.fetch(f"{CHUNKS}/{name}.tar", path)
            tar = tarfile.open(path)  # noqa: SIM115 (closed below)
        except (MissingError, tarfile.TarError) as error:
            log.warning("%s/%s/%s.tar cannot be read: %s", outputs.location, CHUNKS, name, first_line(error))
            tar = tarfile.open(fileobj=io.BytesIO(bytes(tarfile.RECORDSIZE)))  # noqa: SIM115
        with tar:
            yield tar


def _files(tar: tarfile.TarFile, name: str) -> Iterator[tarfile.TarInfo]:
    """Yield the files of a tar up to where it is damaged."""
    try:
        yield from (member for member in tar if member.isreg())
    except (tarfile.TarError, EOFError, ValueError) as error:
        log.warning("the tar of chunk %s is damaged: %s", name, first_line(error))


def folder_checksum(folder: Path) -> str:
    """Compute one checksum of the names and contents of all files of an output."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return _checksum((path.relative_to(folder).as_posix(), sha256([path])) for path in files)


def _checksum(files: Iterable[tuple[str, str]]) -> str:
    listed = "".join(f"{digest} {name}\n" for name, digest in sorted(files))
    return hashlib.sha256(listed.encode()).hexdigest()


class Work:
    """A local folder with the finished videos of an unfinished chunk; a killed worker resumes there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("outputs", "records"):
            make_folder(folder / name)

    def output(self, name: str) -> Path:
        return self.folder / "outputs" / name

    def unfinished(self) -> Path:
        """Return the path of a folder for the video that is being labelled; it does not exist."""
        path = self.folder / "unfinished"
        shutil.rmtree(path, ignore_errors=True)
        return path

    def keep(self, folder: Path, record: ChunkRecord) -> None:
        """Keep the finished output of a video."""
        shutil.rmtree(self.output(record.name), ignore_errors=True)
        folder.rename(self.output(record.name))
        self.write(record)

    def write(self, record: ChunkRecord) -> None:
        write_text(self._path(record.name), json.dumps(record._asdict()) + "\n")

    def read(self, name: str) -> ChunkRecord | None:
        """Read the record of a video that is finished; None if it is not, or if its files are not intact."""
        try:
            (record,) = parse_records(self._path(name).read_text(encoding="utf-8"), str(self._path(name)))
        except (OSError, ValueError, DamagedError):
            return None
        is_intact = record.error is not None or folder_checksum(self.output(name)) == record.sha256
        return record if is_intact else None

    def count_attempt(self, name: str, run: str) -> int:
        """Count the attempts at a video in this run, of which the earlier ones were killed."""
        path = self.folder / "attempt.json"
        before: Mapping[str, Any] = {}
        with suppress(OSError, ValueError):
            before = parse_object(path.read_text(encoding="utf-8")) or {}
        tries = before.get("tries", 0) if (before.get("name"), before.get("run")) == (name, run) else 0
        write_text(path, json.dumps({"name": name, "run": run, "tries": int(tries) + 1}))
        return int(tries) + 1

    def _path(self, name: str) -> Path:
        return self.folder / "records" / f"{name}.json"


@contextmanager
def work_on(outputs: Outputs, name: str, key: Mapping[str, Any], lease: Lease) -> Iterator[Work]:
    """Open the work folder of a chunk and remove it when the chunk is committed; after a failure it is kept.

    It is beside the outputs if these are on a disk, otherwise in the user's cache. Its content depends on `key`.
    """
    parent = _work_parent(outputs)
    with ExitStack() as stack:
        if outputs.folder is not None and not lease.is_exclusive:  # no locks there, so it could be somebody else's
            yield Work(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="timecycle-"))))
            return
        folder = make_shared(parent / f"{name}-{checksum(key)[:16]}")
        try:
            stack.enter_context(lock(folder))
        except OutputError as error:
            raise InUseError(error.problem, remedy="wait for it to end") from error
        for other in parent.glob(f"{name}-*"):
            if other != folder:  # of another manifest or other settings
                shutil.rmtree(other, ignore_errors=True)
        yield Work(folder)
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # other chunks are being processed
            parent.rmdir()


def remove_finished_work(outputs: Outputs, names: Iterable[str]) -> None:
    """Remove work folders of finished chunks that killed processes left on this machine."""
    parent, finished = _work_parent(outputs), set(names)
    for folder in parent.glob("*-*"):
        name = folder.name.partition("-")[0]
        if name in finished:
            with suppress(InUseError), outputs.lease(name):
                shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # other chunks are being processed
        parent.rmdir()


def _work_parent(outputs: Outputs) -> Path:
    return user_cache("bulk", outputs.location) if outputs.folder is None else outputs.folder / WORK
