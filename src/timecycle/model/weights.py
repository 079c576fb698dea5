"""Weights on disk: safetensors with a JSON card, and those bundled with the package.

Pickles are refused, because loading one can run code. Files named with a checksum are checked against it.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from timecycle.errors import SettingsError, WeightsError, first_line
from timecycle.files import atomic_write, sha256, write_text
from timecycle.model.resnet import ResNet, ResNetConfig

PICKLES = (".pth", ".pt", ".ckpt", ".bin", ".tar", ".pkl", ".pickle")
CLASSIFIER = ("layer4.", "fc.")  # a classifier's last layers, which the encoder does not have

_NAMED = re.compile(r"(?P<name>.+)-(?P<hash>[0-9a-f]{8})\.safetensors")  # as torch.hub names its files


@dataclass(frozen=True, kw_only=True)
class Card:
    """The description of a weight file, for people and for loading it."""

    encoder: ResNetConfig
    trained_on: str = "nothing: random initialisation"
    licence: str = "not stated"
    notes: str = ""
    scores: dict[str, float] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)  # the file it was converted from, if any
    sha256: str = ""  # of the file of tensors; empty: unknown


def save_weights(path: Path, model: ResNet, card: Card, *, half: bool = False) -> None:
    """Write PATH.safetensors and PATH.json; with `half` kernels are stored in half precision.

    Norms stay in full precision: they are few, and a small variance would become zero.
    """
    state = plain_state(model)
    if half:
        state = {name: tensor.half() if tensor.ndim > 1 else tensor for name, tensor in state.items()}
    base = path.name.removesuffix(".safetensors")
    content = save(state)
    with atomic_write(path.with_name(f"{base}.safetensors")) as file:
        file.write(content)
    write_text(path.with_name(f"{base}.json"), card_json(card, content))


def card_json(card: Card, content: bytes, **more: str) -> str:
    """Return the JSON of the card of a file with this content."""
    complete = dataclasses.replace(card, sha256=hashlib.sha256(content).hexdigest())
    return json.dumps({**more, **dataclasses.asdict(complete)}, indent=2) + "\n"


def load_weights(path: Path) -> ResNet:
    """Load the model of a safetensors file; without a card its architecture follows from the tensors' names."""
    if path.suffix.lower() in PICKLES:
        raise WeightsError(
            f"{path} is a pickle checkpoint, and loading a pickle can run any code",
            remedy=f"convert it once, which runs no code: timecycle weights convert {path}",
        )
    if not path.is_file():
        raise WeightsError(
            f"there is no file of weights {path}",
            remedy="give a .safetensors file, or a name that `timecycle weights list` shows",
        )
    card = read_card(path)
    state = {
        name.removeprefix("module."): tensor
        for name, tensor in read_tensors(path, sha256=card.sha256 if card else "").items()
        if not name.removeprefix("module.").startswith(CLASSIFIER)
    }
    return build_resnet(path, state, card.encoder if card else None)


def read_tensors(path: Path, *, sha256: str = "") -> dict[str, Tensor]:
    """Read the tensors of a safetensors file; with `sha256`, refuse a file of another checksum."""
    try:
        content = path.read_bytes()
        if sha256 not in ("", hashlib.sha256(content).hexdigest()):
            raise WeightsError(
                f"{path} does not have the checksum on its card",
                remedy="copy it again, with its card: it was changed or damaged",
            )
        return load(content)
    except (SafetensorError, OSError, MemoryError, ValueError, KeyError, RuntimeError) as error:
        raise WeightsError(
            f"{path} is not a safetensors file: {first_line(error)}", remedy="copy it again; it may be incomplete"
        ) from error


def refuse_not_finite(name: str | Path, state: Mapping[str, Tensor]) -> None:
    """Refuse weights with values that are not finite: they would give empty labels without an error."""
    broken = [tensor for tensor, values in state.items() if not torch.isfinite(values).all()]
    if broken:
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise WeightsError(
            f"{name}: {broken[0]}{more} holds values that are not finite",
            remedy="use weights of an earlier step, or copy the file again",
        )


