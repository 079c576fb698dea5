"""Options that several commands share."""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from timecycle.config import preset_names
from timecycle.errors import SettingsError
from timecycle.model import inference
from timecycle.model.registry import PrecisionChoice, encoder_names
from timecycle.propagation.confidence import TrustConfig
from timecycle.propagation.settings import PropagateConfig

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


def trust_of(*, abstain: float, unjudged: bool) -> TrustConfig | None:
    """How labels are judged; none if they are not."""
    if unjudged and abstain:
        raise SettingsError("--abstain needs the confidence that --unjudged leaves out", remedy="leave one of them out")
    return None if unjudged else TrustConfig(least=abstain)


def encoder_from_anywhere(encoder: str) -> str:
    """The encoder's word, as a path that does not depend on where the command was given."""
    return str(Path(encoder).absolute()) if Path(encoder).exists() else encoder
