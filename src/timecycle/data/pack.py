"""Packing: a folder of videos, once, into shards that training reads from a disk or an object store.

STORE/shard-000000.tar, .json   clips, and where each lies          STORE/sources.jsonl   what became of every video
STORE/pack.json                 settings, shards, counts: written last, a pack without it is not finished

Videos are cut in parallel and packed in the order of their names, so that the shards depend on nothing else. Finished
cuts wait in a local folder: a run that was killed goes on from there and ends with the same bytes. A pack can be added
to: videos that are new go to new shards.
"""

import hashlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from timecycle.data.cuts import SeenClips
from timecycle.data.index import Index, find_videos, root_of
from timecycle.data.shards import Shard, is_shard_name, packed_clip, read_shard, shard_name, shard_text, write_shard
from timecycle.data.transcode import ClipForm, CutClip, Cutting, cut_video, film_name
from timecycle.data.workers import worker_pool
from timecycle.errors import MissingError, SettingsError, StoreError, VideoError
from timecycle.files import clear_parts, lock, make_folder, write_text
from timecycle.shortages import stopping
from timecycle.store import Store

PACK = "pack.json"
_SOURCES = "sources.jsonl"
_FORMAT = {"timecycle_pack": 1}
MOST_CORRUPT = 0.5  # a larger share of videos that cannot be read is an alarm: rather the disk than the videos
_AHEAD = 4  # videos cut ahead of the one that is packed, for every worker
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)  # what damaged JSON may raise
_READERS = 8  # threads that read indexes of shards: nearly all of their time is waiting

Progress = Callable[[int, int], None]  # videos packed, of how many


