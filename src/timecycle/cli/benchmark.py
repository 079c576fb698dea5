"""`timecycle benchmark`"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from timecycle.api.speed import benchmark
from timecycle.cli.console import Result, out
from timecycle.cli.options import Device, Encoder
from timecycle.model.registry import DEFAULT_ENCODER
from timecycle.speed.table import TASKS, Task


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Measure encoding, matching and training on a device, and print a Markdown table that can be sent.

    Clips are synthetic: nothing is read or downloaded. Close other programs first.

    Examples:
      timecycle benchmark
      timecycle benchmark --device cuda --seconds 5 > speed.md
    """

    encoder: Encoder = DEFAULT_ENCODER
    device: Device = "auto"
    only: Annotated[tuple[Task, ...], arg(metavar="TASK ...", help=f"measure only these: {', '.join(TASKS)}")] = TASKS
    seconds: Annotated[float, arg(help="repeat each measurement for about so long, at least three times")] = 2.0

    def __call__(self) -> Result:
        table = benchmark(encoder=self.encoder, device=self.device, only=self.only, seconds=self.seconds, progress=True)
        out.print(str(table))
        return {field.name: getattr(table, field.name) for field in dataclasses.fields(table)}
