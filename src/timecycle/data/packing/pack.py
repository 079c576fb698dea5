"""Pack a folder of videos into shards that training reads from a disk or an object store.

STORE/shard-000000.tar, .json   clips, and their index              STORE/sources.jsonl   the result for every video
STORE/pack.json                 settings, shards, counts; written last: a pack without it is unfinished

Videos are cut in parallel and packed in the order of their names, so the shards do not depend on the number of workers.
Cut videos wait in a local work folder: a killed run resumes there and gives the same bytes. New videos can be added to
a pack; they go to new shards.
"""

import hashlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from timecycle.concurrency import ordered, read_ahead, worker_processes
from timecycle.data.corpus.index import find_videos, root_of
from timecycle.data.packing.shards import (
    Shard,
    is_shard_name,
    packed_clip,
    read_shard,
    shard_name,
    shard_text,
    write_shard,
)
from timecycle.data.packing.transcode import ClipFormat, CutClip, CutVideo, DuplicateDetector, clip_file_name, cut_video
from timecycle.errors import MissingError, SettingsError, StoreError, VideoError
from timecycle.files import clear_unfinished, lock, make_folder, user_cache, write_text
from timecycle.progress import OnProgress
from timecycle.shortages import raising_shortages
from timecycle.store import Store, is_address

PACK = "pack.json"
_SOURCES = "sources.jsonl"
_FORMAT = {"timecycle_pack": 2}
MAX_CORRUPT = 0.5  # a larger share of unreadable videos hints at the disk rather than the videos
_QUEUED_PER_WORKER = 4  # videos cut before the one being packed, for every worker
_JSON_ERRORS = (ValueError, TypeError, KeyError, AttributeError, RecursionError)  # what damaged JSON may raise


@dataclass(frozen=True, kw_only=True)
class PackConfig:
    """Settings of a pack. Shards of a gigabyte suit an object store; smaller ones suit a small corpus."""

    clips: ClipFormat = field(default_factory=ClipFormat)
    shard_mb: float = 256.0  # size after which a new shard is begun

    def __post_init__(self) -> None:
        if not 0 < self.shard_mb <= 100_000:
            raise SettingsError(f"shard_mb is {self.shard_mb}", remedy="give megabytes, such as 256")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Numbers of packed videos, of packed clips, and of what was left out."""

    videos: int = 0
    seconds: float = 0.0  # of readable videos
    clips: int = 0
    duplicate: int = 0
    static: int = 0
    short: int = 0
    corrupt: int = 0  # videos

    @property
    def is_alarming(self) -> bool:
        """Whether most of the videos could not be read."""
        return self.corrupt > MAX_CORRUPT * self.videos


@dataclass(frozen=True)
class PackedShard:
    """A shard as listed in pack.json."""

    name: str
    size: int
    sha256: str
    clips: int


@dataclass(frozen=True, kw_only=True)
class Pack:
    """A finished pack of videos in shards: its settings, its shards and what was left out."""

    config: PackConfig
    shards: tuple[PackedShard, ...]
    counts: Counts

    def __repr__(self) -> str:
        megabytes = sum(shard.size for shard in self.shards) / 1e6
        clips = f"{self.counts.clips} clips of {self.counts.videos} videos"
        return f"Pack({clips} in {len(self.shards)} shards, {megabytes:,.1f} MB)"


@dataclass(frozen=True)
class _Source:
    """A video and its clips, as stored in sources.jsonl."""

    path: str
    fingerprint: str
    cut: CutVideo


def work_folder(destination: str) -> Path:
    """Return a folder for unfinished work: beside the shards if they are on a disk, otherwise in the user's cache."""
    if is_address(destination):
        return user_cache("pack", destination.rstrip("/"))
    return Path(destination) / ".pack"


def pack(
    videos: Path,
    store: Store,
    work: Path,
    config: PackConfig,
    *,
    workers: int = 0,
    progress: OnProgress | None = None,
) -> Pack:
    """Pack every video below a folder, or a single file, that is not in the pack yet.

    `work` is a local folder for videos that are cut but not packed yet; pass the same folder to resume a killed run. At
    most `workers` processes cut videos (0: only this process).
    """
    fingerprints = find_videos(videos)
    make_folder(work)
    with lock(work):
        old = _old_pack(store)
        if old is not None and old.config != config:
            raise SettingsError(
                f"{store.name} was packed with other settings: {asdict(old.config)}",
                remedy="give the same settings, or another destination",
            )
        known = _read_sources(store) if old is not None else ()
        packed = {source.path: source.fingerprint for source in known}
        todo = {path: fingerprint for path, fingerprint in fingerprints.items() if packed.get(path) != fingerprint}
        if old is not None and not todo:
            return old
        store.clear_unfinished()
        packer = _Packer(root_of(videos), store, work, config, known, old.shards if old is not None else ())
        with raising_shortages(f"while {store.name} was packed"):
            with closing(packer.cut(todo, workers)) as sources:
                for source in sources:
                    packer.add(source)
                    if progress is not None:
                        progress(packer.added, len(todo))
            packer.close_shard()
        done = packer.finish()
        shutil.rmtree(work / "cut", ignore_errors=True)
    return done


