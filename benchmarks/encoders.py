"""Encoders of the benchmarks: what `--encoder` names, former weights by their names too, each with changed settings."""

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from timecycle.config import build
from timecycle.model.encoder import Encoder
from timecycle.model.inference import Precision, ResNetEncoder
from timecycle.model.registry import load_encoder
from timecycle.model.resnet import ResNet, ResNetConfig, random_resnet, with_batch_norm_statistics
from timecycle.model.weights import (
    Card,
    build_resnet,
    find_bundled,
    hash_state,
    load_weights,
    read_card,
    save_weights,
    verify_checksum,
)

_FORMER = Path(__file__).parent / "weights"  # not in the package: mind their licences


def find_weights(name: str) -> Path | None:
    """Return the file of weights that come with the package or that earlier results were measured with."""
    former = {re.sub(r"-[0-9a-f]{8}$", "", path.stem): path for path in _FORMER.glob("*.safetensors")}
    return find_bundled(name) or former.get(name)


def load_named(
    name: str, changes: Sequence[str] = (), *, precision: Precision = "fp32", called: str | None = None
) -> Encoder:
    """Load an encoder, with changed settings of its descriptor; says so where an encoder has no such settings.

    `called` is the name of a changed one in records; without it the changes follow the name.
    """
    form, _, seed = name.removeprefix("random-").partition("@")
    weights, is_random = find_weights(form), name.startswith("random-")
    if not changes and (weights is None or find_bundled(form)):
        return load_encoder(name, precision=precision)
    if is_random:
        model = _random(form, weights, changes, seed=int(seed or 0))
    elif weights or name.endswith(".safetensors"):
        path = weights or Path(name)
        model = load_changed(path, changes)
        if not changes:
            return ResNetEncoder(model, name=name, sha256=verify_checksum(path), precision=precision)
    else:
        print(f"note: {name} has no descriptor settings; it is measured without {' '.join(changes)}", file=sys.stderr)
        return load_encoder(name, precision=precision)
    called = called or " ".join((name, *changes))
    return ResNetEncoder(model, name=called, sha256=hash_state(model.state_dict()), precision=precision)


def load_changed(weights: Path, changes: Sequence[str]) -> ResNet:
    """Load the encoder of a weights file with changed settings that have no parameters, such as colour=1."""
    model = load_weights(weights)
    return build_resnet(weights, model.state_dict(), _changed(model.config, changes))


def save_changed(weights: Path, changes: Sequence[str], path: Path) -> None:
    """Save the encoder of a weights file with changed settings, and its card."""
    model = load_changed(weights, changes)
    card = read_card(weights) or Card(encoder=model.config)
    save_weights(path, model, dataclasses.replace(card, encoder=model.config))


def _random(form: str, weights: Path | None, changes: Sequence[str], *, seed: int) -> ResNet:
    config = load_weights(weights).config if weights else build(ResNetConfig, {"architecture": form})
    return with_batch_norm_statistics(random_resnet(_changed(config, changes), seed=seed), seed=seed)


def _changed(config: ResNetConfig, changes: Sequence[str]) -> ResNetConfig:
    return build(ResNetConfig, dataclasses.asdict(config) | dict(change.split("=", 1) for change in changes))
