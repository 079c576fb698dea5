"""The Hugging Face Hub: files of repositories, or of local folders in the same layout.

Encoders of this package are config.json and model.safetensors in a folder.
"""

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

from safetensors.torch import save

from timecycle.errors import SettingsError, WeightsError, first_line
from timecycle.extras import import_extra
from timecycle.files import atomic_write, make_folder, write_text
from timecycle.model.encoder import Encoder
from timecycle.model.resnet import ResNet, ResNetConfig
from timecycle.model.weights import Card, build_resnet, card_json, load_weights, plain_state, read_tensors

_log = logging.getLogger(__name__)

_NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?(#(?P<stage>\w+))?")

MODEL_TYPE = "timecycle"

_CONFIG = "config.json"
_TENSORS = "model.safetensors"


@dataclass(frozen=True, kw_only=True)
class HubName:
    """A repository or folder, its revision, and the stage of the encoder to use (None: chosen by the encoder)."""

    name: str
    revision: str | None = None
    stage: str | None = None

    def __str__(self) -> str:
        return self.name + (f"@{self.revision}" if self.revision else "") + (f"#{self.stage}" if self.stage else "")


def parse_hub_name(text: str) -> HubName | None:
    """Parse `ORGANISATION/NAME[@REVISION][#STAGE]` or `FOLDER[#STAGE]`; return None for anything else."""
    folder, _, stage = text.partition("#")
    if Path(folder).is_dir():
        return HubName(name=folder, stage=stage or None)
    parts = _NAME.fullmatch(text)
    return HubName(**parts.groupdict()) if parts and not Path(text).exists() else None


_OFFLINE: ContextVar[bool] = ContextVar("offline", default=False)


@contextmanager
def offline() -> Iterator[None]:
    """Forbid downloads within the context: the names of encoders come from a file there, not from the user."""
    token = _OFFLINE.set(True)
    try:
        yield
    finally:
        _OFFLINE.reset(token)


def is_offline() -> bool:
    """Return whether downloads are forbidden."""
    return _OFFLINE.get()


def hub_file(hub: HubName, file: str) -> Path | None:
    """Return the path of a file, downloaded if it is not cached; None if the repository or folder has no such file."""
    if Path(hub.name).is_dir():
        path = Path(hub.name) / file
        return path if path.is_file() else None
    import_extra("huggingface_hub", extra="hub")
    from huggingface_hub import hf_hub_download  # noqa: PLC0415  an optional dependency
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        with summarised_retries():
            return Path(hf_hub_download(hub.name, file, revision=hub.revision, local_files_only=is_offline()))
    except LocalEntryNotFoundError as error:
        reason = "is not used here" if is_offline() else "cannot be reached"
        raise WeightsError(
            f"{hub} is not on this machine, and the Hugging Face Hub {reason}",
            remedy="download it once with a connection (hf download NAME), or give a folder that contains it",
        ) from error
    except EntryNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise WeightsError(
            f"{hub} cannot be downloaded from the Hugging Face Hub: {first_line(error)}",
            remedy="check the name; a gated repository needs `hf auth login`",
        ) from error


@contextmanager
def summarised_retries() -> Iterator[None]:
    """Log once that the Hub does not answer, in place of the several lines that its client logs for every try."""
    client = logging.getLogger("huggingface_hub.utils._http")

    def keep(record: logging.LogRecord) -> bool:
        about_retries = re.search(r"thrown while requesting|Retrying in", record.getMessage()) is not None
        if about_retries:
            _warn_of_retries()
        return not about_retries

    client.addFilter(keep)
    try:
        yield
    finally:
        client.removeFilter(keep)


@cache  # once in a process, for any number of files
def _warn_of_retries() -> None:
    _log.warning("the Hugging Face Hub does not answer; trying again for half a minute")


def read_hub_config(hub: HubName) -> dict[str, Any]:
    """Read config.json, which every encoder of the Hub has."""
    path = hub_file(hub, _CONFIG)
    if path is None:
        raise WeightsError(
            f"{hub} has no {_CONFIG}, which describes its weights",
            remedy="give a folder written by save_pretrained, or a .safetensors file",
        )
    config = read_json(path)
    if not isinstance(config, dict):
        raise WeightsError(f"{path} holds no settings", remedy="download it again")
    return config


def read_json(path: Path) -> Any:
    """Read a settings file of a repository."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path} cannot be read: {first_line(error)}", remedy="download it again") from error


def save_pretrained(model: ResNet | Encoder, folder: str | Path, card: Card | None = None) -> Path:
    """Write a folder that `from_pretrained` reads and `hf upload NAME FOLDER` uploads.

    model: a model of `from_pretrained`, which also reads a file that `train` or `weights convert` wrote.
    folder: the folder to write.
    card: what the weights are and where they come from.
    """
    if not isinstance(model, ResNet):
        raise WeightsError(
            f"the model was passed as {type(model).__name__}",
            remedy="pass a model of `from_pretrained`, which also reads files: from_pretrained('weights.safetensors')",
        )
    target = make_folder(Path(folder))
    content = save(plain_state(model), metadata={"format": "pt"})
    with atomic_write(target / _TENSORS) as file:
        file.write(content)
    card = card or Card(encoder=model.config, trained_on="unknown", licence="unknown")
    write_text(target / _CONFIG, card_json(card, content, model_type=MODEL_TYPE))
    return target


def from_pretrained(name: str | Path, *, revision: str | None = None) -> ResNet:
    """Load an encoder that `save_pretrained` wrote, as a torch module; `encoder=` takes it in every call.

    name: a folder, a .safetensors file, or ORGANISATION/NAME of the Hugging Face Hub (extra `hub`).
    revision: a commit, branch or tag of the repository.
    """
    if Path(name).is_file():
        return load_weights(Path(name))
    hub = HubName(name=str(name), revision=revision)
    return build_pretrained(hub, read_hub_config(hub))


def build_pretrained(hub: HubName, config: dict[str, Any]) -> ResNet:
    """Build the encoder that a config.json of this package describes."""
    path = hub_file(hub, _TENSORS)
    if config.get("model_type") != MODEL_TYPE or path is None:
        raise WeightsError(
            f"{hub} is not an encoder of timecycle" if path else f"{hub} has no {_TENSORS}",
            remedy="use load_encoder, which also takes encoders of the transformers library",
        )
    try:
        encoder = ResNetConfig(**config["encoder"])
    except (KeyError, TypeError, SettingsError) as error:
        raise WeightsError(f"{hub} cannot be read: {error}", remedy="download it again") from error
    return build_resnet(path, read_tensors(path, sha256=str(config.get("sha256", ""))), encoder)
