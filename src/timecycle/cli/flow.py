"""`timecycle flow`"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.api.labelling import flow_to_folder
from timecycle.cli.console import out
from timecycle.cli.options import AllowDamaged, Device, Encoder, Out, Overwrite, Preset, Settings
from timecycle.config import propagate_config
from timecycle.labels import index_of
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder
from timecycle.video import Frame, open_video


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Compute dense correspondence from image A to image B: flow.npy, warp.png, arrows.png and matches.png.

    Examples:
      timecycle flow a.png b.png -o out
      timecycle flow dog.mp4@0 dog.mp4@5 -o out
    """

    a: Annotated[Positional[str], arg(metavar="A", help="an image, or VIDEO@FRAME")]
    b: Annotated[Positional[str], arg(metavar="B", help="an image, or VIDEO@FRAME")]
    out: Out
    encoder: Encoder = DEFAULT_ENCODER
    preset: Preset = "default"
    set: Settings = ()
    allow_damaged: AllowDamaged = False
    device: Device = "auto"
    overwrite: Overwrite = False

    def __call__(self) -> None:
        config = propagate_config(self.preset, ("anchor_window_px=none", *self.set))
        a, b = (_read_frame(text, allow_damaged=self.allow_damaged) for text in (self.a, self.b))
        encoder = load_encoder(self.encoder, device=self.device)
        flow_to_folder(a, b, self.out, encoder=encoder, config=config, overwrite=self.overwrite)
        out.print(f"look at {self.out / 'warp.png'}, {self.out / 'arrows.png'} and {self.out / 'matches.png'}")


def _read_frame(text: str, *, allow_damaged: bool) -> Frame:
    numbered = re.fullmatch(r"(.+)@(\d+)", text)
    if numbered and not Path(text).exists():
        with open_video(numbered[1], allow_damaged=allow_damaged) as video:
            return video[index_of(int(numbered[2]), video.numbers)]
    with open_video(text, allow_damaged=allow_damaged) as video:
        return video[0]
