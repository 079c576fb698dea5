"""Weights, checkpoints, folders of the Hub and settings for benchmarks/fuzz.py."""

import io
import json
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

from fuzz_kind import Kind, expect
from fuzz_mutations import changed_json, changed_safetensors, changed_zip
from timecycle import propagate
from timecycle.config import build, preset_names, propagate_config, read_preset, train_config
from timecycle.labels import Masks
from timecycle.model.checkpoints import read_checkpoint
from timecycle.model.hub import offline, save_pretrained
from timecycle.model.registry import load_encoder
from timecycle.model.resnet import ResNetConfig, random_resnet
from timecycle.model.weights import Card, load_weights, save_weights
from timecycle.propagation.settings import PropagateConfig


@dataclass(frozen=True)
class Whole:
    """A file of tensors that is read, a small one that only begins like it, and what stands beside."""

    content: bytes
    small: bytes
    beside: bytes = b""


@cache
def _model() -> Any:
    return random_resnet(ResNetConfig(architecture="resnet18", last="res2"), seed=0)


def _small(content: bytes) -> bytes:
    """The same names with hardly any values: headers can be read a thousand times in the time of whole files."""
    return save({name: tensor.flatten()[:2].clone() for name, tensor in load(content).items()})


# Our own files


def whole_weights(folder: Path) -> Whole:
    """A file of weights and its card."""
    save_weights(folder / "w.safetensors", _model(), Card(encoder=_model().config))
    content = (folder / "w.safetensors").read_bytes()
    return Whole(content, _small(content), (folder / "w.json").read_bytes())


def damage_weights(chance: Random, whole: Whole, folder: Path) -> Path:
    """Weights, their card, or both, changed; seldom with a card that fits."""
    return _write_pair(chance, whole, folder / "w.safetensors", folder / "w.json")


def read_weights(path: Path) -> None:
    """What is loaded is finite."""
    state = load_weights(path).state_dict()
    expect(all(bool(torch.isfinite(tensor).all()) for tensor in state.values()), "weights that are no numbers")


def whole_hub(folder: Path) -> Whole:
    """A folder as save_pretrained writes it."""
    save_pretrained(_model(), folder)
    content = (folder / "model.safetensors").read_bytes()
    return Whole(content, _small(content), (folder / "config.json").read_bytes())


def damage_hub(chance: Random, whole: Whole, folder: Path) -> Path:
    """The folder with changed files; sometimes it claims to be of another library."""
    _write_pair(chance, whole, folder / "model.safetensors", folder / "config.json")
    if chance.random() < 0.1:
        other = {
            "model_type": chance.choice(("dinov2", "resnet", "vit", "x", "")),
            "hidden_size": chance.choice((8, -1, 1 << 40)),
        }
        (folder / "config.json").write_bytes(
            changed_json(chance, json.dumps(other | {"architectures": ["A"]}).encode())
        )
    return folder


def read_hub(folder: Path) -> None:
    """The encoder of a folder, without asking the network."""
    with offline():
        load_encoder(str(folder))


def _write_pair(chance: Random, whole: Whole, tensors: Path, card: Path) -> Path:
    act = chance.random()
    content = whole.small if chance.random() < 0.6 else whole.content
    tensors.write_bytes(content if act < 0.3 else changed_safetensors(chance, content))
    beside = whole.beside
    if act >= 0.3:  # without its checksum the card lets changed tensors pass
        beside = json.dumps({**json.loads(beside), "sha256": ""}).encode()
    if act < 0.9:
        card.write_bytes(changed_json(chance, beside) if act < 0.5 else beside)
    return tensors


# Those of others


def whole_checkpoint(folder: Path) -> Whole:
    """A checkpoint as torch saves it."""
    state = random_resnet(ResNetConfig(), seed=0).state_dict()
    whole, small = io.BytesIO(), io.BytesIO()
    torch.save({"state_dict": state, "epoch": 3, "arch": "resnet18"}, whole)
    torch.save({"state_dict": {name: tensor.flatten()[:2].clone() for name, tensor in state.items()}}, small)
    return Whole(whole.getvalue(), small.getvalue())


