"""A folder or a prefix of an object store as one thing: names to bytes, each written whole or not at all.

Object stores come through fsspec (s3:// needs the extra `s3`). What may be named is a short list of kinds: other
addresses that fsspec or tar readers know, such as pipes, run commands or reach into servers.
"""

import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from timecycle.errors import MissingError, SettingsError, StoreError
from timecycle.extras import need
from timecycle.files import atomic_write, make_folder, sync_folder, writing
from timecycle.shortages import shortage

log = logging.getLogger("timecycle")

_KINDS = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}  # and the module that fsspec asks for
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0
DEFAULT_PATIENCE_SECONDS = 300.0

Result = TypeVar("Result")


def is_address(place: str) -> bool:
    """Whether it names an object store rather than a folder."""
    return "://" in place


def open_store(place: str | Path, *, patience_seconds: float = DEFAULT_PATIENCE_SECONDS) -> "Store":
    """The store at a folder or an address as s3://bucket/prefix.

    A server that does not answer is asked again, and again, for `patience_seconds`.
    """
    if not is_address(str(place)):
        return Folder(Path(place))
    kind, _, rest = str(place).partition("://")
    if kind not in _KINDS:
        raise SettingsError(
            f"{place} is of a kind that is not read",
            remedy=f"give a folder, or one of {', '.join(_KINDS)} followed by ://",
        )
    if not rest.strip("/"):
        raise SettingsError(f"{place} names no bucket", remedy=f"give {kind}://BUCKET/PREFIX")
    need(_KINDS[kind], extra="s3" if kind == "s3" else kind)
    return ObjectStore(str(place).rstrip("/"), patience_seconds=patience_seconds)


class Folder:
    """A folder; a file in it appears whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)

    def read(self, name: str) -> bytes:
        with _found(self.name, name):
            return (self._path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        path = self._path / name
        make_folder(path.parent)
        with atomic_write(path) as file:
            file.write(content)

    def create(self, name: str, content: bytes) -> bool:
        """Write what is not there yet; False, and nothing is written, if it is there."""
        path = self._path / name
        make_folder(path.parent)
        whole = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        try:
            with writing(path):
                whole.write_bytes(content)
                try:
                    os.link(whole, path)  # the only step that gives a name and refuses one that exists
                except FileExistsError:
                    return False
                sync_folder(path.parent)
        finally:
            whole.unlink(missing_ok=True)
        return True

    def clear_unfinished(self, name: str = "") -> None:
        """Remove what killed writes of a file left, or of all files beside each other in the folder.

        Only for who alone writes them.
        """
        path = self._path / name
        folder, start = (path.parent, f".{path.name}.") if name else (path, ".")
        for part in folder.glob(".*.part"):
            if part.name.startswith(start):
                part.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove it, if it is there."""
        with writing(self._path / name):
            (self._path / name).unlink(missing_ok=True)

    def mark(self, name: str) -> str:
        """What changes when the file does."""
        with _found(self.name, name):
            found = (self._path / name).stat()
        return f"{found.st_size}-{found.st_mtime_ns}"

    def fetch(self, name: str, path: Path) -> None:
        """Copy the file `name` to a path."""
        with _found(self.name, name):
            shutil.copyfile(self._path / name, path)

    def put(self, path: Path, name: str) -> None:
        """Copy the file at a path into the folder."""
        target = self._path / name
        make_folder(target.parent)
        with path.open("rb") as source, atomic_write(target) as file:
            shutil.copyfileobj(source, file, 1 << 20)

    def sizes(self, under: str = "") -> dict[str, int]:
        """Every name, or every one below `under`, and its size in bytes; hidden files are not meant."""
        files = {
            path.relative_to(self._path): path for path in sorted((self._path / under).rglob("*")) if path.is_file()
        }
        return {
            name.as_posix(): path.stat().st_size
            for name, path in files.items()
            if not any(part.startswith(".") for part in name.parts)
        }