def read_pack(store: Store) -> Pack:
    """Read the description of a finished pack."""
    try:
        fields = json.loads(store.read(PACK))
        if fields.pop("timecycle_pack", None) != _FORMAT["timecycle_pack"]:
            raise ValueError("it is not a pack, or one of another version")
        config = fields["config"]
        return Pack(
            config=PackConfig(clips=ClipFormat(**config.pop("clips")), **config),
            shards=tuple(_packed_shard(shard) for shard in fields["shards"]),
            counts=Counts(**fields["counts"]),
        )
    except _JSON_ERRORS as error:
        raise StoreError(f"{store.name}/{PACK} cannot be used: {error}", remedy="pack the videos again") from error


def _packed_shard(fields: dict[str, Any]) -> PackedShard:
    """Validate a listed shard: it may come from anywhere, and its name becomes a path."""
    name, size, clips = fields["name"], fields["size"], fields["clips"]
    if not isinstance(name, str) or not is_shard_name(name):
        raise ValueError(f"a shard is called {name!r}"[:200])
    if not all(type(number) is int and number >= 0 for number in (size, clips)):
        raise ValueError(f"{name} has {clips!r} clips in {size!r} bytes"[:200])
    return PackedShard(name, size, str(fields["sha256"]), clips)


def _old_pack(store: Store) -> Pack | None:
    try:
        return read_pack(store)
    except MissingError:
        return None


def read_shards(store: Store, pack: Pack) -> Iterator[Shard]:
    """Read the index of every shard of a pack, a few at a time."""
    return read_ahead(partial(read_listed, store), pack.shards)


def check_pack(store: Store, progress: OnProgress | None = None) -> list[str]:
    """Read every shard back and list those that differ from what was packed."""
    problems = []
    shards = read_pack(store).shards
    with tempfile.TemporaryDirectory() as folder:
        for number, shard in enumerate(shards, start=1):
            path = Path(folder) / "shard.tar"
            try:
                store.fetch(f"{shard.name}.tar", path)
            except StoreError as error:
                problems.append(error.problem)
            else:
                with path.open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != shard.sha256:
                        problems.append(f"{store.name}/{shard.name}.tar is not what was packed")
            if progress is not None:
                progress(number, len(shards))
    return problems


