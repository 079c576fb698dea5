"""One interface to a folder and to a prefix of an object store; every file or object is written atomically.

Object stores are read through fsspec (s3:// needs the extra `s3`). Only a few URL schemes are accepted: others that
fsspec or tar readers know, such as pipes, run commands or contact servers.
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
from timecycle.extras import import_extra
from timecycle.files import atomic_write, clear_unfinished, make_folder, sync_folder, writing
from timecycle.shortages import find_shortage

log = logging.getLogger("timecycle")

_SCHEMES = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}  # with the module that fsspec imports
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0
DEFAULT_PATIENCE_SECONDS = 300.0

Result = TypeVar("Result")


def is_address(location: str) -> bool:
    """Return whether `location` is an address of an object store rather than a folder."""
    return "://" in location


def open_store(location: str | Path, *, patience_seconds: float = DEFAULT_PATIENCE_SECONDS) -> "Store":
    """Open the store in a folder or at an address such as s3://bucket/prefix.

    Requests to a server that does not answer are repeated for `patience_seconds`.
    """
    if not is_address(str(location)):
        return FolderStore(Path(location))
    scheme, _, rest = str(location).partition("://")
    if scheme not in _SCHEMES:
        raise SettingsError(
            f"{location} is not an address of a supported object store",
            remedy=f"give a folder, or an address that begins with {', '.join(f'{name}://' for name in _SCHEMES)}",
        )
    if not rest.strip("/"):
        raise SettingsError(f"{location} names no bucket", remedy=f"give {scheme}://BUCKET/PREFIX")
    module = _SCHEMES[scheme]
    import_extra(module, extra="s3" if scheme == "s3" else None, packages=() if scheme == "s3" else (module,))
    return ObjectStore(str(location).rstrip("/"), patience_seconds=patience_seconds)


class FolderStore:
    """A store in a folder; files are written atomically."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)

    def read(self, name: str) -> bytes:
        with _store_errors(self.name, name):
            return (self._path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        path = self._path / name
        make_folder(path.parent)
        with atomic_write(path) as file:
            file.write(content)

    def create(self, name: str, content: bytes) -> bool:
        """Write a new file and return True; return False and write nothing if it exists."""
        path = self._path / name
        make_folder(path.parent)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        try:
            with writing(path):
                temporary.write_bytes(content)
                try:
                    os.link(temporary, path)  # atomic, and fails if the name exists
                except FileExistsError:
                    return False
                sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def clear_unfinished(self, name: str = "") -> None:
        """Remove temporary files that killed writes left: those of one file, or of all files directly in the folder.

        Nobody else may be writing them.
        """
        path = self._path / name
        clear_unfinished(path.parent if name else path, path.name if name else None)

    def remove(self, name: str) -> None:
        """Remove it, if it is there."""
        with writing(self._path / name):
            (self._path / name).unlink(missing_ok=True)

    def version_tag(self, name: str) -> str:
        """Return a text that changes when the file does."""
        with _store_errors(self.name, name):
            status = (self._path / name).stat()
        return f"{status.st_size}-{status.st_mtime_ns}"

    def fetch(self, name: str, path: Path) -> None:
        """Copy the file `name` to a path."""
        with _store_errors(self.name, name):
            shutil.copyfile(self._path / name, path)

    def put(self, path: Path, name: str) -> None:
        """Copy the file at a path into the folder."""
        target = self._path / name
        make_folder(target.parent)
        with path.open("rb") as source, atomic_write(target) as file:
            shutil.copyfileobj(source, file, 1 << 20)

    def sizes(self, under: str = "") -> dict[str, int]:
        """Return the size in bytes of every file, or every file below `under`, by name; hidden files are left out."""
        files = {
            path.relative_to(self._path): path for path in sorted((self._path / under).rglob("*")) if path.is_file()
        }
        return {
            name.as_posix(): path.stat().st_size
            for name, path in files.items()
            if not any(part.startswith(".") for part in name.parts)
        }


class ObjectStore:
    """A store at a prefix of an object store; writing an object replaces it atomically."""

    def __init__(self, address: str, *, patience_seconds: float) -> None:
        url_to_fs: Any = import_extra("fsspec.core", extra="s3").url_to_fs
        # Listings are not cached: another process may write.
        self._files, self._root = url_to_fs(address, use_listings_cache=False, skip_instance_cache=True)
        self._patience_seconds = patience_seconds
        self.name = address

    def read(self, name: str) -> bytes:
        content: bytes = self._with_retries(name, lambda: self._files.cat_file(self._key(name)))
        return content

    def write(self, name: str, content: bytes) -> None:
        self._with_retries(name, lambda: self._files.pipe_file(self._key(name), content))

    def create(self, name: str, content: bytes) -> bool:
        """Write a new object and return True; return False if it exists.

        Some stores ignore the condition and replace an existing object: read it back where that matters.
        """
        try:
            self._with_retries(name, lambda: self._files.pipe_file(self._key(name), content, mode="create"))
        except _ExistsError:
            return False
        return True

    def clear_unfinished(self, name: str = "") -> None:
        """Do nothing: object stores keep no unfinished objects."""

    def remove(self, name: str) -> None:
        """Remove it, if it is there."""
        with suppress(MissingError):
            self._with_retries(name, lambda: self._files.rm_file(self._key(name)))

    def version_tag(self, name: str) -> str:
        """Return a text that changes when the object does."""
        info: dict[str, Any] = self._with_retries(name, lambda: self._files.info(self._key(name)))
        etag = info.get("ETag") or info.get("etag") or info.get("md5Hash") or info.get("content_md5")
        return f"{info['size']}-{etag or info.get('LastModified') or info.get('updated')}".replace('"', "")

    def fetch(self, name: str, path: Path) -> None:
        """Download the object `name` to a path."""
        self._with_retries(name, lambda: self._files.get_file(self._key(name), str(path)))

    def put(self, path: Path, name: str) -> None:
        """Upload the file at a path."""
        self._with_retries(name, lambda: self._files.put_file(str(path), self._key(name)))

    def sizes(self, under: str = "") -> dict[str, int]:
        """Return the size in bytes of every object, or every object below `under`, by name."""
        top = f"{self._root}/{under}".rstrip("/")
        listing: dict[str, dict[str, Any]] = self._with_retries(under, lambda: self._files.find(top, detail=True))
        start = len(self._root) + 1
        return {key[start:]: int(info["size"]) for key, info in sorted(listing.items())}

    def _key(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _with_retries(self, name: str, request: Callable[[], Result]) -> Result:
        """Make a request; repeat it while the server may be unreachable or overloaded, until patience ends."""
        began, pause = time.monotonic(), _FIRST_PAUSE_SECONDS
        while True:
            try:
                with _store_errors(self.name, name):
                    return request()
            except StoreError:
                raise
            except Exception as error:
                if isinstance(error, FileExistsError):
                    raise _ExistsError(f"{self.name} has {name} already", remedy="choose another name") from error
                if (shortage := find_shortage(error, f"with {self.name}/{name}")) is not None:
                    raise shortage from error  # of this machine, not of the server: retrying does not help
                waited = time.monotonic() - began
                if waited + pause > self._patience_seconds:
                    raise StoreError(
                        f"{self.name} does not answer for {name or 'its list'}, for {waited:.0f} s: {_message(error)}",
                        remedy="check the address, the network and the server, then run it again (done work is kept)",
                    ) from error
                if pause == _FIRST_PAUSE_SECONDS:
                    log.warning("%s does not answer for %s (%s); trying again", self.name, name, _message(error))
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


Store = FolderStore | ObjectStore


class _ExistsError(StoreError):
    """An object that was to be created exists."""


@contextmanager
def _store_errors(location: str, name: str) -> Iterator[None]:
    """Raise StoreError for a missing or forbidden object, which a retry would not help."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingError(f"{location} has no {name}", remedy="check the address; it may have been removed") from error
    except PermissionError as error:
        raise StoreError(
            f"{location} does not allow reading {name}: {_message(error)}",
            remedy="check the keys and their permissions",
        ) from error


def _message(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
