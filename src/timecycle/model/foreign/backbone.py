"""Encoders of the transformers library: ResNet, ConvNeXt, Swin, ViT, DINOv2, DINOv3 and others.

Needs the extra `hub`. Nothing that a repository contains is run: only architectures that transformers has itself.
"""

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from timecycle.errors import TimecycleError, WeightsError, first_line
from timecycle.extras import need
from timecycle.model.foreign.network import Geometry, NetworkEncoder, Scaling
from timecycle.model.hub import HubName, hub_file, is_offline, read_json, retries_in_one_line
from timecycle.model.inference import IMAGENET_MEAN, IMAGENET_STD, Device, Precision

_DEEPEST_STRIDE_PX = 16  # larger cells know what is there, but hardly where
_PROBE_CELLS = 16
# Tensors that a file may lack: what descriptors do not depend on, and norms of stages, which no one trains.
_MAY_LACK = ("pooler.", "mask_token", "classifier.", "head.", "hidden_states_norms.")

_T = TypeVar("_T")


def load_backbone(hub: HubName, *, device: Device = "auto", precision: Precision = "fp32") -> NetworkEncoder:
    """A model that transformers knows, as an encoder: the last layer of a transformer whose cells are all of one
    size, otherwise the deepest stage with cells of at most 16 pixels."""
    transformers = _quiet(need("transformers", extra="hub"))
    arguments: dict[str, Any] = {"trust_remote_code": False, "local_files_only": is_offline()}
    if hub.revision:
        arguments["revision"] = hub.revision
    config = _asked(hub, lambda: transformers.AutoConfig.from_pretrained(hub.name, **arguments))
    arguments["use_safetensors"] = True  # never a pickle
    kind = _backbones().get(config.model_type)
    if kind is None:
        opened = _load_tokens(hub, config, transformers.AutoModel, arguments)
    else:
        opened = _load_stage(hub, config, getattr(transformers, kind), arguments)
    geometry = _asked(hub, lambda: _geometry(opened.network, _probe_px(config)))
    return NetworkEncoder(
        _Padded(opened.network, int(geometry.stride_px) if geometry.first_px else 1),
        name=f"{hub.name}#{opened.stage}",
        geometry=geometry,
        scaling=_asked(hub, lambda: _scaling(hub)),
        device=device,
        precision=precision,
    )


@dataclass(frozen=True, eq=False)
class _Opened:
    """A network that gives one feature map, and what that map is called."""

    network: nn.Module
    stage: str


