"""`timecycle demo`"""

from dataclasses import dataclass
from pathlib import Path

from timecycle.cli.console import Result, say
from timecycle.cli.options import Device, Encoder, Out, read_encoder
from timecycle.demo import run_demo
from timecycle.model.registry import DEFAULT_ENCODER


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Try everything on a small synthetic clip, in about a minute, without any download."""

    out: Out = Path("timecycle-demo")
    encoder: Encoder = DEFAULT_ENCODER
    device: Device = "auto"

    def __call__(self) -> Result:
        result = run_demo(self.out, encoder=read_encoder(self.encoder, self.device, "fp32"), say=say)
        say(f"mean IoU of the masks with the ground truth: {result.mean_iou:.2f} (1 is perfect)")
        say(f"look at {result.folder / 'masks' / 'contact.png'} and the folders beside it")
        return {"folder": result.folder, "mean_iou": result.mean_iou}
