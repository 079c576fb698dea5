"""Manifests, which list videos and their labels: a CSV file or JSON lines.

    video,labels,name
    clips/a.mp4,first/a.png,
    s3://bucket/b.mp4,0=first/b.png 40=later/b.png,b-second-try

Paths are relative to the folder of the manifest. Labels are written as arguments of `timecycle propagate`, separated by
spaces in CSV and a list in JSON lines. `name` is the name of the output; by default the name of the video file.

A manifest is read line by line, so that its length does not matter.
"""

import csv
import hashlib
import json
import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from timecycle.errors import SettingsError
from timecycle.files import sha256
from timecycle.store import is_address

_NAME = re.compile(r"[^./\\][^/\\]*")
# Names that bulk itself writes to the output; in an object store the output of a video is NAME.tar.
_RESERVED = re.compile(r"records|dead|bulk\.json|summary.*\.json|dead.*\.jsonl", re.IGNORECASE)
_MAX_NAME_BYTES = 200  # file systems allow 255, and names of temporary files are longer
_MAX_PATH_BYTES = 4096
_MAX_PART_BYTES = 255
_COLUMNS = {"video", "labels", "name"}
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Item:
    """One video to label."""

    name: str
    video: str  # a path, or the address of an object
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Shard:
    """One of `count` equal parts of a manifest, counted from 0."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise SettingsError(
                f"there is no shard {self.index} of {self.count}", remedy=f"number them from 0 to {self.count - 1}"
            )

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read a shard written as I/N."""
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None:
            raise SettingsError(f"{text!r} is not a shard", remedy="write I/N, for example 0/8")
        return cls(int(match[1]), int(match[2]))


class Start(NamedTuple):
    """A position between two lines of a manifest."""

    offset: int = 0  # bytes of a file, lines of a list
    line: int = 0  # lines before it


class Row(NamedTuple):
    """A line of a manifest."""

    number: int
    fields: dict[str, Any]
    text: bytes
    offset: int  # of its end

    @property
    def end(self) -> Start:
        return Start(self.offset, self.number)


class ManifestList:
    """A manifest given as a list of the fields of its lines; paths are relative to the current folder."""

    def __init__(self, lines: Iterable[Mapping[str, Any]]) -> None:
        self.name, self.folder = "the list of videos", Path.cwd()  # that paths are relative to
        self._lines: Sequence[Mapping[str, Any]] = list(lines)

    def checksum(self) -> str:
        """Return the checksum of all lines."""
        return hashlib.sha256(json.dumps(self._lines).encode()).hexdigest()

    def rows(self, start: Start = Start()) -> Iterator[Row]:  # noqa: B008 (it is a tuple)
        """Read the lines from a position."""
        for number, fields in enumerate(self._lines[start.offset :], start=start.offset + 1):
            text = json.dumps(fields, sort_keys=True, default=str).encode()
            yield Row(number, dict(fields), text, number)


class ManifestFile:
    """A manifest in a file."""

    def __init__(self, path: Path) -> None:
        self.name, self.folder = str(path), path.absolute().parent
        self._path = path
        self._is_table = path.suffix == ".csv"

    def checksum(self) -> str:
        """Return the checksum of the file."""
        return sha256([self._path])

    def rows(self, start: Start = Start()) -> Iterator[Row]:  # noqa: B008
        """Read the lines from a position, one after the other."""
        try:
            with self._path.open("rb") as file:
                lines = _Lines(file)
                columns = self._columns(lines) if self._is_table else []
                if start.offset:
                    file.seek(start.offset)
                    lines.offset, lines.number = start
                yield from self._table(lines, columns) if self._is_table else self._json_lines(lines)
        except OSError as error:
            raise SettingsError(f"{self.name} cannot be read: {error.strerror}", remedy="check the path") from error
        except ValueError as error:  # not UTF-8, or a path that no file can have
            raise SettingsError(f"{self.name} is not UTF-8 text: {error}", remedy="save it as UTF-8") from error

    def _columns(self, lines: "_Lines") -> list[str]:
        try:
            columns = next(csv.reader(lines), [])
        except csv.Error:
            columns = []
        lines.take()
        if set(columns) - _COLUMNS or "video" not in columns:
            first = ",".join(columns)[:200]
            raise SettingsError(f"the first line of {self.name} is {first}", remedy="begin it with: video,labels,name")
        return columns

    def _table(self, lines: "_Lines", columns: list[str]) -> Iterator[Row]:
        try:
            for cells in csv.reader(lines):
                text = lines.take()
                if cells:
                    fields: dict[str, Any] = dict(zip(columns, cells, strict=False))
                    fields["labels"] = (fields.get("labels") or "").split()
                    yield Row(lines.number, fields, text, lines.offset)
        except csv.Error as error:
            raise SettingsError(
                f"{self.name} line {lines.number} cannot be read: {error}", remedy="write it as video,labels,name"
            ) from error

    def _json_lines(self, lines: "_Lines") -> Iterator[Row]:
        for line in lines:
            text = lines.take()
            if not line.strip():
                continue
            try:
                fields = json.loads(line)
                if not isinstance(fields, dict) or set(fields) - _COLUMNS:
                    raise ValueError(f"its fields are not among {', '.join(sorted(_COLUMNS))}")
            except (ValueError, RecursionError) as error:
                raise SettingsError(
                    f"{self.name} line {lines.number} cannot be used: {error}",
                    remedy='write a line as {"video": "a.mp4", "labels": ["a.png"]}, or give a .csv file',
                ) from error
            yield Row(lines.number, fields, text, lines.offset)


