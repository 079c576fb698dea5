"""The weights that come with the package, and whether a file of weights is what its name says."""

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from timecycle.errors import WeightsError
from timecycle.files import sha256
from timecycle.model.weights import load_weights

_NAMED = re.compile(r"(?P<name>.+)-(?P<hash>[0-9a-f]{8})\.safetensors")  # as torch.hub names its files


@dataclass(frozen=True)
class Shipped:
    """A name that `--encoder` takes, and the file behind it."""

    name: str
    path: Path


def shipped() -> list[Shipped]:
    """What is in the package, by name."""
    folder = Path(str(files("timecycle.weights")))
    found = ((path, _NAMED.fullmatch(path.name)) for path in sorted(folder.glob("*.safetensors")))
    return [Shipped(match["name"], path) for path, match in found if match]


def find_shipped(name: str) -> Path | None:
    """The file of weights of that name, if it comes with the package."""
    return next((weights.path for weights in shipped() if weights.name == name), None)


def verify_weights(path: Path) -> str:
    """The file's checksum, once it agrees with its name and card and its tensors are finite and as the card says."""
    load_weights(path)
    return check_name(path)


def check_name(path: Path) -> str:
    """The file's checksum, once it agrees with the file's name, where that has one."""
    found, named = sha256([path]), _NAMED.fullmatch(path.name)
    if named and not found.startswith(named["hash"]):
        raise WeightsError(
            f"{path} has the checksum {found[:8]}, its name says {named['hash']}",
            remedy="copy or install it again: it was changed or damaged",
        )
    return found
