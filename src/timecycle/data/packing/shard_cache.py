"""Cache shards of a pack on this machine: fetch, verify and extract them, and evict the least recently used."""

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from timecycle.data.packing.shards import Shard, clip_name, read_clips, read_shard
from timecycle.errors import DamagedError, SettingsError, TimecycleError
from timecycle.files import make_folder, waiting_lock, writing
from timecycle.store import Store

log = logging.getLogger("timecycle")


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
        shard = read_shard(self._store.read(f"{name}.json"), where=f"{self.name}/{name}.json")
        self._make_room(shard.size)
        with (
            writing(folder),
            tempfile.TemporaryDirectory(dir=self._folder, prefix=f".{name}.", suffix=".part") as temporary,
        ):
            tar = Path(temporary) / "shard.tar"
            self._store.fetch(f"{name}.tar", tar)
            clips = make_folder(Path(temporary) / "clips")
            self._extract(tar, shard, clips)
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
