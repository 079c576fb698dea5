"""`timecycle tune`"""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.cli.console import Result, out, progress
from timecycle.cli.options import (
    AllowDamaged,
    Device,
    Fps,
    Precision,
    TrackKindOption,
    VideoArgument,
    read_config,
    read_encoder,
    refuse_swapped,
)
from timecycle.formats.reading import read_any
from timecycle.formats.video_labels import facts_of
from timecycle.model.registry import DEFAULT_ENCODER
from timecycle.propagation.video import check_labels
from timecycle.review.tune import Candidate, tune
from timecycle.video import open_video


@dataclass(frozen=True, kw_only=True)
class Tune:
    """Rank presets and encoders on a clip by their forward-backward cycle error; no ground truth is needed.

    Labels are propagated forward, then back to the annotated frame, and compared with the annotation.

    Examples:
      timecycle tune dog.mp4 first.png --encoders timecycle-v2 rgb --presets fast
    """

    video: VideoArgument
    labels: Annotated[
        Positional[tuple[str, ...]], arg(metavar="LABELS ...", help="a file (of the first frame), or FRAME=FILE")
    ]
    presets: Annotated[tuple[str, ...], arg(metavar="NAME ...", help="presets to try")] = ("fast", "default", "best")
    encoders: Annotated[tuple[str, ...], arg(metavar="NAME ...", help="encoders to try")] = (DEFAULT_ENCODER,)
    frames: Annotated[int, arg(help="propagate at most this many frames forward")] = 60
    kind: TrackKindOption = None
    fps: Fps = None
    allow_damaged: AllowDamaged = False
    device: Device = "auto"
    precision: Precision = "fp32"

    def __call__(self) -> Result:
        refuse_swapped("tune", self.video, self.labels)
        with open_video(self.video, fps=self.fps, allow_damaged=self.allow_damaged) as video:
            labels = check_labels(video, read_any(self.labels, facts_of(video), kind=self.kind).labels)
            index = min(labels)
            options = {
                f"--encoder {name} --preset {preset}": (name, preset)
                for name in self.encoders
                for preset in self.presets
            }
            candidates = [
                Candidate(text, read_encoder(name, self.device, self.precision), read_config(preset))
                for text, (name, preset) in options.items()
            ]
            with progress("forward and back") as show:
                tried = tune(video, index, labels[index], candidates, frames=self.frames, progress=show)
        for rank, candidate in enumerate(tried, 1):
            out.print(f"{rank:>2}. cycle error {candidate.cycle_error:.3f}   {candidate.name}")
        ranking = [
            {"encoder": name, "preset": preset, "cycle_error": candidate.cycle_error}
            for candidate in tried
            for name, preset in (options[candidate.name],)
        ]
        return {"ranking": ranking}
