"""Manifests, which list videos and their labels: a CSV file or JSON lines.

    video,labels,name
    clips/a.mp4,first/a.png,
    s3://bucket/b.mp4,0=first/b.png 40=later/b.png,b-second-try

Paths are relative to the folder of the manifest. Labels are written as arguments of `timecycle propagate`, separated by
spaces in CSV and a list in JSON lines. `name` is the name of the output; by default the name of the video file.

Fingerprints of videos and labels tell whether a finished output is out of date.
"""

import csv
import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from timecycle.errors import SettingsError, StoreError
from timecycle.files import sha256
from timecycle.labels import path_of
from timecycle.store import is_address, open_store
from timecycle.video import open_video

_NAME = re.compile(r"[^./\\][^/\\]*")
# Names that bulk itself writes to the output; in an object store the output of a video is NAME.tar.
_RESERVED = re.compile(r"records|dead|bulk\.json|summary.*\.json|dead.*\.jsonl", re.IGNORECASE)
_MAX_NAME_BYTES = 200  # file systems allow 255, and names of temporary files are longer
_MAX_PATH_BYTES = 4096
_COLUMNS = {"video", "labels", "name"}


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


def read_manifest(path: Path, shard: Shard | None = None) -> list[Item]:
    """Read the videos of a manifest, or of one shard of it: every n-th video."""
    return _items(str(path), path.absolute().parent, _rows(path), shard)


def list_items(lines: Iterable[Mapping[str, Any]], shard: Shard | None = None) -> list[Item]:
    """Make the videos of a manifest from the fields of its lines; paths are relative to the current folder."""
    rows = ((number, dict(fields)) for number, fields in enumerate(lines, start=1))
    return _items("the list of videos", Path.cwd(), rows, shard)


def _items(source: str, folder: Path, rows: Iterable[tuple[int, dict[str, Any]]], shard: Shard | None) -> list[Item]:
    items: list[Item] = []
    lines: dict[str, int] = {}  # by name
    for number, fields in rows:
        item = _item(f"{source} line {number}", folder, fields)
        # Some file systems do not distinguish a from A, or two encodings of ä.
        name = unicodedata.normalize("NFC", item.name).casefold()
        if name in lines:
            raise SettingsError(
                f"{source} lines {lines[name]} and {number} would both write to {item.name}",
                remedy="give them different names in the column name",
            )
        lines[name] = number
        items.append(item)
    if not items:
        raise SettingsError(f"{source} lists no videos", remedy="add a line for each video: video,labels")
    return items[shard.index :: shard.count] if shard else items


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line numbers and fields."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}", remedy="check the path") from error
    except ValueError as error:  # not UTF-8, or a path that no file can have
        raise SettingsError(f"{path} is not UTF-8 text: {error}", remedy="save it as UTF-8") from error
    if path.suffix == ".csv":
        reader = csv.DictReader(text.splitlines())
        try:
            columns = list(reader.fieldnames or ())
        except csv.Error:
            columns = []
        if set(columns) - _COLUMNS or "video" not in columns:
            first = ",".join(columns)[:200]
            raise SettingsError(f"the first line of {path} is {first}", remedy="begin it with: video,labels,name")
        try:
            for fields in reader:
                yield reader.line_num, {**fields, "labels": (fields.get("labels") or "").split()}
        except csv.Error as error:
            raise SettingsError(
                f"{path} line {reader.line_num + 1} cannot be read: {error}", remedy="write it as video,labels,name"
            ) from error
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            if not isinstance(fields, dict) or set(fields) - _COLUMNS:
                raise ValueError(f"its fields are not among {', '.join(sorted(_COLUMNS))}")
        except (ValueError, RecursionError) as error:
            raise SettingsError(
                f"{path} line {number} cannot be used: {error}",
                remedy='write a line as {"video": "a.mp4", "labels": ["a.png"]}, or give a .csv file',
            ) from error
        yield number, fields


def _item(line: str, folder: Path, fields: dict[str, Any]) -> Item:
    video, labels = fields.get("video"), fields.get("labels")
    if not isinstance(video, str) or not video:
        raise SettingsError(f"{line} names no video", remedy="give its path or its address")
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
        raise SettingsError(f"{line} has no labels", remedy="give a mask, or FRAME=FILE")
    name = fields.get("name") or PurePosixPath(video.replace("\\", "/")).stem
    _check_name(line, name)
    if not all(_can_be_path(path) for path in (video, *labels)):
        raise SettingsError(
            f"{line} names a file that cannot exist",
            remedy="check the length and the characters of its path",
        )
    return Item(
        name, video if is_address(video) else str(folder / video), tuple(_absolute(label, folder) for label in labels)
    )


def _check_name(line: str, name: object) -> None:
    problem = ""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not name.isprintable():
        problem = "give one without / and control characters, not beginning with a dot"
    elif len(name.encode(errors="replace")) > _MAX_NAME_BYTES:
        problem = f"give one of at most {_MAX_NAME_BYTES} bytes"
    elif _RESERVED.fullmatch(name):
        problem = "give another in the column name: bulk itself writes a file of this name"
    if problem:
        shown = repr(name) if len(repr(name)) < 80 else f"{repr(name)[:80]}..."
        raise SettingsError(f"{line} has the name {shown}", remedy=problem)


def _can_be_path(text: str) -> bool:
    content = text.encode(errors="surrogatepass")
    return b"\0" not in content and len(content) < _MAX_PATH_BYTES and all(len(p) <= 255 for p in content.split(b"/"))


def _absolute(label: str, folder: Path) -> str:
    """Make the path in a label argument absolute."""
    numbered = re.fullmatch(r"(\d+)=(.+)", label)
    return f"{numbered[1]}={folder / numbered[2]}" if numbered else str(folder / label)


def inputs_of(item: Item) -> tuple[str, str]:
    """Return the fingerprints of a video and of its labels; empty where a file does not exist any more.

    That of the video is the number, size and time of its files, or the version tag of an object; that of the labels is
    the checksum of their contents.
    """
    return _video_fingerprint(item.video), _labels_checksum(item.labels)


def has_other_content(item: Item, sha256_before: str) -> bool:
    """Whether the content of the video has changed; every byte is read, so compare fingerprints first."""
    if is_address(item.video):
        return True  # the version tag of an object depends on its content
    with open_video(item.video, allow_damaged=True) as video:
        return video.fingerprint() != sha256_before


def checksum(fields: Mapping[str, Any]) -> str:
    """Compute one checksum of settings."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _video_fingerprint(video: str) -> str:
    if is_address(video):
        location, _, name = video.rpartition("/")
        try:
            return open_store(location).version_tag(name)
        except StoreError:
            return ""
    path = Path(video)
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        stats = [file.stat() for file in files]
    except OSError:
        return ""
    return f"{len(stats)}-{sum(stat.st_size for stat in stats)}-{max((stat.st_mtime_ns for stat in stats), default=0)}"


def _labels_checksum(labels: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for label in labels:
        path = path_of(label)
        try:
            files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
            digest.update(f"{label.removesuffix(str(path))}{sha256(files)}\n".encode())
        except OSError:
            return ""
    return digest.hexdigest()
