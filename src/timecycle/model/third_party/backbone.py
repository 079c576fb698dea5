"""Encoders of the transformers library: ResNet, ConvNeXt, Swin, ViT, DINOv2, DINOv3 and others.

Needs the extra `hub`. Code in a repository is never run: only architectures of transformers itself are loaded.
"""

import inspect
import logging
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from timecycle.device import Device
from timecycle.errors import TimecycleError, WeightsError, first_line
from timecycle.extras import import_extra
from timecycle.model.hub import HubName, hub_file, is_offline, read_json, summarised_retries
from timecycle.model.inference import IMAGENET_MEAN, IMAGENET_STD, Precision
from timecycle.model.third_party.network import NetworkEncoder, Padded, Scaling, measure_geometry

_DEEPEST_STRIDE_PX = 16  # larger cells localise poorly
_PROBE_CELLS = 16
# Tensors that a file may lack: descriptors do not depend on them, or they are untrained norms of stages.
_MAY_LACK = ("pooler.", "mask_token", "classifier.", "head.", "hidden_states_norms.")

_T = TypeVar("_T")


def load_backbone(hub: HubName, *, device: Device = "auto", precision: Precision = "fp32") -> NetworkEncoder:
    """Load a model of transformers as an encoder.

    Features are the last layer of a vision transformer, or the deepest stage of a pyramid with cells of at most 16
    pixels.
    """
    transformers = _quiet(import_extra("transformers", extra="hub"))
    arguments: dict[str, Any] = {"trust_remote_code": False, "local_files_only": is_offline()}
    if hub.revision:
        arguments["revision"] = hub.revision
    config = _call(hub, lambda: transformers.AutoConfig.from_pretrained(hub.name, **arguments))
    arguments["use_safetensors"] = True  # never a pickle
    kind = _backbones().get(config.model_type)
    if kind is None:
        network, stage = _load_tokens(hub, config, transformers.AutoModel, arguments)
    else:
        network, stage = _load_stage(hub, config, getattr(transformers, kind), arguments)
    geometry = _call(hub, lambda: measure_geometry(network, _probe_px(config)))
    return NetworkEncoder(
        Padded(network, int(geometry.stride_px) if geometry.first_px else 1),
        name=f"{hub.name}#{stage}",
        geometry=geometry,
        scaling=_call(hub, lambda: _scaling(hub)),
        device=device,
        precision=precision,
    )


