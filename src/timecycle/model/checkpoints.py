"""Third-party checkpoints: reads the ResNet in them without running their code."""

import argparse
import dataclasses
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from timecycle.errors import WeightsError, first_line
from timecycle.model.resnet import Padding, ResNet
from timecycle.model.weights import build_resnet, guess_config

_ENCODER = re.compile(r"(conv1|bn1|layer[123])\.")  # torchvision's names of the layers up to res4


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where a program stores an encoder in its checkpoints."""

    name: str
    description: str
    entries: tuple[str | None, ...]  # keys of the tensors in the file; None: the file itself holds them
    prefixes: tuple[str, ...]  # of the tensors' names
    head: str | None = None  # the 1x1 convolution after res4
    padding: Padding = "zeros"


LAYOUTS = (
    Layout(
        name="timecycle2019",
        description="TimeCycle, 2019 (checkpoint_14.pth.tar)",
        entries=("state_dict",),
        prefixes=("module.encoderVideo.", "encoderVideo."),
        head="afterconv1.weight",
    ),
    Layout(
        name="videowalk",
        description="Contrastive Random Walks, 2020 (pretrained.pth)",
        entries=("model",),
        prefixes=("encoder.model.", "module.encoder.model."),
        padding="reflect",
    ),
    Layout(
        name="moco",
        description="MoCo",
        entries=("state_dict",),
        prefixes=("module.encoder_q.", "module.base_encoder."),  # versions 1 and 2, version 3
    ),
    Layout(name="dino", description="DINO", entries=("teacher",), prefixes=("backbone.", "module.backbone.")),
    Layout(
        name="torchvision",
        description="torchvision's names",
        entries=(None, "state_dict", "model"),
        prefixes=("", "module."),
    ),
)


@dataclass(frozen=True, eq=False)
class ThirdPartyCheckpoint:
    """The encoder of a third-party checkpoint, and the layout it was found in."""

    model: ResNet
    layout: Layout


def read_checkpoint(path: Path) -> ThirdPartyCheckpoint:
    """Read the ResNet of a checkpoint in any of the LAYOUTS.

    Only tensors and plain containers are unpickled; a file with anything else is refused, with the name of what it has.
    """
    content = _unpickle(path)
    for layout in LAYOUTS:
        for entry in layout.entries:
            tensors = content if entry is None else content.get(entry)
            for prefix in layout.prefixes:
                if isinstance(tensors, Mapping) and f"{prefix}layer1.0.conv1.weight" in tensors:
                    state = _encoder_state(path, tensors, prefix, layout)
                    config = dataclasses.replace(guess_config(path, state), padding=layout.padding)
                    return ThirdPartyCheckpoint(build_resnet(path, state, config), layout)
    raise WeightsError(
        f"{path} has no ResNet in a known layout; it contains {_contents(content)}",
        remedy=f"known layouts are {'; '.join(layout.description for layout in LAYOUTS)}",
    )


def _encoder_state(path: Path, tensors: Mapping[str, Any], prefix: str, layout: Layout) -> dict[str, Tensor]:
    state = {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix) and _ENCODER.match(name.removeprefix(prefix)) and isinstance(tensor, Tensor)
    }
    if layout.head is not None:
        head = ("module." if prefix.startswith("module.") else "") + layout.head
        if head not in tensors:
            raise WeightsError(f"{path} lacks {head}", remedy="copy it again: it is incomplete")
        state["head.weight"] = tensors[head]
    return {name: _without_time(path, name, tensor) for name, tensor in state.items()}


def _without_time(path: Path, name: str, tensor: Tensor) -> Tensor:
    """Turn a kernel that was inflated to one frame in time back into a kernel of images."""
    if tensor.ndim != 5:
        return tensor
    if tensor.shape[2] != 1:
        raise WeightsError(
            f"{path}: the kernel {name} spans {tensor.shape[2]} frames",
            remedy="give an encoder of single frames; only those can propagate labels",
        )
    return tensor.squeeze(2)


def _unpickle(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise WeightsError(f"there is no checkpoint {path}", remedy="check the path")
    _refuse_compressed(path)
    try:
        # Programs that store their command line store a Namespace: it has attributes only, and nothing runs.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        refused = re.search(r"Unsupported (?:global|class|operand)[^.]*?([\w.]+\.[\w]+)", str(error))
        raise WeightsError(
            f"{path} holds more than tensors{f' ({refused[1]})' if refused else ''}, or is damaged",
            remedy="ask its author for the tensors alone, as safetensors or saved with torch.save(model.state_dict(), "
            "PATH); reading the file as it is would run any code in it",
        ) from error
    except Exception as error:  # torch raises any kind of error on a damaged file
        raise WeightsError(
            f"{path} is not a checkpoint: {first_line(error)}", remedy="copy it again; it may be incomplete"
        ) from error
    if not isinstance(content, Mapping):
        raise WeightsError(
            f"{path} holds a {type(content).__name__}, not named tensors", remedy="give a checkpoint with a state_dict"
        )
    return content


def _refuse_compressed(path: Path) -> None:
    """Refuse a file that grows when it is read: torch.save does not compress, so it was made to fill the memory."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            inflated = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise WeightsError(
            f"{path} is not a checkpoint: {error}", remedy="copy it again; it may be incomplete"
        ) from error
    if inflated > path.stat().st_size:
        raise WeightsError(
            f"{path} is compressed and would take {inflated / 1e6:,.0f} MB of memory",
            remedy="give the file as torch.save wrote it",
        )


def _contents(content: Mapping[str, Any]) -> str:
    names = [str(name) for name in content]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "") if names else "nothing"
