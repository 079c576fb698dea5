"""Encoders of this package in the layout of the Hugging Face Hub: config.json and model.safetensors in a folder."""

from pathlib import Path
from typing import Any

from safetensors.torch import save

from timecycle.errors import SettingsError, WeightsError
from timecycle.files import atomic_write, make_folder, write_text
from timecycle.model.hub import HubName, hub_file, read_hub_config
from timecycle.model.resnet import ResNet, ResNetConfig
from timecycle.model.weights import Card, build_resnet, card_json, plain_state, read_tensors

MODEL_TYPE = "timecycle"

_CONFIG = "config.json"
_TENSORS = "model.safetensors"


def save_pretrained(model: ResNet, folder: str | Path, card: Card | None = None) -> Path:
    """Write a folder that `from_pretrained` reads and `hf upload NAME FOLDER` uploads.

    model: a model of `from_pretrained`, or of `timecycle.model.weights.load_weights`.
    folder: the folder to write.
    card: what the weights are and where they come from.
    """
    target = make_folder(Path(folder))
    content = save(plain_state(model), metadata={"format": "pt"})
    with atomic_write(target / _TENSORS) as file:
        file.write(content)
    card = card or Card(encoder=model.config, trained_on="unknown", licence="unknown")
    write_text(target / _CONFIG, card_json(card, content, model_type=MODEL_TYPE))
    return target


def from_pretrained(name: str | Path, *, revision: str | None = None) -> ResNet:
    """Load an encoder that `save_pretrained` wrote, as a torch module; `encoder=` takes it in every call.

    name: a folder, or ORGANISATION/NAME of the Hugging Face Hub (extra `hub`).
    revision: a commit, branch or tag of the repository.
    """
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
