"""Shards of a pack on this machine: fetched whole, checked, taken apart, and removed again when space is short."""

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from timecycle.data.shards import Shard, clip_name, read_shard, split_shard
from timecycle.errors import DamagedError, SettingsError, TimecycleError
from timecycle.files import make_folder, waiting_lock, writing
from timecycle.store import Store

log = logging.getLogger("timecycle")


class ShardCache:
    """Folders of clips, one per shard, at most `limit_bytes` of them; processes of one machine may share it.

    The shards of a run must be used nearly in order: the one that was not used for longest is removed first.
    """

    def __init__(self, store: Store, folder: Path, *, limit_bytes: float) -> None:
        self.name = store.name
        self.fetched = 0  # shards, by this process
        self._store = store
        self._folder = make_folder(folder)
        self._limit_bytes = limit_bytes
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        self._coming: threading.Thread | None = None

    def check_room(self, shard_bytes: int, shards: int) -> None:
        """Refuse a limit that what is in use at once, and what comes next, would not fit into."""
        least = 2 * shards * shard_bytes
        if self._limit_bytes < least:
            raise SettingsError(
                f"the cache may hold {self._limit_bytes / 1e9:.1f} GB, but {2 * shards} shards of "
                f"{shard_bytes / 1e9:.2f} GB are needed at once",
                remedy=f"allow {least / 1e9:.1f} GB with --cache-gb, or mix fewer with --set mixed_shards",
            )

    def folder(self, shard: str) -> Path:
        """The folder with the shard's clips, fetched if it is not here; StoreError if it cannot be had."""
        folder = self._folder / shard
        with self._lock_of(shard):
            while True:
                with suppress(FileNotFoundError):  # it is not here, or another process has just made room
                    os.utime(folder)
                    return folder
                with waiting_lock(self._folder / f".{shard}.lock"):
                    if not folder.exists():  # another process may have fetched it in the meantime
                        self._fetch(shard, folder)

    def expect(self, shards: Sequence[str]) -> None:
        """Begin to fetch what will soon be needed, unless a fetch is under way."""
        missing = [shard for shard in shards if not (self._folder / shard).exists()]
        if missing and (self._coming is None or not self._coming.is_alive()):
            self._coming = threading.Thread(target=self._fetch_quietly, args=(missing,), daemon=True)
            self._coming.start()

    def _fetch_quietly(self, shards: Sequence[str]) -> None:
        for shard in shards:
            try:
                self.folder(shard)
            except TimecycleError as error:
                log.debug("%s", error.problem)  # whoever needs the shard will meet it again
                return

    def _fetch(self, name: str, folder: Path) -> None:
        shard = read_shard(self._store.read(f"{name}.json"), where=f"{self.name}/{name}.json")
        self._make_room(shard.size)
        with (
            writing(folder),
            tempfile.TemporaryDirectory(dir=self._folder, prefix=f".{name}.", suffix=".part") as place,
        ):
            tar = Path(place) / "shard.tar"
            self._store.fetch(f"{name}.tar", tar)
            clips = make_folder(Path(place) / "clips")
            self._take_apart(tar, shard, clips)
            clips.rename(folder)
        self.fetched += 1

    def _take_apart(self, tar: Path, shard: Shard, folder: Path) -> None:
        damaged = 0
        for number, film in enumerate(split_shard(tar, shard)):
            if film is None:
                damaged += 1
            else:
                (folder / clip_name(number)).write_bytes(film)
        if damaged == len(shard.members):
            raise DamagedError(f"{self.name}/{shard.name}.tar is not what was packed", remedy="pack the videos again")
        if damaged:
            log.warning("%s/%s.tar: %d of %d clips are damaged", self.name, shard.name, damaged, len(shard.members))

    def _make_room(self, size: int) -> None:
        """Remove what was not used for longest until `size` more bytes are within the limit."""
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
