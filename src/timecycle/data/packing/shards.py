"""Shards: many short clips in one tar file in the layout of WebDataset, with an index of its members.

NAME.tar holds 000000.mp4, 000000.json, 000001.mp4 ... in this order; any reader of WebDataset can read it. NAME.json
beside it lists offset, size and checksum of every clip, so that clips are read without the headers of the tar, and
damaged ones are detected before they reach a decoder. Equal clips give equal bytes.

A cache fetches, verifies and extracts shards on this machine, and evicts the least recently used.
"""

import hashlib
import io
import json
import logging
import os
import re
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from timecycle.data.corpus.index import Entry
from timecycle.data.corpus.probe import Box, VideoProbe
from timecycle.errors import DamagedError, SettingsError, TimecycleError
from timecycle.files import make_folder, waiting_lock, writing
from timecycle.store import Store

log = logging.getLogger("timecycle")

_FORMAT = {"timecycle_shard": 1}
_BLOCK = 512  # a tar's
_NAME = re.compile(r"shard-[0-9]{6,}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_CLIP_BYTES = 1 << 30
_INDEX = "index.json"  # in the cache, beside the clips


@dataclass(frozen=True, kw_only=True)
class PackedClip(VideoProbe):
    """The probe of a clip, and its origin."""

    source: str  # the video it was cut from, below the packed folder
    start_seconds: float  # in the source


@dataclass(frozen=True, kw_only=True)
class Member:
    """A clip of a shard: its offset, size and checksum in the tar."""

    clip: PackedClip
    offset: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Shard:
    """A tar file and its members."""

    name: str  # without .tar
    size: int
    sha256: str
    members: tuple[Member, ...]

    def entries(self) -> list[Entry]:
        """Return the clips as entries of an index for training."""
        return [_entry(self.name, number, member) for number, member in enumerate(self.members)]


def shard_name(number: int) -> str:
    return f"shard-{number:06d}"


def is_shard_name(name: str) -> bool:
    """Whether it is a name that `shard_name` gives: no path, no hidden file."""
    return _NAME.fullmatch(name) is not None


def clip_name(number: int) -> str:
    return f"{number:06d}.mp4"


def write_shard(file: IO[bytes], name: str, clips: Sequence[tuple[PackedClip, Path]]) -> Shard:
    """Write clips as a tar; equal clips give equal bytes on every machine, at any time."""
    members = []
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number, (clip, path) in enumerate(clips):
            video = path.read_bytes()
            about = json.dumps(asdict(clip), sort_keys=True).encode()
            # A header of one block comes first.
            members.append(
                Member(clip=clip, offset=tar.offset + _BLOCK, size=len(video), sha256=hashlib.sha256(video).hexdigest())
            )
            for suffix, content in ((".mp4", video), (".json", about)):
                head = tarfile.TarInfo(Path(clip_name(number)).stem + suffix)
                head.size = len(content)
                head.mode = 0o644
                tar.addfile(head, io.BytesIO(content))
    size = file.tell()
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]
    return Shard(name, size, digest.hexdigest(), tuple(members))


def shard_text(shard: Shard) -> str:
    """Serialise the index of a shard as JSON."""
    return json.dumps({**_FORMAT, **asdict(shard)}, indent=1) + "\n"


def read_shard(text: str | bytes, *, where: str) -> Shard:
    """Parse and validate the index of a shard, which may come from anywhere."""
    try:
        fields = json.loads(text)
        if fields.pop("timecycle_shard", None) != _FORMAT["timecycle_shard"]:
            raise ValueError("not the index of a shard")
        members = tuple(_member(member) for member in fields.pop("members"))
        shard = Shard(members=members, **fields)
        _check(shard)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{where} is not the index of a shard: {error}", remedy="pack the videos again") from error
    return shard


def read_clips(tar: Path, shard: Shard) -> Iterator[bytes | None]:
    """Yield the bytes of the clips in order; None for damaged ones.

    Only the offsets of the index are read. The names in the tar, which may point anywhere, are never used.
    """
    with tar.open("rb") as file:
        for member in shard.members:
            file.seek(member.offset)
            clip = file.read(member.size)
            yield clip if hashlib.sha256(clip).hexdigest() == member.sha256 else None


def _entry(name: str, number: int, member: Member) -> Entry:
    clip = member.clip
    return Entry(
        path=f"{name}/{clip_name(number)}",
        fingerprint=member.sha256,
        frames=clip.frames,
        fps=clip.fps,
        width_px=clip.width_px,
        height_px=clip.height_px,
        box=clip.box,
        motion=clip.motion,
        source=clip.source,
    )


def packed_clip(fields: dict[str, Any]) -> PackedClip:
    """Build a clip from its JSON fields."""
    return PackedClip(box=Box(**fields.pop("box")), **fields)


def _member(fields: dict[str, Any]) -> Member:
    return Member(clip=packed_clip(fields.pop("clip")), **fields)