class _Stage(nn.Module):
    """One feature map of a backbone that gives several."""

    def __init__(self, backbone: nn.Module, index: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.index = index

    def forward(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        features: Tensor = self.backbone(images).feature_maps[self.index]
        return features


class _Tokens(nn.Module):
    """A vision transformer's last layer laid out as a map; the tokens in front of the patches are left out."""

    def __init__(self, transformer: nn.Module, *, patch_px: int) -> None:
        super().__init__()
        self.transformer = transformer
        self.patch_px = patch_px
        takes = inspect.signature(transformer.forward).parameters
        # Position embeddings were learned for one size of image; for others they are interpolated.
        self.arguments = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in takes else {}

    def forward(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        rows, columns = images.shape[2] // self.patch_px, images.shape[3] // self.patch_px
        tokens: Tensor = self.transformer(pixel_values=images, **self.arguments).last_hidden_state
        patches = tokens[:, tokens.shape[1] - rows * columns :]
        return patches.transpose(1, 2).reshape(len(images), -1, rows, columns)


class _Padded(nn.Module):
    """Repeats the last row and column of an image up to a multiple of the patch, so that no pixel is left out."""

    def __init__(self, network: nn.Module, multiple_px: int) -> None:
        super().__init__()
        self.network = network
        self.multiple_px = multiple_px

    def forward(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        below, right = (-images.shape[2] % self.multiple_px, -images.shape[3] % self.multiple_px)
        features: Tensor = self.network(F.pad(images, (0, right, 0, below), mode="replicate"))
        return features


def _backbones() -> Mapping[str, str]:
    """Which class gives the feature maps of which type of model: AutoBackbone knows it too, but asks the Hub even
    about folders."""
    names: Mapping[str, str] = need(
        "transformers.models.auto.modeling_auto", extra="hub"
    ).MODEL_FOR_BACKBONE_MAPPING_NAMES
    return names


def _load_stage(hub: HubName, config: Any, kind: Any, arguments: dict[str, Any]) -> _Opened:
    stages = [stage for stage in config.stage_names if stage != "stem"]
    if hub.stage is not None and hub.stage not in config.stage_names:
        raise WeightsError(f"{hub.name} has no stage {hub.stage}", remedy=f"its stages are {', '.join(stages)}")
    wanted = [hub.stage] if hub.stage else stages if _is_pyramid(config) else stages[-1:]
    load = kind.from_pretrained
    backbone = _complete(hub, lambda: load(hub.name, out_features=wanted, output_loading_info=True, **arguments))
    index = _asked(hub, lambda: _deepest(backbone, _probe_px(config))) if len(wanted) > 1 else 0
    return _Opened(_Stage(backbone, index), wanted[index])


@torch.inference_mode()
def _deepest(backbone: nn.Module, side_px: int) -> int:
    """The last of the feature maps whose cells are small enough, or the first."""
    maps = backbone(torch.zeros(1, 3, side_px, side_px)).feature_maps
    fine = [index for index, features in enumerate(maps) if side_px / features.shape[-1] <= _DEEPEST_STRIDE_PX]
    return fine[-1] if fine else 0


def _load_tokens(hub: HubName, config: Any, kind: Any, arguments: dict[str, Any]) -> _Opened:
    patch_px = getattr(config, "patch_size", None)
    if not isinstance(patch_px, int) or hasattr(config, "mask_ratio"):
        raise WeightsError(
            f"{hub.name} is a {config.model_type}, which gives no map of descriptors",
            remedy="give an encoder of images: ResNet, ConvNeXt, Swin, ViT, DINOv2, DINOv3 ...",
        )
    if hub.stage is not None:
        raise WeightsError(f"{hub.name} gives its last layer only", remedy=f"leave out #{hub.stage}")
    load = kind.from_pretrained
    transformer = _complete(hub, lambda: load(hub.name, output_loading_info=True, **arguments))
    return _Opened(_Tokens(transformer, patch_px=patch_px), "last")


def _complete(hub: HubName, load: Callable[[], tuple[nn.Module, dict[str, Any]]]) -> nn.Module:
    """The loaded model; one with tensors that the file lacks, which transformers makes up, is refused."""
    model, info = _asked(hub, load)
    missing = sorted(name for name in info["missing_keys"] if not any(part in name for part in _MAY_LACK))
    if missing:
        raise WeightsError(
            f"{hub.name} lacks {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
            remedy="bring its weights here again; they do not fit its config.json",
        )
    return model.float().eval()


def _asked(hub: HubName, ask: Callable[[], _T]) -> _T:
    """What transformers answers, or its refusal in one line."""
    try:
        with retries_in_one_line():
            return ask()
    except TimecycleError:
        raise
    except Exception as error:  # a config.json that makes no sense is met anywhere in transformers
        raise WeightsError(
            f"transformers cannot load {hub}: {first_line(error)}",
            remedy="check the name and the connection, or give a folder written by save_pretrained",
        ) from error


def _is_pyramid(config: Any) -> bool:
    """True for networks whose stages have cells of different sizes."""
    return isinstance(getattr(config, "depths", None), list | tuple)


def _probe_px(config: Any) -> int:
    patch = getattr(config, "patch_size", None)
    stride = patch if isinstance(patch, int) and not _is_pyramid(config) else _DEEPEST_STRIDE_PX
    return _PROBE_CELLS * stride


@torch.inference_mode()
def _geometry(network: nn.Module, side_px: int) -> Geometry:
    """The stride, measured; and where the first cell lies: networks that begin with patches side by side have cells
    that tile the image, those whose first kernels overlap are padded so that the first cell lies on pixel 0."""
    stride = side_px / network(torch.zeros(1, 3, side_px, side_px)).shape[-1]
    first = next(module for module in network.modules() if isinstance(module, nn.Conv2d))
    tiles = tuple(first.kernel_size) == tuple(first.stride)
    return Geometry(stride_px=stride, first_px=(stride - 1) / 2 if tiles else 0)


def _scaling(hub: HubName) -> Scaling:
    """What the model was trained to see; where its repository does not say, as for ImageNet."""
    path = hub_file(hub, "preprocessor_config.json")
    told = read_json(path) if path else {}
    settings = told if isinstance(told, dict) else {}
    mean = settings.get("image_mean") or IMAGENET_MEAN
    std = settings.get("image_std") or IMAGENET_STD
    scale = 1 / float(settings.get("rescale_factor") or 1 / 255)
    if not len(mean) == len(std) == 3:
        raise WeightsError(f"{hub.name} was trained on images of {len(mean)} channels", remedy="use one for RGB images")
    return Scaling(
        mean=(mean[0] * scale, mean[1] * scale, mean[2] * scale), std=(std[0] * scale, std[1] * scale, std[2] * scale)
    )


def _quiet(transformers: ModuleType) -> ModuleType:
    """It tells of every part of itself that needs another package, and of every layer that is not used."""
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    return transformers
