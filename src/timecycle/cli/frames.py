"""`timecycle frames`"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.cli.console import Result, say
from timecycle.cli.options import AllowDamaged, Out, Overwrite, VideoArgument
from timecycle.errors import OutputError, SettingsError
from timecycle.files import make_folder
from timecycle.labels import index_of
from timecycle.render import save_picture
from timecycle.video import open_video


@dataclass(frozen=True, kw_only=True)
class Frames:
    """Save exact frames of a video as PNG files named by frame number, to annotate them in another program.

    Examples:
      timecycle frames dog.mp4 0 40 -o frames
      timecycle propagate dog.mp4 0=mask0.png 40=mask40.png -o out
    """

    video: VideoArgument
    frames: Annotated[Positional[tuple[int, ...]], arg(metavar="FRAME ...", help="frame numbers, from 0")] = ()
    out: Out
    allow_damaged: AllowDamaged = False
    overwrite: Overwrite = False

    def __call__(self) -> Result:
        if not self.frames or min(self.frames) < 0:
            raise SettingsError(
                f"frame {min(self.frames)} does not exist" if self.frames else "no frame number was given",
                remedy=f"give frame numbers from 0: timecycle frames {self.video} 0 40 -o {self.out}",
            )
        with open_video(self.video, allow_damaged=self.allow_damaged) as video:
            paths = {index_of(number, video.numbers): _path(self.out, number) for number in self.frames}
            video[max(paths)]  # a frame that does not exist is refused before anything is written
            existing = [path for path in paths.values() if path.exists()]
            if existing and not self.overwrite:
                raise OutputError(
                    f"{existing[0]} already exists", remedy="choose another folder with -o, or pass --overwrite"
                )
            make_folder(self.out)
            for index, path in sorted(paths.items()):
                save_picture(path, video[index].image)
        say(f"{len(paths)} frame{'s' if len(paths) > 1 else ''} -> {self.out}")
        return {"folder": self.out, "files": [path for _, path in sorted(paths.items())]}


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.png"
