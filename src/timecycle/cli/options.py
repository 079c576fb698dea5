"""Options that several commands share."""

import dataclasses
import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from timecycle import device as devices
from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.config import preset_names, propagate_config
from timecycle.errors import LabelError, SettingsError
from timecycle.formats.registry import FORMATS
from timecycle.kernel.library import find_kernel
from timecycle.labels.reading import is_label_file
from timecycle.model.encoder import Encoder as LoadedEncoder
from timecycle.model.registry import DEFAULT_ENCODER, PrecisionChoice, encoder_names, load_encoder
from timecycle.propagation.settings import PropagateConfig
from timecycle.runs.outputs import LabelFiles
from timecycle.tiff_header import is_stack
from timecycle.video import Video
from timecycle.video.image_file import IMAGE_SUFFIXES

log = logging.getLogger("timecycle")

_PRESETS = ", ".join(preset_names("propagate"))
_SETTINGS = ", ".join(field.name for field in dataclasses.fields(PropagateConfig))
_KIND_HELP = "kind of the labels; by default keypoints for CSV files and masks for images"

TrackKind = Literal["masks", "parts", "keypoints"]  # kinds with objects that can be followed

VideoArgument = Annotated[
    Positional[str], arg(metavar="VIDEO", help="a video file, a folder of images or a quoted glob")
]
RunArgument = Annotated[Positional[Path], arg(metavar="OUT", help="the folder that `timecycle propagate -o OUT` wrote")]
Kind = Annotated[Literal["masks", "parts", "keypoints", "texture", "coordinates"] | None, arg(help=_KIND_HELP)]
TrackKindOption = Annotated[TrackKind | None, arg(help=_KIND_HELP)]
Fps = Annotated[float | None, arg(help="frames per second of a folder of images; by default 24")]
Out = Annotated[Path, arg(aliases=["-o"], metavar="FOLDER", help="folder to write to")]
Overwrite = Annotated[bool, arg(help="replace existing output")]
Encoder = Annotated[
    str, arg(metavar="NAME", help=f"a .safetensors file, a folder, a Hub model, or {', '.join(encoder_names())}")
]
Preset = Annotated[str, arg(metavar="NAME", help=f"settings: {_PRESETS}; see `timecycle presets`")]
Settings = Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help=f"change settings of the preset: {_SETTINGS}")]
Device = Annotated[devices.Device, arg(help="device to compute on")]
MinConfidence = Annotated[
    float, arg(metavar="CONFIDENCE", help="leave objects with a lower confidence than this unlabelled")
]
NoConfidence = Annotated[bool, arg(help="do not estimate confidence")]
Precision = Annotated[
    PrecisionChoice,
    arg(help="fp32 is the most exact; auto is bf16 if the processor supports it and descriptors agree"),
]
AllowDamaged = Annotated[bool, arg(help="use the frames of a damaged video that can be decoded")]
LabelFilesOption = Annotated[
    LabelFiles,
    arg(help="write label PNGs with a palette, or as grey values that are the ids (for OpenCV, imageio, scikit-image)"),
]
WRITABLE_FORMATS = ", ".join(one.name for one in FORMATS.values() if one.write is not None)
FormatOption = Annotated[
    tuple[str, ...], arg(metavar="NAME ...", help=f"also write the labels to OUT/exports as {WRITABLE_FORMATS}")
]
ScaleOption = Annotated[
    str | None, arg(metavar="PX[/UNIT]", help="pixels per unit of length, as 4.2px/mm, for measurements.csv")
]


def refuse_swapped(command: str, video: str, labels: Sequence[str], *options: str | Path) -> None:
    """Refuse VIDEO and LABELS in the wrong order; the remedy is the command in the right order."""
    if len(labels) != 1 or not is_label_file(video) or not _is_video(Path(labels[0])):
        return
    if is_stack(Path(video)):  # a TIFF may be either; beside a folder of images it is the video
        return
    words = shlex.join(["timecycle", command, labels[0], video, *map(str, options)])
    raise LabelError(f"{labels[0]} is a video and {video} is a label file: their order is swapped", remedy=words)


def _is_video(path: Path) -> bool:
    """Whether this can only be a video: a file that holds no labels, or a folder of several images."""
    if path.is_dir():
        return sum(file.suffix.lower() in IMAGE_SUFFIXES for file in path.iterdir()) > 1
    return path.is_file() and not is_label_file(str(path)) and path.suffix.lower() not in IMAGE_SUFFIXES


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """How labels are propagated: the options of every command that matches frames."""

    encoder: Encoder = DEFAULT_ENCODER
    preset: Preset = "default"
    set: Settings = ()
    device: Device = "auto"
    precision: Precision = "fp32"

    def config(self, *defaults: str) -> PropagateConfig:
        """The settings of the preset, changed by the defaults of the command and then by --set."""
        return read_config(self.preset, (*defaults, *self.set))

    def load_encoder(self) -> LoadedEncoder:
        return read_encoder(self.encoder, self.device, self.precision)


@dataclass(frozen=True, kw_only=True)
class RunOptions(MethodOptions):
    """What a run estimates, reads and writes: the options of `propagate` and `bulk`."""

    min_confidence: MinConfidence = 0.0
    no_confidence: NoConfidence = False
    label_files: LabelFilesOption = "palette"
    allow_damaged: AllowDamaged = False

    def confidence(self) -> ConfidenceConfig | None:
        """The settings of the confidence estimate; None without one."""
        if self.no_confidence and self.min_confidence:
            raise SettingsError(
                "--min-confidence needs the confidence that --no-confidence leaves out", remedy="leave one of them out"
            )
        return None if self.no_confidence else ConfidenceConfig(min_confidence=self.min_confidence)

    def absolute_encoder(self) -> str:
        """The encoder's name, with a path made absolute so that it can be found from any folder."""
        return str(Path(self.encoder).absolute()) if Path(self.encoder).exists() else self.encoder


def read_config(preset: str, overrides: Sequence[str] = ()) -> PropagateConfig:
    """Read the settings of a preset; --verbose prints them."""
    config = propagate_config(preset, overrides)
    changed = f" with {' '.join(overrides)}" if overrides else ""
    values = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(config).items())
    log.info("preset %s%s: %s", preset, changed, values)
    return config


def read_encoder(name: str, device: devices.Device, precision: PrecisionChoice) -> LoadedEncoder:
    """Load an encoder; --verbose prints what computes its features and matches."""
    loaded = load_encoder(name, device=device, precision=precision)
    log_encoder(loaded.name, loaded.description, loaded.sha256)
    why = " (auto takes the first of cuda, mps and cpu that is there)" if device == "auto" else ""
    log.info("device %s%s", devices.pick_device(device), why)
    return loaded


def log_encoder(name: str, description: str, sha256: str) -> None:
    if not log.isEnabledFor(logging.INFO):
        return
    kernel = find_kernel()
    matching = f"compiled kernel ({kernel.variant})" if kernel.functions is not None else f"torch: {kernel.reason}"
    log.info("encoder %s: %s, sha256 %s", name, description, sha256[:8])
    log.info("matching on the CPU: %s", matching)


def log_video(video: Video, config: PropagateConfig) -> None:
    size = video.size
    encoded = min(config.image_size_px, size.height_px, size.width_px)
    log.info(
        "video %s: %d frames of %dx%d, encoded with a shorter side of %d px",
        video.name,
        len(video),
        size.width_px,
        size.height_px,
        encoded,
    )
