"""Which videos, with which labels: a CSV file or JSON lines.

    video,labels,name
    clips/a.mp4,first/a.png,
    s3://bucket/b.mp4,0=first/b.png 40=later/b.png,b-second-try

Paths are as seen from the manifest's folder. Labels are words as `timecycle propagate` takes them, parted by spaces in
CSV and a list in JSON lines. A name says where the output goes; without one it is the video's name.
"""

import csv
import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from timecycle.errors import SettingsError
from timecycle.store import is_address

_NAME = re.compile(r"[^./\\][^/\\]*")
# What bulk itself writes to the output; in an object store a video's output is NAME.tar.
_RESERVED = re.compile(r"records|dead|bulk\.json|summary.*\.json|dead.*\.jsonl", re.IGNORECASE)
_MOST_NAME_BYTES = 200  # of 255 that file systems allow: names of temporary files are longer
_MOST_PATH_BYTES = 4096
_COLUMNS = {"video", "labels", "name"}


@dataclass(frozen=True)
class Item:
    """One video to label."""

    name: str
    video: str  # a path, or the address of an object
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Share:
    """One of `parts` equal parts of the work, counted from 0."""

    part: int = 0
    parts: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.part < self.parts:
            raise SettingsError(
                f"there is no part {self.part} of {self.parts}", remedy=f"number them from 0 to {self.parts - 1}"
            )

    @classmethod
    def parse(cls, text: str) -> "Share":
        """A share written as i/n."""
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None:
            raise SettingsError(f"{text!r} is not a part of the work", remedy="write I/N, for example 0/8")
        return cls(int(match[1]), int(match[2]))


def read_manifest(path: Path, share: Share | None = None) -> list[Item]:
    """The videos of a manifest; of a share, every n-th."""
    items: list[Item] = []
    numbers: dict[str, int] = {}
    for number, fields in _rows(path):
        item = _item(path, number, fields)
        # Some file systems do not tell a from A, or two spellings of ä.
        place = unicodedata.normalize("NFC", item.name).casefold()
        if place in numbers:
            raise SettingsError(
                f"{path} lines {numbers[place]} and {number} would both write to {item.name}",
                remedy="give them names of their own",
            )
        numbers[place] = number
        items.append(item)
    if not items:
        raise SettingsError(f"{path} lists no videos", remedy="give a line for each: video,labels")
    return items[share.part :: share.parts] if share else items


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and fields."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}", remedy="check the path") from error
    except ValueError as error:  # the reason is one of the bytes, or a name no file can have
        raise SettingsError(f"{path} is not a text in UTF-8: {error}", remedy="save it as UTF-8") from error
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


def _item(path: Path, number: int, fields: dict[str, Any]) -> Item:
    video, labels = fields.get("video"), fields.get("labels")
    if not isinstance(video, str) or not video:
        raise SettingsError(f"{path} line {number} names no video", remedy="give its path or address")
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
        raise SettingsError(f"{path} line {number} has no labels", remedy="give a mask, or FRAME=FILE words")
    name = fields.get("name") or PurePosixPath(video.replace("\\", "/")).stem
    _check_name(path, number, name)
    if not all(_can_be_path(word) for word in (video, *labels)):
        raise SettingsError(
            f"{path} line {number} names a file that no system can hold", remedy="check its length and its characters"
        )
    here = path.absolute().parent
    return Item(
        name, video if is_address(video) else str(here / video), tuple(_placed(label, here) for label in labels)
    )


def _check_name(path: Path, number: int, name: object) -> None:
    problem = ""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not name.isprintable():
        problem = "give one without / and control characters that does not begin with a dot"
    elif len(name.encode(errors="replace")) > _MOST_NAME_BYTES:
        problem = f"give one of at most {_MOST_NAME_BYTES} bytes"
    elif _RESERVED.fullmatch(name):
        problem = "give another in the column name: bulk writes a file of its own there"
    if problem:
        shown = repr(name) if len(repr(name)) < 80 else f"{repr(name)[:80]}..."
        raise SettingsError(f"{path} line {number} has the name {shown}", remedy=problem)


def _can_be_path(word: str) -> bool:
    content = word.encode(errors="surrogatepass")
    return b"\0" not in content and len(content) < _MOST_PATH_BYTES and all(len(p) <= 255 for p in content.split(b"/"))


def _placed(label: str, here: Path) -> str:
    """The label's word with its path as seen from anywhere."""
    numbered = re.fullmatch(r"(\d+)=(.+)", label)
    return f"{numbered[1]}={here / numbered[2]}" if numbered else str(here / label)
