"""Names of objects in YouTube-VOS's layout: ROOT/meta.json beside ROOT/Annotations/VIDEO, the folder of the masks.

meta.json has, by video and object id, a category and the frames that show the object.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from timecycle.errors import LabelError
from timecycle.files import write_text
from timecycle.formats.json_file import default_name
from timecycle.formats.video_labels import usable_names
from timecycle.labels.file import check_label_file
from timecycle.labels.names import names_beside

_MAX_BYTES = 1 << 30
_REMEDY = "restore it from the data set, or remove it: then objects are numbered only"


def meta_file(folder: Path) -> Path | None:
    """Return where meta.json belongs to a folder of masks; None if the folder is not in this layout."""
    folder = folder.absolute()
    return folder.parent.parent / "meta.json" if folder.parent.name == "Annotations" else None


def read_names(files: Iterable[str | Path]) -> dict[str, str]:
    """Return the names of objects beside label files, from meta.json and, above it, from names.json."""
    paths = [Path(file) for file in files]
    names: dict[str, str] = {}
    for folder in dict.fromkeys(path if path.is_dir() else path.parent for path in paths):
        meta = meta_file(folder)
        if meta is not None and meta.exists():
            names |= _names(meta, folder.absolute().name)
    return names | names_beside(paths)


def write_meta(folder: Path, shown: Mapping[int, Sequence[str]], names: Mapping[str, str]) -> None:
    """Write the objects of a video, each with the frames that show it; other videos in the file stay."""
    meta = meta_file(folder)
    if meta is None:
        return
    objects = {
        str(identity): {"category": names.get(str(identity), default_name(identity)), "frames": list(frames)}
        for identity, frames in sorted(shown.items())
    }
    write_text(meta, _with_videos(meta, {folder.absolute().name: {"objects": objects}}))


def merged_meta(meta: Path, other: Path) -> str:
    """Return the content of a meta.json with the videos of another one in place of its own of these names."""
    return _with_videos(meta, _read(other)["videos"])


def _with_videos(meta: Path, added: Mapping[str, Any]) -> str:
    content = _read(meta) if meta.exists() else {}
    videos = content.get("videos", {})
    if not isinstance(videos, dict):
        raise LabelError(f"{meta} has no table of videos", remedy=_REMEDY)
    content["videos"] = {**videos, **added}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _names(meta: Path, video: str) -> dict[str, str]:
    """Name objects after their categories, with the id where several are of one category."""
    entry: Any = _read(meta)
    for key in ("videos", video, "objects"):
        entry = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(entry, dict):
        return {}
    categories = {
        identity: one["category"].strip()
        for identity, one in entry.items()
        if isinstance(one, dict) and isinstance(one.get("category"), str)
    }
    count = Counter(categories.values())
    found = {
        identity: category if count[category] == 1 else f"{category} {identity}"
        for identity, category in categories.items()
        if category != default_name(identity)
    }
    return usable_names(found, meta)


def _read(meta: Path) -> dict[str, Any]:
    check_label_file(meta)
    try:
        if meta.stat().st_size > _MAX_BYTES:
            raise LabelError(f"{meta} is larger than {_MAX_BYTES >> 30} GiB", remedy=_REMEDY)
        content = json.loads(meta.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise LabelError(f"{meta} cannot be read: {str(error)[:200]}", remedy=_REMEDY) from error
    if not isinstance(content, dict):
        raise LabelError(f"{meta} is not a table of videos", remedy=_REMEDY)
    return content
