"""`timecycle audit`"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

from tyro.conf import Positional, arg

from timecycle.cli.console import Result, out, progress, say
from timecycle.cli.options import (
    AllowDamaged,
    Fps,
    MethodOptions,
    Preset,
    TrackKind,
    TrackKindOption,
    log_video,
    refuse_swapped,
)
from timecycle.errors import LabelError
from timecycle.formats.reading import read_any
from timecycle.formats.video_labels import facts_of
from timecycle.propagation.video import fit_labels
from timecycle.review.audit import audit
from timecycle.runs.folder import OutputFolder, is_run
from timecycle.video import open_video


@dataclass(frozen=True, kw_only=True)
class Audit(MethodOptions):
    """Find errors in the masks or points of a whole track, made by any tool.

    Finds identity swaps, jumps, dropped objects, frozen labels, drift, and tracks shifted against the frame numbers of
    their files. The folder of a run alone is enough: it says where its video is.

    Examples:
      timecycle audit dog.mp4 masks/
      timecycle audit out
    """

    video: Annotated[
        Positional[str],
        arg(metavar="VIDEO|OUT", help="a video file, a folder of images or a quoted glob; or the folder of a run"),
    ]
    labels: Annotated[
        Positional[tuple[str, ...]],
        arg(
            metavar="LABELS ...",
            help="a folder of files named by frame number, FRAME=FILE, a CSV of points, a file of another tool or the "
            "folder of a run",
        ),
    ] = ()
    kind: TrackKindOption = None
    preset: Preset = "fast"
    fps: Fps = None
    allow_damaged: AllowDamaged = False

    def __call__(self) -> Result:
        refuse_swapped("audit", self.video, self.labels)
        config = self.config()
        track = self._track()
        with open_video(track.video, fps=track.fps, allow_damaged=self.allow_damaged) as video:
            given = read_any(track.labels, facts_of(video), kind=track.kind, every_frame=True)
            labels = fit_labels(video, given.labels)
            log_video(video, config)
            encoder = self.load_encoder()
            with progress("auditing") as show:
                result = audit(video, labels, encoder=encoder, config=config, progress=show)
            numbers = video.numbers
        for finding in result.findings:
            out.print(f"{finding.kind:<8} {finding.strength:5.1f}   {finding.message}")
        count = len(result.findings)
        say(f"{len(result.frames)} frames, {count or 'no'} finding{'' if count == 1 else 's'}")
        if len(result.frames) < len(numbers):
            first, last = numbers[result.frames[0]], numbers[result.frames[-1]]
            say(
                f"only {len(result.frames)} of the frames {numbers[0]} to {numbers[-1]} have labels, "
                f"the first is {first} and the last {last}: the others were not audited"
            )
        findings = [
            dataclasses.asdict(finding)
            | {"first_frame_number": numbers[finding.first], "last_frame_number": numbers[finding.last]}
            for finding in result.findings
        ]
        return {"frames": len(result.frames), "video_frames": len(numbers), "findings": findings}

    def _track(self) -> "_Track":
        """What to audit: the given labels, or those that a run wrote."""
        if len(self.labels) == 1 and is_run(self.labels[0]):
            return _of_run(Path(self.labels[0]), video=self.video, fps=self.fps)
        if self.labels:
            return _Track(self.video, self.fps, self.labels, self.kind)
        if not is_run(self.video):
            raise LabelError(
                f"no labels were given for {self.video}",
                remedy="write: timecycle audit VIDEO LABELS, or timecycle audit OUT for what propagate wrote to OUT",
            )
        return _of_run(Path(self.video), fps=self.fps)


@dataclass(frozen=True)
class _Track:
    """A video and its labels, as arguments of `open_video` and `read_any`."""

    video: str
    fps: float | None
    labels: Sequence[str]
    kind: str | None


def _of_run(folder: Path, *, video: str | None = None, fps: float | None) -> _Track:
    """The labels of a finished run; `video` says where its video is now, if it was moved."""
    run = OutputFolder(folder)
    run.refuse_links()
    record = run.finished_record()
    kind = record["labels"]["kind"]
    if kind not in get_args(TrackKind):
        raise LabelError(
            f"{folder} holds {kind}, which cannot be audited", remedy=f"audit {', '.join(get_args(TrackKind))}"
        )
    if video is None:
        origin = record.get("origin")
        if not origin:
            raise LabelError(
                f"{folder} does not say where its video is", remedy=f"write: timecycle audit VIDEO {folder}"
            )
        video, fps = str(origin["video"]), origin["fps"] if fps is None else fps
    return _Track(video, fps, (str(folder / "labels"),), kind)
