"""What a video was made from: enough to notice that the video, its labels or the settings are others by now."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timecycle.bulk.manifest import Item
from timecycle.errors import StoreError
from timecycle.files import sha256
from timecycle.labels import path_of
from timecycle.store import is_address, open_store
from timecycle.video import open_video


@dataclass(frozen=True)
class Inputs:
    """The video's mark changes when its file does (size, time); empty where there is no such file any more."""

    video: str
    labels: str  # checksum of what the files hold


def inputs_of(item: Item) -> Inputs:
    """What an item's files are now."""
    return Inputs(_video_mark(item.video), _labels_sum(item.labels))


def is_other_video(item: Item, sha256_before: str) -> bool:
    """Whether the video's content differs: asked only when its mark does, since every byte is read."""
    if is_address(item.video):
        return True  # marks of objects are told by their content
    with open_video(item.video, allow_damaged=True) as video:
        return video.fingerprint() != sha256_before


def sum_of(fields: Mapping[str, Any]) -> str:
    """One checksum of settings."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _video_mark(video: str) -> str:
    if is_address(video):
        place, _, name = video.rpartition("/")
        try:
            return open_store(place).mark(name)
        except StoreError:
            return ""
    path = Path(video)
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        stats = [file.stat() for file in files]
    except OSError:
        return ""
    return f"{len(stats)}-{sum(stat.st_size for stat in stats)}-{max((stat.st_mtime_ns for stat in stats), default=0)}"


def _labels_sum(words: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for word in words:
        path = path_of(word)
        try:
            files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
            digest.update(f"{word.removesuffix(str(path))}{sha256(files)}\n".encode())
        except OSError:
            return ""
    return digest.hexdigest()
