"""`timecycle convert`"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.api.conversion import convert
from timecycle.cli.console import Result, say
from timecycle.cli.options import WRITABLE_FORMATS, Overwrite
from timecycle.formats.registry import FORMATS

_READABLE = ", ".join(one.name for one in FORMATS.values() if one.read is not None)


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Convert label files between the formats of many tools; docs/formats.md says what each of them keeps.

    Examples:
      timecycle convert out labels.json
      timecycle convert annotations.xml masks --video dog.mp4
      timecycle convert out labels --to yolo
    """

    source: Annotated[
        Positional[Path], arg(metavar="IN", help="a label file, a folder of label files, or the folder of a run")
    ]
    target: Annotated[
        Positional[Path],
        arg(metavar="OUT", help="file or folder to write; its suffix says the format, unless --to does"),
    ]
    source_format: Annotated[
        str | None, arg(name="from", metavar="NAME", help=f"format of IN, if it is not recognised: {_READABLE}")
    ] = None
    target_format: Annotated[str | None, arg(name="to", metavar="NAME", help=f"format of OUT: {WRITABLE_FORMATS}")] = (
        None
    )
    video: Annotated[
        str | None, arg(metavar="VIDEO", help="the video of the labels, which they must fit; some formats need it")
    ] = None
    overwrite: Overwrite = False

    def __call__(self) -> Result:
        done = convert(
            self.source,
            self.target,
            source_format=self.source_format,
            target_format=self.target_format,
            video=self.video,
            overwrite=self.overwrite,
        )
        say(f"{done.kind} of {done.frames} frames: {done.source_format} -> {done.target_format}, {self.target}")
        say(f"{done.target_format} does not keep: {done.loses}")
        return {
            "source": self.source,
            "target": self.target,
            "from": done.source_format,
            "to": done.target_format,
            "kind": done.kind,
            "frames": done.frames,
        }
