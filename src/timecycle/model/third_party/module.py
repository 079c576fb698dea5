"""A torch module as an encoder: a ResNet, or any network from images to feature maps."""

import copy
from pathlib import Path

import torch
from torch import Tensor, nn

from timecycle.device import Device
from timecycle.errors import WeightsError, first_line
from timecycle.model.encoder import Encoder
from timecycle.model.inference import Precision, ResNetEncoder
from timecycle.model.resnet import ResNet
from timecycle.model.third_party.network import IMAGENET_SCALING, NetworkEncoder, Padded, measure_geometry
from timecycle.model.weights import CLASSIFIER, build_resnet, hash_state

_PROBE_PX = 256
_REMEDY = (
    "pass a ResNet-18 or -50, a network from images (1, 3, height, width) to features (1, channels, rows, columns), or "
    "an object with name, sha256, description and encode; a model of transformers is loaded by its name"
)


def encoder_of_module(model: nn.Module, *, device: Device = "auto", precision: Precision = "fp32") -> Encoder:
    """Make an encoder of a copy of a module; the module itself does not change.

    A ResNet-18 or -50 with torchvision's names becomes the encoder of the paper, up to res4 at stride 8. Of any other
    network the feature map is used as it is, at the stride that is measured; images are scaled as for ImageNet.
    """
    kind = type(model).__name__
    state = model.state_dict()
    if not isinstance(model, ResNet) and {"conv1.weight", "layer1.0.conv1.weight"} <= state.keys():
        inner = {name: tensor for name, tensor in state.items() if not name.startswith(CLASSIFIER)}
        model = build_resnet(Path(kind), inner)
    if isinstance(model, ResNet):
        digest = hash_state(model.state_dict())
        name = f"{model.config.architecture}-{digest[:8]}"
        return ResNetEncoder(model, name=name, sha256=digest, device=device, precision=precision)
    network = copy.deepcopy(model).cpu().float().eval()
    _check_output(network, kind)
    geometry = measure_geometry(network, _PROBE_PX)
    return NetworkEncoder(
        Padded(network, int(geometry.stride_px) if geometry.first_px else 1),
        name=kind,
        geometry=geometry,
        scaling=IMAGENET_SCALING,
        device=device,
        precision=precision,
    )


@torch.inference_mode()
def _check_output(network: nn.Module, kind: str) -> None:
    """Refuse a network whose output is no feature map, or whose cells do not cover the image evenly."""
    try:
        maps = [network(torch.zeros(1, 3, side, side)) for side in (_PROBE_PX, 2 * _PROBE_PX)]
    except Exception as error:  # a module may fail in any way on an image
        raise WeightsError(f"the module {kind} cannot encode an image: {first_line(error)}", remedy=_REMEDY) from error
    if not all(isinstance(features, Tensor) and features.ndim == 4 for features in maps):
        raise WeightsError(f"the module {kind} returns no feature map", remedy=_REMEDY)
    rows, twice = (features.shape[-1] for features in maps)
    if _PROBE_PX % rows or twice != 2 * rows or not any(isinstance(one, nn.Conv2d) for one in network.modules()):
        raise WeightsError(
            f"the cells of the module {kind} do not cover the image evenly: {rows} for {_PROBE_PX} pixels, {twice} for "
            f"{2 * _PROBE_PX}",
            remedy="pad its convolutions, or wrap it in an object whose encode returns a FeatureMap with its grid",
        )
