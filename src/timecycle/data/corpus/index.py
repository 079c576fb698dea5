"""Index the videos of a folder: length, frame rate, size, black bars and motion, or why a file cannot be used.

The index is a file of JSON lines, sorted by path, so that equal folders give equal indexes. While it is made, finished
lines are appended to a journal beside it: an interrupted run loses at most one video's work, and a later run probes
only new and changed videos.
"""

import dataclasses
import json
import math
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from timecycle.concurrency import worker_processes
from timecycle.data.corpus.probe import Box, probe_video
from timecycle.errors import VideoError
from timecycle.files import make_folder, write_text, writing
from timecycle.progress import OnProgress
from timecycle.shortages import find_shortage, raise_if_shortage, raising_shortages
from timecycle.tiff_header import is_stack
from timecycle.video.image_file import IMAGE_SUFFIXES

VIDEO_SUFFIXES = frozenset(
    {
        *(".3g2", ".3gp", ".264", ".265", ".asf", ".avi", ".divx", ".dv", ".flv", ".gif", ".h264", ".hevc", ".ivf"),
        *(".m2ts", ".m4v", ".mjpeg", ".mjpg", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf", ".nut", ".ogv"),
        *(".rm", ".rmvb", ".ts", ".vob", ".webm", ".wmv", ".y4m"),
    }
)

STATIC_BELOW = 0.25  # grey levels; the noise of a static camera in front of a static scene is 0.05 to 0.15

_FORMAT = {"timecycle_index": 1}
_VIDEOS_PER_PROCESS = 16  # with fewer, starting a process takes longer than it saves


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A video that can be trained on."""

    path: str  # below the indexed folder, with / on every system
    fingerprint: str  # changes when the file does
    frames: int  # number of usable frames
    fps: float  # the mean, where it varies
    width_px: int
    height_px: int
    box: Box  # the image without its black bars
    motion: float  # mean change of brightness over about 1/8 s, in grey levels
    source: str = ""  # of a packed clip: the video it was cut from
    first: int = 0  # index of the first usable frame

    @property
    def is_static(self) -> bool:
        """Whether nothing moves in the video."""
        return self.motion < STATIC_BELOW

    @property
    def has_bars(self) -> bool:
        """Whether black bars surround the image."""
        return self.box != Box(0, 0, self.width_px, self.height_px)


@dataclass(frozen=True, kw_only=True)
class BadFile:
    """A file that cannot be trained on, and why."""

    path: str
    fingerprint: str
    problem: str


@dataclass(frozen=True)
class Index:
    """The videos of a folder and its unusable files, sorted by path."""

    entries: tuple[Entry, ...]
    bad: tuple[BadFile, ...] = ()


def make_index(
    folder: Path, path: Path, *, workers: int = 0, progress: OnProgress | None = None, max_bad: float = 0.5
) -> Index:
    """Probe every video below `folder`, or a single video file, and write the index to `path`.

    A folder that holds at least two images and no video file is one video. Files that cannot be used are listed
    with the reason; if their share is above `max_bad`, a VideoError is raised. At most `workers` processes share the
    work (0: only this process).
    """
    found = find_videos(folder)
    make_folder(path.parent)
    journal = path.with_name(f"{path.name}.part")
    known = {item.path: item for item in (*_lines(path), *_lines(journal, is_journal=True))}
    done = {name: known[name] for name, mark in found.items() if name in known and known[name].fingerprint == mark}
    todo = {name: mark for name, mark in found.items() if name not in done}
    write_text(journal, "".join(_line(item) for item in done.values()))  # atomic: a second kill loses nothing
    with writing(journal):
        file = journal.open("a", encoding="utf-8", newline="\n")
    with file, closing(_probed(root_of(folder), todo, workers=workers)) as items:
        for item in items:
            done[item.path] = item
            with writing(journal):
                file.write(_line(item))
                file.flush()
            if progress is not None:
                progress(len(done), len(found))
    index = _index(done.values())
    write_text(path, "".join([_line(_FORMAT), *(_line(done[name]) for name in sorted(done))]))
    journal.unlink()
    _check_share(folder, path, index, max_bad)
    return index


def write_index(path: Path, index: Index) -> None:
    """Write an index that was not made by probing videos."""
    listed: list[Entry | BadFile] = [*index.entries, *index.bad]
    items = sorted(listed, key=lambda item: item.path)
    write_text(path, "".join([_line(_FORMAT), *map(_line, items)]))


def read_index(path: Path) -> Index:
    """Read the index at `path`."""
    if not path.is_file():
        raise VideoError(f"there is no index {path}", remedy="make it with make_index")
    return _index(_lines(path))


# Finding videos


def find_videos(folder: Path) -> dict[str, str]:
    """Return the fingerprint of every video below a folder by its relative path, sorted; or of a single video file.

    A folder that holds at least two images and no video file is one video.
    """
    if folder.is_file():
        return {folder.name: _fingerprint([folder])}
    found = {}
    for where, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        here = Path(where)
        visible = [here / name for name in names if not name.startswith(".")]
        stacks = {path for path in visible if is_stack(path)}
        videos = [path for path in visible if path.suffix.lower() in VIDEO_SUFFIXES or path in stacks]
        images = [path for path in visible if path.suffix.lower() in IMAGE_SUFFIXES and path not in stacks]
        for path in videos:
            found[path.relative_to(folder).as_posix()] = _fingerprint([path])
        if len(images) > 1 and not videos:
            found[here.relative_to(folder).as_posix()] = _fingerprint(images)
    if not found:
        raise VideoError(
            f"{folder} holds no videos",
            remedy=f"give a folder with files ({' '.join(sorted(VIDEO_SUFFIXES))}), TIFF stacks or folders of images",
        )
    return dict(sorted(found.items()))


def root_of(videos: Path) -> Path:
    """Return the folder that the paths of `find_videos` are relative to; of a single file, its parent folder."""
    return videos.parent if videos.is_file() else videos


def _refuse(error: OSError) -> None:
    if (short := find_shortage(error, f"while {error.filename} was listed")) is not None:
        raise short from error
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        raise VideoError(
            f"there is no folder or video {error.filename}", remedy="check the name and the working directory"
        )
    raise VideoError(f"{error.filename} cannot be listed: {error.strerror}", remedy="allow reading the folder")


def _fingerprint(paths: Sequence[Path]) -> str:
    """Combine number, size and last change of files: hashing every byte would cost more than probing the video."""
    try:
        stats = [path.stat() for path in paths]
    except OSError as error:
        if (short := find_shortage(error, f"while {paths[0]} was listed")) is not None:
            raise short from error
        return f"unreadable: {error.strerror}"
    return f"{len(stats)}-{sum(stat.st_size for stat in stats)}-{max(stat.st_mtime_ns for stat in stats)}"


# Probing


def _probed(folder: Path, todo: Mapping[str, str], *, workers: int) -> Generator[Entry | BadFile, None, None]:
    """Yield the results as they are finished, in any order."""
    job = partial(_probe_one, folder)
    workers = min(workers, len(todo) // _VIDEOS_PER_PROCESS)
    if workers == 0:
        yield from map(job, todo, todo.values())
        return
    with worker_processes(workers) as pool:
        futures = [pool.submit(job, name, mark) for name, mark in todo.items()]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            raise VideoError(
                "a process that probes videos was killed, perhaps for lack of memory",
                remedy="run it again with fewer workers: finished videos are kept; a script must start workers below "
                "`if __name__ == '__main__':`",
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _probe_one(folder: Path, name: str, fingerprint: str) -> Entry | BadFile:
    doing = f"while {folder / name} was probed"
    try:
        with raising_shortages(doing):
            probe = probe_video(folder / name)
    except VideoError as error:
        raise_if_shortage(error, doing)
        return BadFile(path=name, fingerprint=fingerprint, problem=error.problem)
    return Entry(path=name, fingerprint=fingerprint, **vars(probe))


def _check_share(folder: Path, path: Path, index: Index, max_bad: float) -> None:
    total = len(index.entries) + len(index.bad)
    if len(index.bad) > max_bad * total:
        first = index.bad[0]
        if folder.is_file():
            raise VideoError(first.problem, remedy="give another video, or a folder of videos")
        raise VideoError(
            f"{len(index.bad)} of the {total} videos below {folder} cannot be used, for example {first.path}: "
            f"{first.problem}",
            remedy=f"check that the folder is the right one and was copied completely; {path} lists every reason",
        )


# The file


def _index(items: Iterable[Entry | BadFile]) -> Index:
    items = sorted(items, key=lambda item: item.path)
    return Index(
        tuple(item for item in items if isinstance(item, Entry)),
        tuple(item for item in items if isinstance(item, BadFile)),
    )


def _line(item: Entry | BadFile | Mapping[str, int]) -> str:
    # In ASCII, so that file names that are not valid text survive the round trip.
    return json.dumps(item if isinstance(item, Mapping) else asdict(item)) + "\n"


def _lines(path: Path, *, is_journal: bool = False) -> Iterator[Entry | BadFile]:
    """Read the items of an index or journal; a journal has no header, and its last line may be incomplete."""
    if not path.exists():
        return
    # Bytes that are not UTF-8 are replaced, fail as JSON, and are reported with their line.
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        try:
            fields = json.loads(line)
            if number == 1 and not is_journal:
                if fields != _FORMAT:
                    raise ValueError("not the first line of an index")
                continue
            yield _item(fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            if is_journal:
                return
            raise VideoError(
                f"{path} line {number} is not a line of an index: {error}",
                remedy="delete the file and make the index again",
            ) from error


def _item(fields: dict[str, object]) -> Entry | BadFile:
    if "problem" in fields:
        bad = BadFile(**fields)  # type: ignore[arg-type]
        _check_types(bad)
        return bad
    entry = Entry(box=Box(**fields.pop("box")), **fields)  # type: ignore[arg-type]
    _check_types(entry)
    _check_types(entry.box)
    return entry


def _check_types(item: Entry | BadFile | Box) -> None:
    """Refuse values of the wrong type here; otherwise they would fail much later, when a clip is read."""
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        types = (int, float) if field.type is float else (field.type,)
        if type(value) not in types or (type(value) is float and not math.isfinite(value)):
            raise TypeError(f"{field.name} is {value!r}"[:200])
