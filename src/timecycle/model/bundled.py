"""Weights bundled with the package, and checks of weight files against the checksums in their names."""

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from timecycle.errors import WeightsError
from timecycle.files import sha256
from timecycle.model.weights import load_weights

_NAMED = re.compile(r"(?P<name>.+)-(?P<hash>[0-9a-f]{8})\.safetensors")  # as torch.hub names its files


@dataclass(frozen=True)
class BundledWeights:
    """A name for `--encoder` and its file."""

    name: str
    path: Path


def bundled_weights() -> list[BundledWeights]:
    """List the bundled weights by name."""
    folder = Path(str(files("timecycle.weights")))
    named_files = ((path, _NAMED.fullmatch(path.name)) for path in sorted(folder.glob("*.safetensors")))
    return [BundledWeights(match["name"], path) for path, match in named_files if match]


def find_bundled(name: str) -> Path | None:
    """Return the file of the bundled weights of that name, if there are any."""
    return next((weights.path for weights in bundled_weights() if weights.name == name), None)


def verify_weights(path: Path) -> str:
    """Return a weight file's checksum, or refuse the file if its name, its card or its tensors do not agree with it."""
    load_weights(path)
    return verify_checksum(path)


def verify_checksum(path: Path) -> str:
    """Return a file's checksum, or refuse the file if its name contains another one."""
    checksum, named = sha256([path]), _NAMED.fullmatch(path.name)
    if named and not checksum.startswith(named["hash"]):
        raise WeightsError(
            f"{path} has the checksum {checksum[:8]}, but its name says {named['hash']}",
            remedy="copy or install it again: it was changed or damaged",
        )
    return checksum
