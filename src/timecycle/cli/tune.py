"""`timecycle tune`"""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from timecycle.cli.console import out, progress
from timecycle.cli.options import AllowDamaged, Device, Precision, refuse_swapped
from timecycle.config import propagate_config
from timecycle.labels import read_labels
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.propagate import check_labels
from timecycle.review.tune import Candidate, tune
from timecycle.video import open_video


@dataclass(frozen=True, kw_only=True)
class Tune:
    """Which presets and encoders suit this clip? Labels go out and back; those that come back whole were followed.

    For example: timecycle tune dog.mp4 first.png --encoders timecycle-v1 rgb --presets fast crw2020
    """

    video: Annotated[Positional[str], arg(metavar="VIDEO", help="a video file, a folder of images or a quoted glob")]
    labels: Annotated[Positional[tuple[str, ...]], arg(metavar="LABELS", help="a file (frame 0), or FRAME=FILE")]
    presets: Annotated[tuple[str, ...], arg(metavar="NAME ...", help="presets to try")] = ("fast", "default", "best")
    encoders: Annotated[tuple[str, ...], arg(metavar="NAME ...", help="encoders to try")] = (DEFAULT_ENCODER,)
    frames: Annotated[int, arg(help="frames after the drawing to go out to, at most")] = 60
    kind: Annotated[
        Literal["masks", "parts", "keypoints"] | None,
        arg(help="what the labels are; by default keypoints for CSV files and masks for images"),
    ] = None
    fps: Annotated[float | None, arg(help="frames per second of a folder of images (24)")] = None
    allow_damaged: AllowDamaged = False
    device: Device = "auto"
    precision: Precision = "fp32"

    def __call__(self) -> None:
        refuse_swapped("tune", self.video, self.labels)
        with open_video(self.video, fps=self.fps, allow_damaged=self.allow_damaged) as video:
            labels = check_labels(
                video, read_labels(self.labels, kind=self.kind, numbers=video.numbers, size=video.size.shape)
            )
            index = min(labels)
            candidates = [
                Candidate(
                    f"--encoder {name} --preset {preset}",
                    load_encoder(name, device=self.device, precision=self.precision),
                    propagate_config(preset),
                )
                for name in self.encoders
                for preset in self.presets
            ]
            with progress("going out and back") as show:
                tried = tune(video, index, labels[index], candidates, frames=self.frames, progress=show)
        for place, one in enumerate(tried, 1):
            out.print(f"{place:>2}. cycle error {one.cycle_error:.3f}   {one.name}")
