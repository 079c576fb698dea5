"""Where the Hugging Face Hub keeps encoders: a repository by name, or a folder in the same layout."""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from timecycle.errors import WeightsError, first_line
from timecycle.extras import need

_log = logging.getLogger(__name__)

_NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?(#(?P<stage>\w+))?")


@dataclass(frozen=True, kw_only=True)
class HubName:
    """A repository or a folder, a revision, and which stage of the encoder to take (none: a good one)."""

    name: str
    revision: str | None = None
    stage: str | None = None

    def __str__(self) -> str:
        return self.name + (f"@{self.revision}" if self.revision else "") + (f"#{self.stage}" if self.stage else "")


def parse_hub_name(text: str) -> HubName | None:
    """What `ORGANISATION/NAME[@REVISION][#STAGE]` or `FOLDER[#STAGE]` says; None if it is neither."""
    folder, _, stage = text.partition("#")
    if Path(folder).is_dir():
        return HubName(name=folder, stage=stage or None)
    parts = _NAME.fullmatch(text)
    return HubName(**parts.groupdict()) if parts and not Path(text).exists() else None


_OFFLINE: ContextVar[bool] = ContextVar("offline", default=False)


@contextmanager
def offline() -> Iterator[None]:
    """Within it encoders are read from this machine only: their names came from a file, not from the user."""
    token = _OFFLINE.set(True)
    try:
        yield
    finally:
        _OFFLINE.reset(token)


def is_offline() -> bool:
    """Whether the Hub must not be asked."""
    return _OFFLINE.get()


def hub_file(hub: HubName, file: str) -> Path | None:
    """The file, brought here if it was not yet; None if the repository or folder has no such file."""
    if Path(hub.name).is_dir():
        path = Path(hub.name) / file
        return path if path.is_file() else None
    need("huggingface_hub", extra="hub")
    from huggingface_hub import hf_hub_download  # noqa: PLC0415  an extra
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        with retries_in_one_line():
            return Path(hf_hub_download(hub.name, file, revision=hub.revision, local_files_only=is_offline()))
    except LocalEntryNotFoundError as error:
        reason = "was not asked" if is_offline() else "cannot be reached"
        raise WeightsError(
            f"{hub} is not on this machine, and the Hugging Face Hub {reason}",
            remedy="bring it here once with a connection (hf download NAME), or give a folder that holds it",
        ) from error
    except EntryNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise WeightsError(
            f"the Hugging Face Hub does not give {hub}: {first_line(error)}",
            remedy="check the name; a gated repository needs `hf auth login`",
        ) from error


@contextmanager
def retries_in_one_line() -> Iterator[None]:
    """Say once that the Hub does not answer: its client says so before and after every try, each time twice."""
    client = logging.getLogger("huggingface_hub.utils._http")

    def told_otherwise(record: logging.LogRecord) -> bool:
        about_retries = re.search(r"thrown while requesting|Retrying in", record.getMessage()) is not None
        if about_retries:
            _say_that_the_hub_does_not_answer()
        return not about_retries

    client.addFilter(told_otherwise)
    try:
        yield
    finally:
        client.removeFilter(told_otherwise)


@cache  # once in a process, whatever number of files is asked for
def _say_that_the_hub_does_not_answer() -> None:
    _log.warning("the Hugging Face Hub does not answer; trying again for half a minute")


def read_hub_config(hub: HubName) -> dict[str, Any]:
    """config.json, which every encoder of the Hub has."""
    path = hub_file(hub, "config.json")
    if path is None:
        raise WeightsError(
            f"{hub} has no config.json, which says what its weights are",
            remedy="give a folder written by save_pretrained, or a .safetensors file",
        )
    config = read_json(path)
    if not isinstance(config, dict):
        raise WeightsError(f"{path} holds no settings", remedy="bring it here again")
    return config


def read_json(path: Path) -> Any:
    """What a settings file of a repository holds."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path} cannot be read: {first_line(error)}", remedy="bring it here again") from error