Manifest = ManifestList | ManifestFile


class _Lines:
    """The lines of a file as text; knows what was read since the last call of `take`, and where it ended."""

    def __init__(self, file: Iterable[bytes]) -> None:
        self.offset = self.number = 0  # of the end of what was read
        self._file = file
        self._read: list[bytes] = []

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            content = line if self.offset else line.removeprefix(_BOM)
            self.offset += len(line)
            self.number += 1
            self._read.append(content.rstrip(b"\r\n"))
            yield content.decode()

    def take(self) -> bytes:
        taken = self._read[0] if len(self._read) == 1 else b"\n".join(self._read)  # a cell may have several lines
        self._read.clear()
        return taken


def read_manifest(path: Path, shard: Shard | None = None) -> list[Item]:
    """Read the videos of a manifest, or of one shard of it: every n-th video."""
    return read_items(ManifestFile(path), shard)


def read_items(manifest: Manifest, shard: Shard | None = None) -> list[Item]:
    """Read the videos of a manifest, or of one shard of it: every n-th video."""
    items, names = [], Names()
    for row in manifest.rows():
        name = check_row(manifest, row)
        names.add(name)
        items.append(make_item(manifest, row, name))
    names.check(manifest)
    return items[shard.index :: shard.count] if shard else items


class Names:
    """Finds names that occur twice, with eight bytes for each name."""

    def __init__(self) -> None:
        self._hashes = array("q")

    def add(self, name: str) -> None:
        self._hashes.append(hash(_folded(name)))

    def check(self, manifest: Manifest) -> None:
        """Refuse a manifest with two equal names or with none."""
        if not self._hashes:
            raise SettingsError(f"{manifest.name} lists no videos", remedy="add a line for each video: video,labels")
        hashes = np.sort(np.frombuffer(self._hashes, np.int64))
        repeated = {int(value) for value in hashes[1:][hashes[1:] == hashes[:-1]]}
        if not repeated:
            return
        lines: dict[str, int] = {}  # by name; two names may also have one hash
        for row in manifest.rows():
            name = check_row(manifest, row)
            folded = _folded(name)
            if hash(folded) in repeated:
                if folded in lines:
                    raise SettingsError(
                        f"{manifest.name} lines {lines[folded]} and {row.number} would both write to {name}",
                        remedy="give them different names in the column name",
                    )
                lines[folded] = row.number


def _folded(name: str) -> str:
    """Return a name that is equal for names which some file systems do not distinguish: a and A, two encodings of ä."""
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()


def check_row(manifest: Manifest, row: Row) -> str:
    """Refuse a line that cannot be used; return the name of its output. No file is opened."""
    video, labels = row.fields.get("video"), row.fields.get("labels")
    if not isinstance(video, str) or not video:
        raise SettingsError(f"{_line(manifest, row)} names no video", remedy="give its path or its address")
    if not isinstance(labels, list) or not labels or not all(map(_is_text, labels)):
        raise SettingsError(f"{_line(manifest, row)} has no labels", remedy="give a mask, or FRAME=FILE")
    name = row.fields.get("name") or _stem(video)
    if problem := _name_problem(name):
        shown = repr(name) if len(repr(name)) < 80 else f"{repr(name)[:80]}..."
        raise SettingsError(f"{_line(manifest, row)} has the name {shown}", remedy=problem)
    if not _can_be_path(video) or not all(map(_can_be_path, labels)):
        raise SettingsError(
            f"{_line(manifest, row)} names a file that cannot exist",
            remedy="check the length and the characters of its path",
        )
    return str(name)


def make_item(manifest: Manifest, row: Row, name: str) -> Item:
    """Make the video of a line that was checked."""
    video, folder = row.fields["video"], manifest.folder
    labels = tuple(_absolute(label, folder) for label in row.fields["labels"])
    return Item(name, video if is_address(video) else str(folder / video), labels)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _stem(video: str) -> str:
    """Return the name of a file without its suffix."""
    path = video.replace("\\", "/")
    last = path.rpartition("/")[2]
    if last in ("", "."):
        last = PurePosixPath(path).name  # which is slow
    dot = last.rfind(".")
    return last[:dot] if 0 < dot < len(last) - 1 else last


def _line(manifest: Manifest, row: Row) -> str:
    return f"{manifest.name} line {row.number}"


def _name_problem(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not name.isprintable():
        return "give one without / and control characters, not beginning with a dot"
    if len(name) > _MAX_NAME_BYTES or len(name.encode(errors="replace")) > _MAX_NAME_BYTES:
        return f"give one of at most {_MAX_NAME_BYTES} bytes"
    if _RESERVED.fullmatch(name):
        return "give another in the column name: bulk itself writes a file of this name"
    return ""


def _can_be_path(text: str) -> bool:
    content = text.encode(errors="surrogatepass")
    if b"\0" in content or len(content) >= _MAX_PATH_BYTES:
        return False
    return len(content) <= _MAX_PART_BYTES or all(len(part) <= _MAX_PART_BYTES for part in content.split(b"/"))


def _absolute(label: str, folder: Path) -> str:
    """Make the path in a label argument absolute."""
    numbered = re.fullmatch(r"(\d+)=(.+)", label)
    return f"{numbered[1]}={folder / numbered[2]}" if numbered else str(folder / label)
