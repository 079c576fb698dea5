"""`timecycle flow`"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.api.labelling import flow_to_folder
from timecycle.cli.console import Result, say
from timecycle.cli.options import AllowDamaged, MethodOptions, Out, Overwrite
from timecycle.labels import index_of
from timecycle.video import Frame, open_video


@dataclass(frozen=True, kw_only=True)
class Flow(MethodOptions):
    """Compute dense correspondence from image A to image B: flow.npy, warp.png, arrows.png and matches.png.

    Examples:
      timecycle flow a.png b.png -o out
      timecycle flow dog.mp4@0 dog.mp4@5 -o out
    """

    a: Annotated[Positional[str], arg(metavar="A", help="an image, or VIDEO@FRAME")]
    b: Annotated[Positional[str], arg(metavar="B", help="an image, or VIDEO@FRAME")]
    out: Out
    allow_damaged: AllowDamaged = False
    overwrite: Overwrite = False

    def __call__(self) -> Result:
        config = self.config("anchor_window_px=none")
        a, b = (_read_frame(text, allow_damaged=self.allow_damaged) for text in (self.a, self.b))
        flow_to_folder(a, b, self.out, encoder=self.load_encoder(), config=config, overwrite=self.overwrite)
        flow, *pictures = (self.out / name for name in ("flow.npy", "warp.png", "arrows.png", "matches.png"))
        say(f"look at {pictures[0]}, {pictures[1]} and {pictures[2]}")
        return {"folder": self.out, "flow": flow, "pictures": pictures}


def _read_frame(text: str, *, allow_damaged: bool) -> Frame:
    numbered = re.fullmatch(r"(.+)@(\d+)", text)
    if numbered and not Path(text).exists():
        with open_video(numbered[1], allow_damaged=allow_damaged) as video:
            return video[index_of(int(numbered[2]), video.numbers)]
    with open_video(text, allow_damaged=allow_damaged) as video:
        return video[0]