class _Stage(nn.Module):
    """One of the feature maps of a backbone."""

    def __init__(self, backbone: nn.Module, index: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.index = index

    def forward(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        features: Tensor = self.backbone(images).feature_maps[self.index]
        return features


class _Tokens(nn.Module):
    """The last layer of a vision transformer as a feature map, without class and register tokens."""

    def __init__(self, transformer: nn.Module, *, patch_px: int) -> None:
        super().__init__()
        self.transformer = transformer
        self.patch_px = patch_px
        parameters = inspect.signature(transformer.forward).parameters
        # Position embeddings were trained for one image size; for others they are interpolated.
        self.arguments = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in parameters else {}

    def forward(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        rows, columns = images.shape[2] // self.patch_px, images.shape[3] // self.patch_px
        tokens: Tensor = self.transformer(pixel_values=images, **self.arguments).last_hidden_state
        patches = tokens[:, tokens.shape[1] - rows * columns :]
        return patches.transpose(1, 2).reshape(len(images), -1, rows, columns)


def _backbones() -> Mapping[str, str]:
    """Return the backbone class of every model type. AutoBackbone would contact the Hub even for folders."""
    names: Mapping[str, str] = import_extra(
        "transformers.models.auto.modeling_auto", extra="hub"
    ).MODEL_FOR_BACKBONE_MAPPING_NAMES
    return names


def _load_stage(hub: HubName, config: Any, kind: Any, arguments: dict[str, Any]) -> tuple[nn.Module, str]:
    """Load a backbone and select one of its feature maps; return it with its name."""
    stages = [stage for stage in config.stage_names if stage != "stem"]
    if hub.stage is not None and hub.stage not in config.stage_names:
        raise WeightsError(f"{hub.name} has no stage {hub.stage}", remedy=f"its stages are {', '.join(stages)}")
    wanted = [hub.stage] if hub.stage else stages if _is_pyramid(config) else stages[-1:]
    load = kind.from_pretrained
    backbone = _complete(hub, lambda: load(hub.name, out_features=wanted, output_loading_info=True, **arguments))
    index = _call(hub, lambda: _deepest(backbone, _probe_px(config))) if len(wanted) > 1 else 0
    return _Stage(backbone, index), wanted[index]


@torch.inference_mode()
def _deepest(backbone: nn.Module, side_px: int) -> int:
    """Return the index of the last feature map with cells small enough, or of the first."""
    maps = backbone(torch.zeros(1, 3, side_px, side_px)).feature_maps
    fine = [index for index, features in enumerate(maps) if side_px / features.shape[-1] <= _DEEPEST_STRIDE_PX]
    return fine[-1] if fine else 0


def _load_tokens(hub: HubName, config: Any, kind: Any, arguments: dict[str, Any]) -> tuple[nn.Module, str]:
    """Load a vision transformer; return its last layer as a feature map, with its name."""
    patch_px = getattr(config, "patch_size", None)
    if not isinstance(patch_px, int) or hasattr(config, "mask_ratio"):
        raise WeightsError(
            f"{hub.name} is a {config.model_type}, which has no feature map",
            remedy="give an image encoder: ResNet, ConvNeXt, Swin, ViT, DINOv2, DINOv3 ...",
        )
    if hub.stage is not None:
        raise WeightsError(f"only the last layer of {hub.name} can be used", remedy=f"leave out #{hub.stage}")
    load = kind.from_pretrained
    transformer = _complete(hub, lambda: load(hub.name, output_loading_info=True, **arguments))
    return _Tokens(transformer, patch_px=patch_px), "last"


def _complete(hub: HubName, load: Callable[[], tuple[nn.Module, dict[str, Any]]]) -> nn.Module:
    """Load a model, or refuse it if its file lacks tensors, which transformers would initialise at random."""
    model, info = _call(hub, load)
    missing = sorted(name for name in info["missing_keys"] if not any(optional in name for optional in _MAY_LACK))
    if missing:
        raise WeightsError(
            f"{hub.name} lacks {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
            remedy="download it again; its weights do not fit its config.json",
        )
    return model.float().eval()


def _call(hub: HubName, function: Callable[[], _T]) -> _T:
    """Call transformers and turn any error of its own into one line."""
    try:
        with summarised_retries():
            return function()
    except TimecycleError:
        raise
    except Exception as error:  # a wrong config.json can fail anywhere in transformers
        raise WeightsError(
            f"transformers cannot load {hub}: {first_line(error)}",
            remedy="check the name and the connection, or give a folder written by save_pretrained",
        ) from error


def _is_pyramid(config: Any) -> bool:
    """Return whether the stages of a network have cells of different sizes."""
    return isinstance(getattr(config, "depths", None), list | tuple)


def _probe_px(config: Any) -> int:
    patch = getattr(config, "patch_size", None)
    stride = patch if isinstance(patch, int) and not _is_pyramid(config) else _DEEPEST_STRIDE_PX
    return _PROBE_CELLS * stride


def _scaling(hub: HubName) -> Scaling:
    """Read the input scaling of a model; without one in its repository, use that of ImageNet."""
    path = hub_file(hub, "preprocessor_config.json")
    content = read_json(path) if path else {}
    settings = content if isinstance(content, dict) else {}
    mean = settings.get("image_mean") or IMAGENET_MEAN
    std = settings.get("image_std") or IMAGENET_STD
    scale = 1 / float(settings.get("rescale_factor") or 1 / 255)
    if not len(mean) == len(std) == 3:
        raise WeightsError(
            f"{hub.name} was trained on images of {len(mean)} channels", remedy="give a model for RGB images"
        )
    return Scaling(
        mean=(mean[0] * scale, mean[1] * scale, mean[2] * scale), std=(std[0] * scale, std[1] * scale, std[2] * scale)
    )


def _quiet(transformers: ModuleType) -> ModuleType:
    """Silence messages about optional packages and unused layers."""
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    return transformers
