"""The command line: parses and prints, only."""

import dataclasses
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from tyro.conf import Positional, arg

from timecycle.api import flow_to_folder, propagate_to_folder
from timecycle.config import preset_names, propagate_config
from timecycle.demo import run_demo
from timecycle.doctor import examine
from timecycle.errors import LabelError, TimecycleError
from timecycle.labels import Coordinates, Labels, Masks, Texture, read_labels, striped
from timecycle.model.inference import Device, Precision
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.propagate import check_labels
from timecycle.propagation.settings import PropagateConfig
from timecycle.runs import refuse_inside
from timecycle.version import __version__
from timecycle.video import Frame, Video, open_video

_PRESETS = ", ".join(preset_names("propagate"))
_out = Console(highlight=False, markup=False, soft_wrap=True)
_err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

Out = Annotated[Path, arg(aliases=["-o"], help="folder to write to")]
Encoder = Annotated[str, arg(help="resnet18, resnet50 (random weights) or a .safetensors file")]
Preset = Annotated[str, arg(help=f"settings: {_PRESETS}")]
_SETTINGS = ", ".join(field.name for field in dataclasses.fields(PropagateConfig))
Settings = Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help=f"change settings of the preset: {_SETTINGS}")]


@dataclass(frozen=True, kw_only=True)
class Propagate:
    """Carry the labels of some frames through the whole video.

    For example: timecycle propagate dog.mp4 first.png -o out

    or: timecycle propagate frames/ 0=first.png 50=cat.png -o out

    or: timecycle propagate dog.mp4 --box 120,80,260,240 --texture stripes -o out
    """

    video: Annotated[Positional[str], arg(metavar="VIDEO", help="a video file, a folder of images or a quoted glob")]
    labels: Annotated[
        Positional[tuple[str, ...]],
        arg(metavar="LABELS", help="a file (frame 0), INDEX=FILE, or a folder of files named by frame number"),
    ] = ()
    out: Out
    box: Annotated[str | None, arg(metavar="x0,y0,x1,y1", help="label a box of frame 0: no mask needed")] = None
    texture: Annotated[
        str | None, arg(metavar="stripes|FILE", help="paint stripes on the labelled object, or an RGBA image")
    ] = None
    coordinates: Annotated[bool, arg(help="carry every pixel's place on frame 0: long-range flow")] = False
    kind: Annotated[
        Literal["masks", "parts", "keypoints", "texture", "coordinates"] | None,
        arg(help="what the labels are; by default keypoints for CSV files and masks for images"),
    ] = None
    complete: Annotated[bool, arg(help="labelled frames show every object: one that is not drawn is not there")] = False
    encoder: Encoder = DEFAULT_ENCODER
    preset: Preset = "default"
    set: Settings = ()
    fps: Annotated[float | None, arg(help="frames per second of a folder of images (24)")] = None
    device: Annotated[Device, arg(help="where to compute")] = "auto"
    precision: Annotated[Precision, arg(help="bf16 is faster where the processor has it, and less exact")] = "fp32"
    resume: Annotated[bool, arg(help="go on with an interrupted run")] = False
    overwrite: Annotated[bool, arg(help="replace what an earlier run wrote")] = False

    def __call__(self) -> None:
        config = propagate_config(self.preset, self.set)
        with open_video(self.video, fps=self.fps) as video:
            labels = self._read_labels(video)
            check_labels(video, labels)  # before anything is loaded or announced
            encoder = load_encoder(self.encoder, device=self.device, precision=self.precision)
            with _progress("propagating") as progress:
                done = propagate_to_folder(
                    video,
                    labels,
                    self.out,
                    encoder=encoder,
                    config=config,
                    resume=self.resume,
                    overwrite=self.overwrite,
                    progress=progress,
                )
        _out.print(f"{done.frames} frames in {done.seconds:.1f} s -> {done.folder}")
        _out.print(f"look at {done.folder / 'contact.png'} and {done.folder / 'overlay.mp4'}")

    def _read_labels(self, video: Video) -> dict[int, Labels]:
        self._refuse_contradictions()
        refuse_inside(self.out, [Path(label.partition("=")[2] or label) for label in self.labels])
        height, width = video.size.height_px, video.size.width_px
        if self.coordinates:
            return {0: Coordinates.of_image(height, width)}
        if self.texture not in (None, "stripes"):
            return {0: Texture.read(Path(str(self.texture)))}
        if self.box is not None:
            labels: dict[int, Labels] = {0: Masks.of_box(height, width, _parse_box(self.box))}
        else:
            labels = read_labels(self.labels, kind=self.kind, complete=self.complete)
        return _striped(labels) if self.texture == "stripes" else labels

    def _refuse_contradictions(self) -> None:
        """Labels come from one place: an option that would be ignored is refused."""
        sources = {
            "LABELS": bool(self.labels),
            "--box": self.box is not None,
            "--coordinates": self.coordinates,
            "--texture FILE": self.texture not in (None, "stripes"),
        }
        used = [name for name, given in sources.items() if given]
        if not used:
            raise LabelError(
                "no labels were given",
                remedy="give a mask or a CSV of points as LABELS, or --box x0,y0,x1,y1",
            )
        if self.coordinates and self.texture == "stripes":
            used.append("--texture stripes")
        if not self.labels:  # these say how LABELS are read
            used += [name for name, given in (("--kind", self.kind), ("--complete", self.complete)) if given]
        if len(used) > 1:
            raise LabelError(f"{used[0]} and {used[1]} were both given", remedy=f"leave out {used[1]}")


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Dense correspondence from image A to image B: flow.npy, warp.png, arrows.png and matches.png.

    For example: timecycle flow a.png b.png -o out

    or: timecycle flow dog.mp4@0 dog.mp4@5 -o out
    """

    a: Annotated[Positional[str], arg(metavar="A", help="an image, or VIDEO@INDEX")]
    b: Annotated[Positional[str], arg(metavar="B", help="an image, or VIDEO@INDEX")]
    out: Out
    encoder: Encoder = DEFAULT_ENCODER
    preset: Preset = "default"
    set: Settings = ()
    device: Annotated[Device, arg(help="where to compute")] = "auto"
    overwrite: Annotated[bool, arg(help="replace what an earlier call wrote")] = False

    def __call__(self) -> None:
        config = propagate_config(self.preset, ("anchor_window_px=none", *self.set))
        a, b = _read_frame(self.a), _read_frame(self.b)
        encoder = load_encoder(self.encoder, device=self.device)
        flow_to_folder(a, b, self.out, encoder=encoder, config=config, overwrite=self.overwrite)
        _out.print(f"look at {self.out / 'warp.png'}, {self.out / 'arrows.png'} and {self.out / 'matches.png'}")


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Everything on a small made-up clip, in under a minute, with nothing downloaded."""

    out: Out = Path("timecycle-demo")
    encoder: Encoder = DEFAULT_ENCODER
    device: Annotated[Device, arg(help="where to compute")] = "auto"

    def __call__(self) -> None:
        result = run_demo(self.out, encoder=load_encoder(self.encoder, device=self.device), say=_out.print)
        _out.print(f"masks overlap the truth by {result.mean_iou:.2f} (1 is perfect)")
        _out.print(f"look at {result.folder / 'masks' / 'contact.png'} and its neighbours")


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """What is installed, what is missing, and what this machine will run on."""

    def __call__(self) -> None:
        for finding in examine():
            remedy = f"  ({finding.remedy})" if finding.remedy else ""
            _out.print(f"{'ok ' if finding.fine else '!  '} {finding.what:<14} {finding.value}{remedy}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; what a user can mend is one line and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):
        _out.print(f"timecycle {__version__}")
        return 0
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    verbs: dict[str, Callable[..., object]] = {
        "propagate": Propagate,
        "flow": Flow,
        "demo": Demo,
        "doctor": Doctor,
    }
    command = tyro.extras.subcommand_cli_from_dict(
        verbs,
        prog="timecycle",
        description="Carry the labels of one frame through the whole video. (--version prints the version.)",
        args=words,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    try:
        command()
    except TimecycleError as error:
        _err.print(f"error: {error.problem}\n  try: {error.remedy}")
        return 2
    except KeyboardInterrupt:
        goes_on = "; to go on, run it again with --resume and without --overwrite" if words[0] == "propagate" else ""
        _err.print(f"interrupted{goes_on}")
        return 130
    return 0


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int, int], None]]:
    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_err) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _striped(labels: dict[int, Labels]) -> dict[int, Labels]:
    """Stripes on the object of the one labelled frame."""
    painted: dict[int, Labels] = {i: striped(masks) for i, masks in labels.items() if isinstance(masks, Masks)}
    if len(painted) != 1 or len(labels) != 1:
        raise LabelError(
            "stripes are painted on the mask of one frame", remedy="give one mask as LABELS, or --box x0,y0,x1,y1"
        )
    return painted


def _parse_box(text: str) -> tuple[float, float, float, float]:
    try:
        x0, y0, x1, y1 = (float(part) for part in text.split(","))
    except ValueError as error:
        raise LabelError(
            f"{text!r} is not a box", remedy="write --box x0,y0,x1,y1 in pixels, for example 120,80,260,240"
        ) from error
    return x0, y0, x1, y1


def _read_frame(text: str) -> Frame:
    numbered = re.fullmatch(r"(.+)@(\d+)", text)
    if numbered and not Path(text).exists():
        with open_video(numbered[1]) as video:
            return video[int(numbered[2])]
    with open_video(text) as video:
        return video[0]
