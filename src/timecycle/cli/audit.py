"""`timecycle audit`"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from timecycle.cli.console import out, progress
from timecycle.cli.options import Device, Encoder, Precision, Preset, Settings
from timecycle.config import propagate_config
from timecycle.files import write_text
from timecycle.labels import read_labels
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.propagation.propagate import check_labels
from timecycle.review.audit import audit
from timecycle.video import open_video


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Do these labels fit their video? For masks or points of a whole track, made by any tool.

    For example: timecycle audit dog.mp4 masks/

    Found are objects that change places, jump, end though they are still seen, stand still while the video moves or
    creep off, and a whole track that belongs to other frames than its files are named for.
    """

    video: Annotated[Positional[str], arg(metavar="VIDEO", help="a video file, a folder of images or a quoted glob")]
    labels: Annotated[
        Positional[tuple[str, ...]],
        arg(metavar="LABELS", help="a folder of files named by frame number, INDEX=FILE ..., or a CSV of points"),
    ]
    kind: Annotated[
        Literal["masks", "parts", "keypoints"] | None,
        arg(help="what the labels are; by default keypoints for CSV files and masks for images"),
    ] = None
    json: Annotated[Path | None, arg(metavar="FILE", help="write what was found as JSON")] = None
    encoder: Encoder = DEFAULT_ENCODER
    preset: Preset = "fast"
    set: Settings = ()
    fps: Annotated[float | None, arg(help="frames per second of a folder of images (24)")] = None
    device: Device = "auto"
    precision: Precision = "fp32"

    def __call__(self) -> None:
        config = propagate_config(self.preset, self.set)
        with open_video(self.video, fps=self.fps) as video:
            labels = read_labels(self.labels, kind=self.kind)
            check_labels(video, labels)
            encoder = load_encoder(self.encoder, device=self.device, precision=self.precision)
            with progress("following") as show:
                found = audit(video, labels, encoder=encoder, config=config, progress=show)
        for finding in found.findings:
            out.print(f"{finding.fault:<8} {finding.strength:5.1f}   {finding.words}")
        count = len(found.findings)
        out.print(f"{len(found.frames)} frames, {count or 'no'} finding{'' if count == 1 else 's'}")
        if self.json is not None:
            findings = [dataclasses.asdict(finding) for finding in found.findings]
            write_text(self.json, json.dumps({"frames": len(found.frames), "findings": findings}, indent=2) + "\n")