@dataclass(frozen=True, kw_only=True)
class PackConfig:
    """What a pack is like. Shards of a gigabyte suit an object store; smaller ones suit a small corpus."""

    form: ClipForm = field(default_factory=ClipForm)
    shard_mb: float = 256.0

    def __post_init__(self) -> None:
        if not 0 < self.shard_mb <= 100_000:
            raise SettingsError(f"shard_mb is {self.shard_mb}", remedy="give megabytes, such as 256")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What went in, what came out, and what was left out."""

    videos: int = 0
    seconds: float = 0.0  # of videos that could be read
    clips: int = 0
    duplicate: int = 0
    still: int = 0
    short: int = 0
    corrupt: int = 0  # videos

    @property
    def is_alarming(self) -> bool:
        """Whether most of the videos could not be read."""
        return self.corrupt > MOST_CORRUPT * self.videos


@dataclass(frozen=True)
class PackedShard:
    """A shard as the pack lists it."""

    name: str
    size: int
    sha256: str
    clips: int


@dataclass(frozen=True, kw_only=True)
class Pack:
    """A finished pack."""

    config: PackConfig
    shards: tuple[PackedShard, ...]
    counts: Counts


@dataclass(frozen=True)
class _Source:
    """A video and what became of it, as sources.jsonl keeps it."""

    path: str
    fingerprint: str
    cutting: Cutting


def pack(
    videos: Path,
    store: Store,
    work: Path,
    config: PackConfig,
    *,
    workers: int = 0,
    progress: Progress | None = None,
) -> Pack:
    """Pack every video below a folder, or one file, that is not in the pack yet.

    `work` is a local folder for what is cut and not packed yet; it must be the same when a killed run goes on. At most
    `workers` processes cut (0: none but this one).
    """
    found = find_videos(videos)
    make_folder(work)
    with lock(work):
        old = _old_pack(store)
        if old is not None and old.config != config:
            raise SettingsError(
                f"{store.name} was packed with other settings: {asdict(old.config)}",
                remedy="give the same settings, or another place",
            )
        known = _read_sources(store) if old is not None else ()
        packed = {source.path: source.fingerprint for source in known}
        todo = {path: mark for path, mark in found.items() if packed.get(path) != mark}
        if old is not None and not todo:
            return old
        store.clear_unfinished()
        packer = _Packer(root_of(videos), store, work, config, known, old.shards if old is not None else ())
        with stopping(f"while {store.name} was packed"), ExitStack() as stack:
            for source in packer.cut(todo, workers, stack):
                packer.add(source)
                if progress is not None:
                    progress(packer.taken, len(todo))
            packer.close_shard()
        done = packer.finish()
        shutil.rmtree(work / "cut", ignore_errors=True)
    return done


def read_pack(store: Store) -> Pack:
    """The finished pack in a store."""
    try:
        fields = json.loads(store.read(PACK))
        if fields.pop("timecycle_pack", None) != _FORMAT["timecycle_pack"]:
            raise ValueError("not a pack of this format")
        config = fields["config"]
        return Pack(
            config=PackConfig(form=ClipForm(**config.pop("form")), **config),
            shards=tuple(_packed_shard(shard) for shard in fields["shards"]),
            counts=Counts(**fields["counts"]),
        )
    except _UNREADABLE as error:
        raise StoreError(f"{store.name}/{PACK} cannot be used: {error}", remedy="pack the videos again") from error


def _packed_shard(fields: dict[str, Any]) -> PackedShard:
    """A shard of the list, which may come from anywhere: its name becomes a path."""
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


def read_shards(store: Store, pack: Pack) -> list[Shard]:
    """What every shard of a pack holds."""
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(lambda listed: _read_listed(store, listed), pack.shards))


def pack_index(shards: Iterable[Shard]) -> Index:
    """The clips of all shards, as training lists videos."""
    return Index(tuple(entry for shard in shards for entry in shard.entries()))


def check_pack(store: Store, progress: Progress | None = None) -> list[str]:
    """Read every shard back; what is not as it was packed."""
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
    """Takes cut videos in order and writes shards."""

    def __init__(
        self,
        videos: Path,
        store: Store,
        work: Path,
        config: PackConfig,
        known: Sequence[_Source],
        shards: Sequence[PackedShard],
    ) -> None:
        self.taken = 0
        self._videos, self._store, self._config = videos, store, config
        self._cut = make_folder(work / "cut")
        self._work = work
        self._sources = list(known)
        self._shards = list(shards)
        self._seen = SeenClips()
        self._counts: Counter[str] = Counter()
        self._waiting: list[tuple[CutClip, Path]] = []  # of the shard being filled
        self._bytes = 0  # of what waits
        clear_parts(self._work)
        for source in known:
            for clip in source.cutting.clips:
                self._counts["clips" if self._seen.is_new(clip.marks) else "duplicate"] += 1

    def cut(self, todo: Mapping[str, str], workers: int, stack: ExitStack) -> Iterator[_Source]:
        """The videos, cut, in the order of their names; at most a few wait to be packed."""
        form = self._config.form
        jobs = [_Job(self._videos, path, mark, self._cut / _short_hash(path), form) for path, mark in todo.items()]
        if workers == 0:
            yield from map(_cut_once, jobs)
            return
        pool = stack.enter_context(worker_pool(workers))
        stack.callback(pool.shutdown, cancel_futures=True)
        ahead: list[Future[_Source]] = []
        try:
            for job in jobs:
                ahead.append(pool.submit(_cut_once, job))
                if len(ahead) > _AHEAD * workers:
                    yield ahead.pop(0).result()
            while ahead:
                yield ahead.pop(0).result()
        except BrokenProcessPool as error:
            raise VideoError(
                "a process that cuts videos was ended from outside, perhaps for want of memory",
                remedy="run it again with fewer workers: what has been cut is kept",
            ) from error

    def add(self, source: _Source) -> None:
        """Take a video's clips into the shard being filled, and write the shard when it is full."""
        self.taken += 1
        self._sources.append(source)
        folder = self._cut / _short_hash(source.path)
        for number, clip in enumerate(source.cutting.clips):
            if not self._seen.is_new(clip.marks):
                self._counts["duplicate"] += 1
                continue
            self._counts["clips"] += 1
            self._waiting.append((clip, folder / film_name(number)))
            self._bytes += clip.size
            if self._bytes >= self._config.shard_mb * 1e6:
                self.close_shard()

    def close_shard(self) -> None:
        """Write what waits as a shard, unless a run before this one did."""
        if not self._waiting:
            return
        name = shard_name(len(self._shards))
        shard = self._written(name) or self._write(name)
        self._shards.append(PackedShard(name, shard.size, shard.sha256, len(shard.members)))
        for _, film in self._waiting:
            film.unlink(missing_ok=True)
        self._waiting, self._bytes = [], 0

    def finish(self) -> Pack:
        """Write what makes the shards a pack; after this it is finished."""
        lines = "".join(json.dumps(asdict(source)) + "\n" for source in self._sources)
        self._store.write(_SOURCES, lines.encode())
        cuttings = [source.cutting for source in self._sources]
        counts = Counts(
            videos=len(self._sources),
            seconds=round(sum(cutting.seconds for cutting in cuttings), 3),
            clips=self._counts["clips"],
            duplicate=self._counts["duplicate"],
            still=sum(cutting.still for cutting in cuttings),
            short=sum(cutting.short for cutting in cuttings),
            corrupt=sum(bool(cutting.problem) for cutting in cuttings),
        )
        done = Pack(config=self._config, shards=tuple(self._shards), counts=counts)
        self._store.write(PACK, (json.dumps(_FORMAT | asdict(done), indent=1) + "\n").encode())
        return done

    def _written(self, name: str) -> Shard | None:
        """The shard in the store, if it holds just what waits."""
        try:
            shard = read_shard(self._store.read(f"{name}.json"), where=f"{self._store.name}/{name}.json")
        except StoreError:
            return None
        same = [member.sha256 for member in shard.members] == [clip.sha256 for clip, _ in self._waiting]
        return shard if same else None

    def _write(self, name: str) -> Shard:
        for clip, film in self._waiting:
            if not film.exists():  # packed into a shard that is gone, or that other videos have shifted
                cut_video(self._videos / clip.clip.source, clip.clip.source, film.parent, self._config.form)
        with tempfile.NamedTemporaryFile(dir=self._work, prefix=f".{name}.", suffix=".part") as file:
            shard = write_shard(file, name, [(clip.clip, film) for clip, film in self._waiting])
            file.flush()
            self._store.put(Path(file.name), f"{name}.tar")
        # The tar first: an index never speaks of a shard that is not there.
        self._store.write(f"{name}.json", shard_text(shard).encode())
        return shard