def damage_checkpoint(chance: Random, whole: Whole, folder: Path) -> Path:
    """Members, names or bytes of the zip changed."""
    path = folder / "model.pth"
    path.write_bytes(changed_zip(chance, whole.small if chance.random() < 0.8 else whole.content))
    return path


def read_foreign(path: Path) -> None:
    """The encoder in it."""
    read_checkpoint(path)


# Settings

_VALUES = (
    *(
        "none",
        "0",
        "-1",
        "1",
        "3",
        "1.5",
        "nan",
        "inf",
        "-inf",
        "1e308",
        "1e-308",
        "100000000",
        "9" * 400,
        "9" * 5000,
        "",
        " ",
    ),
    *(
        "true",
        "[1,2]",
        "1,2,3",
        "[",
        "\0",
        "\x1b[0m",
        "é",
        "1_000",
        "0x10",
        "circle",
        "auto",
        "fp32",
        "walks",
        "[" * 3000,
        "٣",
    ),
)


def setting_names(_: Path) -> dict[str, list[str]]:
    """Every setting by the verb that knows it."""

    def names(table: dict[str, Any], before: str = "") -> list[str]:
        return [
            name
            for key, value in table.items()
            for name in (names(value, f"{before}{key}.") if isinstance(value, dict) else [f"{before}{key}"])
        ]

    fields = list(PropagateConfig.__dataclass_fields__)
    return {
        "propagate": fields,
        "train": sorted({n for p in preset_names("train") for n in names(read_preset("train", p))}),
    }


def strange_settings(chance: Random, names: dict[str, list[str]], _: Path) -> tuple[str, list[str] | str]:
    """NAME=VALUE words, or a preset with other values."""
    verb = chance.choice(("propagate", "propagate", "train", "toml"))
    if verb == "toml":
        known = [name for name in names["propagate"] if chance.random() < 0.2]
        lines = (f"{name} = {chance.choice((*_VALUES, '[[]]', '{}', '1979-05-27', '{a=1}'))}" for name in known)
        return verb, "\n".join(lines)
    words = []
    for _number in range(chance.choice((1, 1, 1, 2, 3))):
        name = chance.choice(names[verb])
        if chance.random() < 0.1:
            name = chance.choice((f"{name}.x", name[:-1], "", ".", name.upper(), f"{name}..", "\0"))
        words.append(f"{name}={chance.choice(_VALUES)}" if chance.random() < 0.97 else name)
    return verb, words


def read_settings(case: tuple[str, list[str] | str]) -> str | None:
    """Settings that are accepted can be used: a few frames are propagated."""
    verb, words = case
    if isinstance(words, str):
        try:
            values = tomllib.loads(words)
        except (ValueError, RecursionError):  # presets come with the package: only their values are strange
            return "no TOML"
        build(PropagateConfig, values)
    elif verb == "train":
        train_config("small", words)
    else:
        _propagate(propagate_config("default", words))
    return None


def _propagate(config: PropagateConfig) -> None:
    video = np.zeros((3, 16, 24, 3), np.uint8)
    ids = np.zeros((16, 24), np.uint16)
    ids[4:8, 4:12] = 1
    for labelled in propagate(video, Masks(ids), encoder="rgb", config=config):
        expect(labelled.labels.ids.shape == ids.shape, "labels of another size")


KINDS = {
    "weights": Kind(prepare=whole_weights, make=damage_weights, read=read_weights, share=1.5),
    "hub": Kind(prepare=whole_hub, make=damage_hub, read=read_hub, share=1, patience_seconds=60),
    "checkpoints": Kind(prepare=whole_checkpoint, make=damage_checkpoint, read=read_foreign, share=1.5),
    "settings": Kind(prepare=setting_names, make=strange_settings, read=read_settings, share=2, patience_seconds=60),
}
