"""`timecycle demo`"""

from dataclasses import dataclass
from pathlib import Path

from timecycle.cli.console import out
from timecycle.cli.options import Device, Encoder, Out
from timecycle.demo import run_demo
from timecycle.model.registry import DEFAULT_ENCODER, load_encoder


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Try everything on a small synthetic clip, in about a minute, without any download."""

    out: Out = Path("timecycle-demo")
    encoder: Encoder = DEFAULT_ENCODER
    device: Device = "auto"

    def __call__(self) -> None:
        result = run_demo(self.out, encoder=load_encoder(self.encoder, device=self.device), say=out.print)
        out.print(f"mean IoU of the masks with the ground truth: {result.mean_iou:.2f} (1 is perfect)")
        out.print(f"look at {result.folder / 'masks' / 'contact.png'} and the folders beside it")