def _check(shard: Shard) -> None:
    if not isinstance(shard.name, str) or not is_shard_name(shard.name):
        raise ValueError(f"its name is {shard.name!r}")
    if not isinstance(shard.sha256, str) or not _SHA256.fullmatch(shard.sha256):
        raise ValueError(f"its checksum is {shard.sha256!r}"[:200])
    end = 0
    for number, member in enumerate(shard.members):
        if not end + _BLOCK <= member.offset or not 0 < member.size <= _MAX_CLIP_BYTES:
            raise ValueError(f"clip {number} has offset {member.offset} and {member.size} bytes")
        end = member.offset + member.size
        box, clip = member.clip.box, member.clip
        if not (0 <= box.left < box.right <= clip.width_px and 0 <= box.top < box.bottom <= clip.height_px):
            raise ValueError(f"the box of clip {number} reaches beyond its frame")
        if clip.frames < 2 or not clip.fps > 0:
            raise ValueError(f"clip {number} has {clip.frames} frames at {clip.fps} a second")
    if end > shard.size:
        raise ValueError(f"its last clip ends at byte {end} of {shard.size}")


class ShardCache:
    """A cache of one folder of clips per shard, of at most `limit_bytes`; processes of one machine may share it.

    Shards should be used nearly in order: the least recently used one is removed first.
    """

    def __init__(self, store: Store, folder: Path, *, limit_bytes: float) -> None:
        self.name = store.name
        self.fetched = 0  # shards, by this process
        self._store = store
        self._folder = make_folder(folder)
        self._limit_bytes = limit_bytes
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        self._prefetching: threading.Thread | None = None

    def check_room(self, shard_bytes: int, shards: int) -> None:
        """Refuse a limit that cannot hold the shards in use and the next group of as many."""
        least = 2 * shards * shard_bytes
        if self._limit_bytes < least:
            raise SettingsError(
                f"the cache may hold {self._limit_bytes / 1e9:.1f} GB, but {2 * shards} shards of "
                f"{shard_bytes / 1e9:.2f} GB are needed at once",
                remedy=f"allow {least / 1e9:.1f} GB with --cache-gb, or mix fewer with --set mixed_shards",
            )

    def folder(self, shard: str) -> Path:
        """Return the folder with the shard's clips, fetched if needed; raise StoreError if that fails."""
        folder = self._folder / shard
        with self._lock_of(shard):
            while True:
                with suppress(FileNotFoundError):  # not fetched yet, or just evicted by another process
                    os.utime(folder)
                    return folder
                with waiting_lock(self._folder / f".{shard}.lock"):
                    if not folder.exists():  # another process may have fetched it in the meantime
                        self._fetch(shard, folder)

    def shard(self, name: str) -> Shard:
        """Return the index of a shard, which is fetched if needed; raise StoreError if that fails."""
        try:
            text = (self.folder(name) / _INDEX).read_bytes()
        except FileNotFoundError:  # just evicted by another process
            text = self._store.read(f"{name}.json")
        return read_shard(text, where=f"{self.name}/{name}.json")

    def prefetch(self, shards: Sequence[str]) -> None:
        """Begin to fetch shards in the background, unless a prefetch is running."""
        missing = [shard for shard in shards if not (self._folder / shard).exists()]
        if missing and (self._prefetching is None or not self._prefetching.is_alive()):
            self._prefetching = threading.Thread(target=self._prefetch_all, args=(missing,), daemon=True)
            self._prefetching.start()

    def _prefetch_all(self, shards: Sequence[str]) -> None:
        for shard in shards:
            try:
                self.folder(shard)
            except TimecycleError as error:
                log.debug("%s", error.problem)  # the reader of the shard will raise it again
                return

    def _fetch(self, name: str, folder: Path) -> None:
        text = self._store.read(f"{name}.json")
        shard = read_shard(text, where=f"{self.name}/{name}.json")
        self._make_room(shard.size)
        with (
            writing(folder),
            tempfile.TemporaryDirectory(dir=self._folder, prefix=f".{name}.", suffix=".part") as temporary,
        ):
            tar = Path(temporary) / "shard.tar"
            self._store.fetch(f"{name}.tar", tar)
            clips = make_folder(Path(temporary) / "clips")
            self._extract(tar, shard, clips)
            (clips / _INDEX).write_bytes(text)
            clips.rename(folder)
        self.fetched += 1

    def _extract(self, tar: Path, shard: Shard, folder: Path) -> None:
        damaged = 0
        for number, clip in enumerate(read_clips(tar, shard)):
            if clip is None:
                damaged += 1
            else:
                (folder / clip_name(number)).write_bytes(clip)
        if damaged == len(shard.members):
            raise DamagedError(f"{self.name}/{shard.name}.tar is not what was packed", remedy="pack the videos again")
        if damaged:
            log.warning("%s/%s.tar: %d of %d clips are damaged", self.name, shard.name, damaged, len(shard.members))

    def _make_room(self, size: int) -> None:
        """Remove the least recently used shards until `size` more bytes are within the limit."""
        shards = sorted(
            (path for path in self._folder.iterdir() if path.is_dir() and not path.name.startswith(".")),
            key=lambda path: path.stat().st_mtime,
        )
        sizes = {path: sum(file.stat().st_size for file in path.iterdir()) for path in shards}
        used = sum(sizes.values())
        for path in shards:
            if used + size <= self._limit_bytes:
                return
            shutil.rmtree(path, ignore_errors=True)
            used -= sizes[path]

    def _lock_of(self, shard: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(shard, threading.Lock())