@dataclass(frozen=True)
class _Job:
    videos: Path
    path: str
    fingerprint: str
    folder: Path
    form: ClipForm


def _cut_once(job: _Job) -> _Source:
    """Cut a video, unless it was cut before."""
    record = job.folder / "cut.json"
    if (before := _cut_before(record)) is not None and before.fingerprint == job.fingerprint:
        return before
    with stopping(f"while {job.path} was cut"):
        shutil.rmtree(job.folder, ignore_errors=True)
        make_folder(job.folder)
        source = _Source(job.path, job.fingerprint, cut_video(job.videos / job.path, job.path, job.folder, job.form))
        write_text(record, json.dumps(asdict(source)))
    return source


def _cut_before(record: Path) -> _Source | None:
    """What a run before this one left, if it can be used."""
    try:
        return _source(json.loads(record.read_text(encoding="utf-8")))
    except (FileNotFoundError, *_UNREADABLE):
        return None


def _read_sources(store: Store) -> tuple[_Source, ...]:
    try:
        return tuple(_source(json.loads(line)) for line in store.read(_SOURCES).decode().splitlines())
    except _UNREADABLE as error:
        raise StoreError(
            f"{store.name}/{_SOURCES} cannot be used: {error}", remedy="pack the videos again, to another place"
        ) from error


def _source(fields: dict[str, Any]) -> _Source:
    cutting = fields["cutting"]
    clips = tuple(_cut_clip(clip) for clip in cutting.pop("clips"))
    return _Source(fields["path"], fields["fingerprint"], Cutting(clips=clips, **cutting))


def _cut_clip(fields: dict[str, Any]) -> CutClip:
    return CutClip(clip=packed_clip(fields.pop("clip")), marks=tuple(fields.pop("marks")), **fields)


def _read_listed(store: Store, listed: PackedShard) -> Shard:
    where = f"{store.name}/{listed.name}.json"
    shard = read_shard(store.read(f"{listed.name}.json"), where=where)
    if (shard.name, shard.sha256, len(shard.members)) != (listed.name, listed.sha256, listed.clips):
        raise StoreError(f"{where} is of another pack", remedy="pack the videos again")
    return shard


def _short_hash(path: str) -> str:
    return hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:20]
