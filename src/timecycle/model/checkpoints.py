"""Checkpoints of other programs: the ResNet in them, read without running their code."""

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

_OURS = re.compile(r"(conv1|bn1|layer[123])\.")  # what torchvision calls the layers up to res4


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where one program keeps an encoder in its checkpoints."""

    name: str
    words: str
    entries: tuple[str | None, ...]  # where the tensors may lie in the file; None: they are the file
    prefixes: tuple[str, ...]  # which their names may begin with
    head: str | None = None  # the 1x1 convolution behind res4
    padding: Padding = "zeros"


LAYOUTS = (
    Layout(
        name="timecycle2019",
        words="TimeCycle, 2019 (checkpoint_14.pth.tar)",
        entries=("state_dict",),
        prefixes=("module.encoderVideo.", "encoderVideo."),
        head="afterconv1.weight",
    ),
    Layout(
        name="videowalk",
        words="Contrastive Random Walks, 2020 (pretrained.pth)",
        entries=("model",),
        prefixes=("encoder.model.", "module.encoder.model."),
        padding="reflect",
    ),
    Layout(
        name="moco",
        words="MoCo",
        entries=("state_dict",),
        prefixes=("module.encoder_q.", "module.base_encoder."),  # versions 1 and 2, version 3
    ),
    Layout(name="dino", words="DINO", entries=("teacher",), prefixes=("backbone.", "module.backbone.")),
    Layout(
        name="torchvision",
        words="torchvision's names",
        entries=(None, "state_dict", "model"),
        prefixes=("", "module."),
    ),
)


@dataclass(frozen=True, eq=False)
class Foreign:
    """An encoder from another program's checkpoint."""

    model: ResNet
    layout: Layout


def read_checkpoint(path: Path) -> Foreign:
    """The ResNet of a checkpoint in any of the LAYOUTS.

    Only tensors and plain containers are unpickled; a file that wants more is refused, and what it wanted is named.
    """
    content = _unpickle(path)
    for layout in LAYOUTS:
        for entry in layout.entries:
            tensors = content if entry is None else content.get(entry)
            for prefix in layout.prefixes:
                if isinstance(tensors, Mapping) and f"{prefix}layer1.0.conv1.weight" in tensors:
                    state = _encoder_state(path, tensors, prefix, layout)
                    config = dataclasses.replace(guess_config(path, state), padding=layout.padding)
                    return Foreign(build_resnet(path, state, config), layout)
    raise WeightsError(
        f"{path} has no ResNet in a layout that is known; it holds {_contents(content)}",
        remedy=f"known are {'; '.join(layout.words for layout in LAYOUTS)}",
    )


def _encoder_state(path: Path, tensors: Mapping[str, Any], prefix: str, layout: Layout) -> dict[str, Tensor]:
    state = {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix) and _OURS.match(name.removeprefix(prefix)) and isinstance(tensor, Tensor)
    }
    if layout.head is not None:
        head = ("module." if prefix.startswith("module.") else "") + layout.head
        if head not in tensors:
            raise WeightsError(f"{path} lacks {head}", remedy="copy it again: it is not whole")
        state["head.weight"] = tensors[head]
    return {name: _flat(path, name, tensor) for name, tensor in state.items()}


def _flat(path: Path, name: str, tensor: Tensor) -> Tensor:
    """A kernel that was inflated to three dimensions, one frame long, is the kernel it was before."""
    if tensor.ndim != 5:
        return tensor
    if tensor.shape[2] != 1:
        raise WeightsError(
            f"{path}: the kernel {name} looks at {tensor.shape[2]} frames at once",
            remedy="only encoders of single frames can carry labels",
        )
    return tensor.squeeze(2)


def _unpickle(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise WeightsError(f"there is no checkpoint {path}", remedy="check the path")
    _refuse_compressed(path)
    try:
        # Programs that keep their command line keep it as a Namespace: attributes only, nothing runs.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wanted = re.search(r"Unsupported (?:global|class|operand)[^.]*?([\w.]+\.[\w]+)", str(error))
        raise WeightsError(
            f"{path} holds more than tensors{f', {wanted[1]} for one' if wanted else ''}, or is damaged",
            remedy="ask who made it for its tensors alone, as safetensors or saved with torch.save(model.state_dict(), "
            "PATH); to read it as it is would run whatever is in it",
        ) from error
    except Exception as error:  # torch raises whatever a damaged file makes it stumble over
        raise WeightsError(
            f"{path} is no checkpoint: {first_line(error)}", remedy="copy it again; its size may tell"
        ) from error
    if not isinstance(content, Mapping):
        raise WeightsError(
            f"{path} holds {type(content).__name__}, not named tensors", remedy="give a checkpoint with a state_dict"
        )
    return content


def _refuse_compressed(path: Path) -> None:
    """torch.save compresses nothing, so a file that becomes larger when it is read was made to fill the memory."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            inflated = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise WeightsError(f"{path} is no checkpoint: {error}", remedy="copy it again; its size may tell") from error
    if inflated > path.stat().st_size:
        raise WeightsError(
            f"{path} is compressed: it would take {inflated / 1e6:,.0f} MB of memory",
            remedy="give the file as torch.save wrote it",
        )


def _contents(content: Mapping[str, Any]) -> str:
    names = [str(name) for name in content]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "") if names else "nothing"