class _Packer:
    """Adds cut videos in order and writes shards."""

    def __init__(
        self,
        videos: Path,
        store: Store,
        work: Path,
        config: PackConfig,
        known: Sequence[_Source],
        shards: Sequence[PackedShard],
    ) -> None:
        self.added = 0  # videos
        self._videos, self._store, self._config = videos, store, config
        self._cut_folder = make_folder(work / "cut")
        self._work = work
        self._sources = list(known)
        self._shards = list(shards)
        self._duplicates = DuplicateDetector()
        self._counts: Counter[str] = Counter()
        self._waiting: list[tuple[CutClip, Path]] = []  # clips of the shard being filled
        self._waiting_bytes = 0
        clear_unfinished(self._work)
        for source in known:
            for clip in source.cut.clips:
                self._counts["clips" if self._duplicates.is_new(clip.hashes) else "duplicate"] += 1

    def cut(self, todo: Mapping[str, str], workers: int) -> Generator[_Source, None, None]:
        """Cut the videos and yield them in the order of their names; at most a few wait to be packed."""
        jobs = [
            _Job(self._videos, path, fingerprint, self._cut_folder / _short_hash(path), self._config.clips)
            for path, fingerprint in todo.items()
        ]
        pool = worker_processes(workers) if workers else None
        try:
            yield from ordered(pool, _cut_once, jobs, ahead=_QUEUED_PER_WORKER * workers)
        except BrokenProcessPool as error:
            raise VideoError(
                "a process that cuts videos was killed, perhaps for lack of memory",
                remedy="run it again with fewer workers: finished videos are kept; a script must start workers below "
                "`if __name__ == '__main__':`",
            ) from error

    def add(self, source: _Source) -> None:
        """Add a video's clips to the shard being filled, and write the shard when it is full."""
        self.added += 1
        self._sources.append(source)
        folder = self._cut_folder / _short_hash(source.path)
        for number, clip in enumerate(source.cut.clips):
            if not self._duplicates.is_new(clip.hashes):
                self._counts["duplicate"] += 1
                continue
            self._counts["clips"] += 1
            self._waiting.append((clip, folder / clip_file_name(number)))
            self._waiting_bytes += clip.size
            if self._waiting_bytes >= self._config.shard_mb * 1e6:
                self.close_shard()

    def close_shard(self) -> None:
        """Write the waiting clips as a shard, unless an earlier run did."""
        if not self._waiting:
            return
        name = shard_name(len(self._shards))
        shard = self._written(name) or self._write(name)
        self._shards.append(PackedShard(name, shard.size, shard.sha256, len(shard.members)))
        for _, path in self._waiting:
            path.unlink(missing_ok=True)
        self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> Pack:
        """Write sources.jsonl and pack.json, which finish the pack."""
        lines = "".join(json.dumps(asdict(source)) + "\n" for source in self._sources)
        self._store.write(_SOURCES, lines.encode())
        cuts = [source.cut for source in self._sources]
        counts = Counts(
            videos=len(cuts),
            seconds=round(sum(cut.seconds for cut in cuts), 3),
            clips=self._counts["clips"],
            duplicate=self._counts["duplicate"],
            static=sum(cut.static for cut in cuts),
            short=sum(cut.short for cut in cuts),
            corrupt=sum(bool(cut.problem) for cut in cuts),
        )
        done = Pack(config=self._config, shards=tuple(self._shards), counts=counts)
        self._store.write(PACK, (json.dumps(_FORMAT | asdict(done), indent=1) + "\n").encode())
        return done

    def _written(self, name: str) -> Shard | None:
        """Return the shard in the store, if it holds exactly the waiting clips."""
        try:
            shard = read_shard(self._store.read(f"{name}.json"), where=f"{self._store.name}/{name}.json")
        except StoreError:
            return None
        same = [member.sha256 for member in shard.members] == [clip.sha256 for clip, _ in self._waiting]
        return shard if same else None

    def _write(self, name: str) -> Shard:
        for clip, path in self._waiting:
            if not path.exists():  # packed into a shard that is missing, or that other videos have shifted
                cut_video(self._videos / clip.clip.source, clip.clip.source, path.parent, self._config.clips)
        with tempfile.NamedTemporaryFile(dir=self._work, prefix=f".{name}.", suffix=".part") as file:
            shard = write_shard(file, name, [(clip.clip, path) for clip, path in self._waiting])
            file.flush()
            self._store.put(Path(file.name), f"{name}.tar")
        # The tar first, so that an index never refers to a missing shard.
        self._store.write(f"{name}.json", shard_text(shard).encode())
        return shard


@dataclass(frozen=True)
class _Job:
    videos: Path
    path: str
    fingerprint: str
    folder: Path
    clips: ClipFormat


def _cut_once(job: _Job) -> _Source:
    """Cut a video, unless an earlier run did."""
    record = job.folder / "cut.json"
    if (before := _cut_before(record)) is not None and before.fingerprint == job.fingerprint:
        return before
    with raising_shortages(f"while {job.path} was cut"):
        shutil.rmtree(job.folder, ignore_errors=True)
        make_folder(job.folder)
        source = _Source(job.path, job.fingerprint, cut_video(job.videos / job.path, job.path, job.folder, job.clips))
        write_text(record, json.dumps(asdict(source)))
    return source


def _cut_before(record: Path) -> _Source | None:
    """Read the record of an earlier run, if it can be used."""
    try:
        return _source(json.loads(record.read_text(encoding="utf-8")))
    except (FileNotFoundError, *_JSON_ERRORS):
        return None


def _read_sources(store: Store) -> tuple[_Source, ...]:
    try:
        return tuple(_source(json.loads(line)) for line in store.read(_SOURCES).decode().splitlines())
    except _JSON_ERRORS as error:
        raise StoreError(
            f"{store.name}/{_SOURCES} cannot be used: {error}", remedy="pack the videos again, to another destination"
        ) from error


def _source(fields: dict[str, Any]) -> _Source:
    cut = fields["cut"]
    clips = tuple(_cut_clip(clip) for clip in cut.pop("clips"))
    return _Source(fields["path"], fields["fingerprint"], CutVideo(clips=clips, **cut))


def _cut_clip(fields: dict[str, Any]) -> CutClip:
    return CutClip(clip=packed_clip(fields.pop("clip")), hashes=tuple(fields.pop("hashes")), **fields)


def read_listed(store: Store, listed: PackedShard) -> Shard:
    """Read the index of a shard, which must be the one that the pack lists."""
    where = f"{store.name}/{listed.name}.json"
    shard = read_shard(store.read(f"{listed.name}.json"), where=where)
    if (shard.name, shard.sha256, len(shard.members)) != (listed.name, listed.sha256, listed.clips):
        raise StoreError(f"{where} is of another pack", remedy="pack the videos again")
    return shard


def _short_hash(path: str) -> str:
    return hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:20]
