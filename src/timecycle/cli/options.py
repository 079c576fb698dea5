"""Options that several commands share."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from timecycle.config import preset_names
from timecycle.errors import LabelError, SettingsError
from timecycle.labels.reading import is_label_file
from timecycle.model import inference
from timecycle.model.registry import PrecisionChoice, encoder_names
from timecycle.outputs import LabelFiles
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.settings import PropagateConfig
from timecycle.video.image_file import IMAGE_SUFFIXES

_PRESETS = ", ".join(preset_names("propagate"))
_SETTINGS = ", ".join(field.name for field in dataclasses.fields(PropagateConfig))

Out = Annotated[Path, arg(aliases=["-o"], help="folder to write to")]
Encoder = Annotated[str, arg(help=f"a .safetensors file, a folder, a Hub model, or {', '.join(encoder_names())}")]
Preset = Annotated[str, arg(help=f"settings: {_PRESETS}")]
Settings = Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help=f"change settings of the preset: {_SETTINGS}")]
Device = Annotated[inference.Device, arg(help="where to compute")]
Abstain = Annotated[
    float,
    arg(metavar="CONFIDENCE", help="objects less sure than this are not labelled: nothing rather than a guess"),
]
Unjudged = Annotated[bool, arg(help="do not judge how sure labels are")]
Precision = Annotated[
    PrecisionChoice,
    arg(help="fp32 is the most exact; auto is bf16 where the processor has it and descriptors agree"),
]


AllowDamaged = Annotated[
    bool, arg(help="use what can be decoded of a damaged video; what is damaged is written to run.json")
]
LabelFilesOption = Annotated[
    LabelFiles,
    arg(help="label PNGs: with a palette, or plain grey whose values are the ids (for OpenCV, imageio, scikit-image)"),
]


def refuse_swapped(command: str, video: str, labels: Sequence[str], *options: str | Path) -> None:
    """Recognise VIDEO and LABELS in each other's place, and give the command as it was meant."""
    if len(labels) != 1 or not is_label_file(video) or not _is_footage(Path(labels[0])):
        return
    words = shlex.join(["timecycle", command, labels[0], video, *map(str, options)])
    raise LabelError(f"{labels[0]} is a video and {video} labels: they are in each other's place", remedy=words)


def _is_footage(path: Path) -> bool:
    """Whether this can only be a video: a file that holds no labels, or a folder of several images."""
    if path.is_dir():
        return sum(file.suffix.lower() in IMAGE_SUFFIXES for file in path.iterdir()) > 1
    return path.is_file() and not is_label_file(str(path)) and path.suffix.lower() not in IMAGE_SUFFIXES


def trust_of(*, abstain: float, unjudged: bool) -> TrustConfig | None:
    """How labels are judged; none if they are not."""
    if unjudged and abstain:
        raise SettingsError("--abstain needs the confidence that --unjudged leaves out", remedy="leave one of them out")
    return None if unjudged else TrustConfig(least=abstain)


def encoder_from_anywhere(encoder: str) -> str:
    """The encoder's word, as a path that does not depend on where the command was given."""
    return str(Path(encoder).absolute()) if Path(encoder).exists() else encoder