class ObjectStore:
    """A prefix of an object store; putting an object replaces it at once."""

    def __init__(self, address: str, *, patience_seconds: float) -> None:
        url_to_fs: Any = need("fsspec.core", extra="s3").url_to_fs
        # Listings are never kept: another process may write.
        self._files, self._root = url_to_fs(address, use_listings_cache=False, skip_instance_cache=True)
        self._patience_seconds = patience_seconds
        self.name = address

    def read(self, name: str) -> bytes:
        content: bytes = self._patiently(name, lambda: self._files.cat_file(self._key(name)))
        return content

    def write(self, name: str, content: bytes) -> None:
        self._patiently(name, lambda: self._files.pipe_file(self._key(name), content))

    def create(self, name: str, content: bytes) -> bool:
        """Write what is not there yet; False if it is there.

        Some stores ignore the condition and replace what is there: read it back where that matters.
        """
        try:
            self._patiently(name, lambda: self._files.pipe_file(self._key(name), content, mode="create"))
        except _ExistsError:
            return False
        return True

    def clear_unfinished(self, name: str = "") -> None:
        """Do nothing: an object is there whole or not at all."""

    def remove(self, name: str) -> None:
        """Remove it, if it is there."""
        with suppress(MissingError):
            self._patiently(name, lambda: self._files.rm_file(self._key(name)))

    def mark(self, name: str) -> str:
        """What changes when the object does."""
        about: dict[str, Any] = self._patiently(name, lambda: self._files.info(self._key(name)))
        etag = about.get("ETag") or about.get("etag") or about.get("md5Hash") or about.get("content_md5")
        return f"{about['size']}-{etag or about.get('LastModified') or about.get('updated')}".replace('"', "")

    def fetch(self, name: str, path: Path) -> None:
        """Bring the object `name` to a path."""
        self._patiently(name, lambda: self._files.get_file(self._key(name), str(path)))

    def put(self, path: Path, name: str) -> None:
        """Send the file at a path."""
        self._patiently(name, lambda: self._files.put_file(str(path), self._key(name)))

    def sizes(self, under: str = "") -> dict[str, int]:
        """Every name, or every one below `under`, and its size in bytes."""
        top = f"{self._root}/{under}".rstrip("/")
        found: dict[str, dict[str, Any]] = self._patiently(under, lambda: self._files.find(top, detail=True))
        start = len(self._root) + 1
        return {key[start:]: int(about["size"]) for key, about in sorted(found.items())}

    def _key(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _patiently(self, name: str, act: Callable[[], Result]) -> Result:
        """Do it; what a server's absence or overload may have caused is tried again until patience ends."""
        began, pause = time.monotonic(), _FIRST_PAUSE_SECONDS
        while True:
            try:
                with _found(self.name, name):
                    return act()
            except StoreError:
                raise
            except Exception as error:
                if isinstance(error, FileExistsError):
                    raise _ExistsError(f"{self.name} has {name} already", remedy="choose another name") from error
                if (short := shortage(error, f"with {self.name}/{name}")) is not None:
                    raise short from error  # this machine's, not the server's: waiting for an answer does not help
                waited = time.monotonic() - began
                if waited + pause > self._patience_seconds:
                    raise StoreError(
                        f"{self.name} does not answer for {name or 'its list'}, {waited:.0f} s long: {_short(error)}",
                        remedy="check the address, the network and the server, then run it again: what is done is kept",
                    ) from error
                if pause == _FIRST_PAUSE_SECONDS:
                    log.warning("%s does not answer for %s (%s); trying again", self.name, name, _short(error))
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


Store = Folder | ObjectStore


class _ExistsError(StoreError):
    """What was to be created is there."""


@contextmanager
def _found(place: str, name: str) -> Iterator[None]:
    """What is not there, or not ours to read, will not be there the next time either."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingError(f"{place} has no {name}", remedy="check the address; it may have been removed") from error
    except PermissionError as error:
        raise StoreError(
            f"{place} does not give {name}: {_short(error)}", remedy="check the keys and what they allow"
        ) from error


def _short(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
