"""`timecycle audit`"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from tyro.conf import Positional, arg

from timecycle.cli.console import out, progress
from timecycle.cli.options import AllowDamaged, Device, Encoder, Precision, Preset, Settings, refuse_swapped
from timecycle.config import propagate_config
from timecycle.errors import LabelError
from timecycle.files import write_text
from timecycle.labels import read_labels
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.propagate import fit_labels
from timecycle.review.audit import audit
from timecycle.review.judged import read_run
from timecycle.run_record import refuse_links
from timecycle.video import open_video

Kind = Literal["masks", "parts", "keypoints"]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Do these labels fit their video? For masks or points of a whole track, made by any tool.

    For example: timecycle audit dog.mp4 masks/

    or, of a run, which knows its video: timecycle audit out

    Finds identity swaps, jumps, dropped objects, frozen labels, drift and whole tracks that belong to other frames than
    their files are named for.
    """

    video: Annotated[
        Positional[str],
        arg(metavar="VIDEO|OUT", help="a video file, a folder of images or a quoted glob; or a run alone"),
    ]
    labels: Annotated[
        Positional[tuple[str, ...]],
        arg(metavar="LABELS", help="a folder of files named by frame number, FRAME=FILE ..., a CSV of points or a run"),
    ] = ()
    kind: Annotated[
        Kind | None,
        arg(help="what the labels are; by default keypoints for CSV files and masks for images"),
    ] = None
    json: Annotated[Path | None, arg(metavar="FILE", help="write what was found as JSON")] = None
    encoder: Encoder = DEFAULT_ENCODER
    preset: Preset = "fast"
    set: Settings = ()
    fps: Annotated[float | None, arg(help="frames per second of a folder of images (24)")] = None
    allow_damaged: AllowDamaged = False
    device: Device = "auto"
    precision: Precision = "fp32"

    def __call__(self) -> None:
        refuse_swapped("audit", self.video, self.labels)
        config = propagate_config(self.preset, self.set)
        track = self._track()
        with open_video(track.video, fps=track.fps, allow_damaged=self.allow_damaged) as video:
            labels = fit_labels(
                video, read_labels(track.labels, kind=track.kind, numbers=video.numbers, size=video.size.shape)
            )
            encoder = load_encoder(self.encoder, device=self.device, precision=self.precision)
            with progress("following") as show:
                found = audit(video, labels, encoder=encoder, config=config, progress=show)
            frames = video.numbers
        for finding in found.findings:
            out.print(f"{finding.fault:<8} {finding.strength:5.1f}   {finding.words}")
        count = len(found.findings)
        out.print(f"{len(found.frames)} frames, {count or 'no'} finding{'' if count == 1 else 's'}")
        if len(found.frames) < len(frames):
            first, last = frames[found.frames[0]], frames[found.frames[-1]]
            out.print(
                f"labels are on {len(found.frames)} of the frames {frames[0]} to {frames[-1]}, "
                f"the first on {first} and the last on {last}: of the others nothing is known"
            )
        if self.json is not None:
            findings = [
                dataclasses.asdict(finding)
                | {"first_frame_number": frames[finding.first], "last_frame_number": frames[finding.last]}
                for finding in found.findings
            ]
            told = {"frames": len(found.frames), "video_frames": len(frames), "findings": findings}
            write_text(self.json, json.dumps(told, indent=2) + "\n")

    def _track(self) -> "_Track":
        """What to audit: labels as they were given, or those that a run wrote."""
        if len(self.labels) == 1 and _is_run(self.labels[0]):
            return _of_run(Path(self.labels[0]), video=self.video, fps=self.fps)
        if self.labels:
            return _Track(self.video, self.fps, self.labels, self.kind)
        if not _is_run(self.video):
            raise LabelError(
                f"no labels were given for {self.video}",
                remedy="write: timecycle audit VIDEO LABELS, or timecycle audit OUT for what propagate wrote to OUT",
            )
        return _of_run(Path(self.video), fps=self.fps)


@dataclass(frozen=True)
class _Track:
    """A video and labels of it, in the words of `open_video` and `read_labels`."""

    video: str
    fps: float | None
    labels: Sequence[str]
    kind: str | None


def _is_run(word: str) -> bool:
    return (Path(word) / "run.json").is_file()


def _of_run(folder: Path, *, video: str | None = None, fps: float | None) -> _Track:
    """The labels of a finished run, of the video it was made from unless another place is given."""
    refuse_links(folder)
    record = read_run(folder)
    kind = record["labels"]["kind"]
    if kind not in get_args(Kind):
        raise LabelError(f"{folder} holds {kind}, which are not audited", remedy=f"audit {', '.join(get_args(Kind))}")
    if video is None:
        origin = record.get("origin")
        if not origin:
            raise LabelError(
                f"{folder} does not say where its video lies", remedy=f"write: timecycle audit VIDEO {folder}"
            )
        video, fps = str(origin["video"]), origin["fps"] if fps is None else fps
    return _Track(video, fps, (str(folder / "labels"),), kind)
