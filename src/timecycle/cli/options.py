"""Options that several commands share."""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from timecycle.config import preset_names
from timecycle.model import inference
from timecycle.model.registry import PrecisionChoice, encoder_names
from timecycle.propagation.settings import PropagateConfig

_PRESETS = ", ".join(preset_names("propagate"))
_SETTINGS = ", ".join(field.name for field in dataclasses.fields(PropagateConfig))

Out = Annotated[Path, arg(aliases=["-o"], help="folder to write to")]
Encoder = Annotated[str, arg(help=f"a .safetensors file, a folder, a Hub model, or {', '.join(encoder_names())}")]
Preset = Annotated[str, arg(help=f"settings: {_PRESETS}")]
Settings = Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help=f"change settings of the preset: {_SETTINGS}")]
Device = Annotated[inference.Device, arg(help="where to compute")]
Precision = Annotated[
    PrecisionChoice,
    arg(help="fp32 is the most exact; auto is bf16 where the processor has it and descriptors agree"),
]
