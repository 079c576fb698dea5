"""Fingerprints of videos, labels and settings, which tell whether a finished output is out of date."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timecycle.bulk.manifest import Item
from timecycle.errors import StoreError
from timecycle.files import sha256
from timecycle.labels import path_of
from timecycle.labels.names import NAMES_FILE
from timecycle.store import is_address, open_store
from timecycle.video import open_video


def inputs_of(item: Item) -> tuple[str, str]:
    """Return the fingerprints of a video and of its labels; empty where a file does not exist any more.

    That of the video is the number, size and time of its files, or the version tag of an object; that of the labels is
    the checksum of their contents, and of the names of objects beside them.
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
            files = _label_files(path)
            digest.update(f"{label.removesuffix(str(path))}{sha256(files)}\n".encode())
        except OSError:
            return ""
    return digest.hexdigest()


def _label_files(path: Path) -> list[Path]:
    """Return the files of labels: those of a folder, or a file and the names of its objects, if it has some."""
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    names = path.with_name(NAMES_FILE)
    return [path, names] if names.is_file() else [path]