def build_resnet(path: Path, state: dict[str, Tensor], config: ResNetConfig | None = None) -> ResNet:
    """Build a model of these tensors; without settings they follow from the tensors' names. `path` is for messages."""
    config = config or guess_config(path, state)
    with torch.device("meta"):  # takes no memory: a card, or a tensor without values, may claim any size
        _check_state(path, ResNet(config), state)
    refuse_not_finite(path, state)
    model = ResNet(config)
    with torch.no_grad():
        model.load_state_dict(state, strict=False)
    return model


def plain_state(model: ResNet) -> dict[str, Tensor]:
    """Return a model's tensors as safetensors stores them."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}


def hash_state(state: dict[str, Tensor]) -> str:
    """Compute one checksum over all tensors of a model, independent of the file they came from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def read_card(path: Path) -> Card | None:
    """Read the card of a weight file, if there is one."""
    card = path.with_suffix(".json")
    if not card.is_file():
        return None
    try:
        fields: dict[str, Any] = json.loads(card.read_text(encoding="utf-8"))
        read = Card(**{**fields, "encoder": ResNetConfig(**fields["encoder"])})
        _check_types(read)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SettingsError) as error:
        raise WeightsError(
            f"the card {card} does not describe an encoder: {first_line(error)}",
            remedy="use the card that came with the weights, or remove it if they are torchvision's",
        ) from error
    return read


def _check_types(card: Card) -> None:
    for name in ("trained_on", "licence", "notes", "sha256"):
        if not isinstance(getattr(card, name), str):
            raise TypeError(f"{name} is not a text")
    for name, kind in (("scores", int | float), ("source", str)):
        if not isinstance(getattr(card, name), dict):
            raise TypeError(f"{name} is not a table")
        if not all(isinstance(value, kind) for value in getattr(card, name).values()):
            raise TypeError(f"{name} holds values of a wrong type")


def guess_config(path: Path, state: dict[str, Tensor]) -> ResNetConfig:
    """Derive settings from the names and shapes of tensors; `path` is for messages."""
    if "conv1.weight" not in state or "layer1.0.conv1.weight" not in state:
        raise WeightsError(
            f"{path} lacks the tensors of a ResNet (conv1.weight, layer1.0.conv1.weight ...)",
            remedy="give weights with torchvision's ResNet names",
        )
    head = state.get("head.weight")
    return ResNetConfig(
        architecture="resnet50" if "layer1.0.conv3.weight" in state else "resnet18",
        head_channels=None if head is None else head.shape[0],
    )


def _check_state(path: Path, model: ResNet, state: dict[str, Tensor]) -> None:
    """Refuse tensors that do not fit a model."""
    wanted = model.state_dict()
    # Old exports lack the batch counters, which inference never reads.
    missing = [n for n in wanted if n not in state and not n.endswith("num_batches_tracked")]
    unknown = [n for n in state if n not in wanted]
    reshaped = [n for n in wanted if n in state and state[n].shape != wanted[n].shape]
    for names, what in (
        (missing, "lacks"),
        (unknown, "has the unknown tensor"),
        (reshaped, "has a wrong shape for"),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise WeightsError(
                f"{path} {what} {names[0]}{more}",
                remedy=f"give weights that fit the card or, without one, a {model.config.architecture} of torchvision",
            )


def bundled_weights() -> dict[str, Path]:
    """Return the files of the bundled weights by their names for `--encoder`."""
    folder = Path(str(files("timecycle.weights")))
    named_files = ((path, _NAMED.fullmatch(path.name)) for path in sorted(folder.glob("*.safetensors")))
    return {match["name"]: path for path, match in named_files if match}


def find_bundled(name: str) -> Path | None:
    """Return the file of the bundled weights of that name, if there are any."""
    return bundled_weights().get(name)


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
