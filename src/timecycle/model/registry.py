"""Registry of encoders: loads what `--encoder` names, in bf16 where that is fast and agrees with fp32."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import nn

from timecycle.concurrency import supports_bf16
from timecycle.device import Device, pick_device
from timecycle.errors import SettingsError, WeightsError
from timecycle.model.encoder import Encoder
from timecycle.model.hub import MODEL_TYPE, HubName, build_pretrained, parse_hub_name, read_hub_config
from timecycle.model.inference import Precision, ResNetEncoder
from timecycle.model.resnet import Architecture, ResNetConfig, random_resnet, with_batch_norm_statistics
from timecycle.model.third_party.backbone import load_backbone
from timecycle.model.third_party.hand_crafted import RgbEncoder, SiftEncoder
from timecycle.model.third_party.imagenet import (
    VGG16_FIRST_PX,
    VGG16_STRIDE_PX,
    StridePx,
    efficientnet_first_px,
    efficientnet_lite0,
    vgg16,
)
from timecycle.model.third_party.module import encoder_of_module
from timecycle.model.third_party.network import IMAGENET_SCALING, Geometry, NetworkEncoder, Scaling
from timecycle.model.weights import PICKLES, bundled_weights, find_bundled, hash_state, load_weights, verify_checksum
from timecycle.synthetic import WorldConfig, make_world

DEFAULT_ENCODER = "timecycle-v2"  # bundled with the package, see docs/model.md

PrecisionChoice = Literal["auto", "fp32", "bf16"]
_Loader = Callable[[Device, Precision], Encoder]

_LARGEST_SEED = 2**64 - 1  # that torch accepts

_EFFICIENTNET = Scaling(mean=(127, 127, 127), std=(128, 128, 128))

log = logging.getLogger("timecycle")

_AGREEMENT = 0.999  # mean cosine of descriptors


def load_encoder(
    encoder: str | Path | Encoder | nn.Module = DEFAULT_ENCODER,
    *,
    device: Device = "auto",
    precision: PrecisionChoice = "fp32",
) -> Encoder:
    """Load an encoder, or make one of a torch module; an object that is an encoder already is returned as it is.

    encoder: a name (`timecycle weights list` shows them), a .safetensors file, a folder or ORGANISATION/NAME[@REVISION]
        [#STAGE] of the Hugging Face Hub, a model of `from_pretrained`, or a torch module: a ResNet-18 or -50, or a
        network from ImageNet-scaled images to feature maps.
    device: auto, cpu, cuda or mps.
    precision: fp32 is the most exact. auto is bf16 where a CPU multiplies it and descriptors agree.
    """
    if isinstance(encoder, Encoder):
        return encoder
    if precision == "auto":
        if pick_device(device).type != "cpu":
            return load_encoder(encoder, device=device)
        return choose_precision(lambda chosen: load_encoder(encoder, device="cpu", precision=chosen))
    if isinstance(encoder, nn.Module):
        return encoder_of_module(encoder, device=device, precision=precision)
    if not isinstance(encoder, str | Path):
        raise SettingsError(
            f"the encoder was passed as {type(encoder).__name__}",
            remedy="pass a name or a path, a torch module, or an object with name, sha256, description and encode",
        )
    name_or_path = str(encoder)
    if re.fullmatch(r"random-[\w-]+(@\d+)?", name_or_path):
        return _random(name_or_path, device, precision)
    if name_or_path in _NAMED:
        return _NAMED[name_or_path](device, precision)
    bundled = find_bundled(name_or_path)
    path = bundled or Path(name_or_path)
    hub = None if path.suffix in (".safetensors", *PICKLES) else parse_hub_name(name_or_path)
    if hub is not None:
        return _from_hub(hub, device, precision)
    if path.suffix == "" and not path.exists():
        raise WeightsError(
            f"there is no encoder {name_or_path!r}",
            remedy="give a .safetensors file, a folder or ORGANISATION/NAME of the Hugging Face Hub, "
            f"or one of the names {', '.join(encoder_names())}",
        )
    model = load_weights(path)
    name = name_or_path if bundled else path.name
    return ResNetEncoder(model, name=name, sha256=verify_checksum(path), device=device, precision=precision)


def encoder_names() -> list[str]:
    """List the names that `load_encoder` knows; `random-...` takes a seed as in random-resnet18@1."""
    return [*bundled_weights(), *(f"random-{form}" for form in (*get_args(Architecture), *bundled_weights())), *_NAMED]


def _from_hub(hub: HubName, device: Device, precision: Precision) -> Encoder:
    config = read_hub_config(hub)
    if config.get("model_type") != MODEL_TYPE:
        return load_backbone(hub, device=device, precision=precision)
    model = build_pretrained(hub, config)
    digest = hash_state(model.state_dict())
    return ResNetEncoder(model, name=str(hub), sha256=digest, device=device, precision=precision)


def _random(name: str, device: Device, precision: Precision) -> Encoder:
    """Make random weights with batch-norm statistics: the control for what a form gives without training."""
    form, _, seed = name.removeprefix("random-").partition("@")
    if int(seed or 0) > _LARGEST_SEED:
        raise WeightsError(f"the seed of {name!r} is too large", remedy=f"give a seed from 0 to {_LARGEST_SEED}")
    bundled = find_bundled(form)
    if bundled is None and form not in get_args(Architecture):
        raise WeightsError(f"there is no encoder {name!r}", remedy=f"give one of {', '.join(encoder_names())}")
    config = load_weights(bundled).config if bundled else ResNetConfig(architecture=form)  # type: ignore[arg-type]
    model = with_batch_norm_statistics(random_resnet(config, seed=int(seed or 0)), seed=int(seed or 0))
    digest = hash_state(model.state_dict())
    return ResNetEncoder(model, name=name, sha256=digest, device=device, precision=precision)


def _efficientnet(stride_px: StridePx) -> _Loader:
    def load(device: Device, precision: Precision) -> Encoder:
        return NetworkEncoder(
            efficientnet_lite0(stride_px),
            name=f"efficientnet-lite0-s{stride_px}",
            geometry=Geometry(stride_px=stride_px, first_px=efficientnet_first_px(stride_px)),
            scaling=_EFFICIENTNET,
            device=device,
            precision=precision,
        )

    return load


def _vgg16(device: Device, precision: Precision) -> Encoder:
    return NetworkEncoder(
        vgg16(),
        name="vgg16",
        geometry=Geometry(stride_px=VGG16_STRIDE_PX, first_px=VGG16_FIRST_PX),
        scaling=IMAGENET_SCALING,
        device=device,
        precision=precision,
    )


# Hand-crafted features, and networks whose ImageNet weights come with installed packages.
_NAMED: dict[str, _Loader] = {
    "rgb": lambda *_: RgbEncoder(),
    "sift": lambda *_: SiftEncoder(),
    "efficientnet-lite0-s8": _efficientnet(8),
    "efficientnet-lite0-s16": _efficientnet(16),
    "vgg16": _vgg16,
}


def choose_precision(load: Callable[[Precision], Encoder]) -> Encoder:
    """Load an encoder in bf16 if the processor multiplies bf16 and descriptors agree with fp32, otherwise in fp32."""
    exact = load("fp32")
    if not supports_bf16():
        return exact
    fast = load("bf16")
    agreement = _agreement(exact, fast)
    if agreement >= _AGREEMENT:
        return fast
    log.warning("bf16 descriptors of %s agree with fp32 only to a cosine of %.4f: using fp32", exact.name, agreement)
    return exact


def _agreement(exact: Encoder, fast: Encoder) -> float:
    image = make_world(WorldConfig(height_px=160, width_px=240, frames=1)).frame(0)
    cosines = (exact.encode(image).cells * fast.encode(image).cells).sum(dim=-1)
    return float(torch.nan_to_num(cosines, nan=-1.0).mean())
