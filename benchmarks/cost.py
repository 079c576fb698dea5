"""What a training recipe costs: floating-point operations of its steps, counted on tensors without contents.

    python benchmarks/cost.py [--presets shipped full]

Counted are the encoder and the walks, forward; backward takes twice as much again. Loading, normalisation and the
optimizer are not counted: a step takes longer than its operations. Results: cost.json.
"""

import argparse
import sys
import time

import torch
from torch.utils.flop_counter import FlopCounterMode

from record import write_record
from timecycle.config import train_config
from timecycle.model.resnet import ResNet, grid_of
from timecycle.training.settings import TrainConfig
from timecycle.walks import walk_losses

_BACKWARD = 2  # times the forward pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["shipped", "full"])
    chosen = parser.parse_args()
    began = time.monotonic()
    costs = {}
    for preset in chosen.presets:
        config = train_config(preset)
        step = step_operations(config)
        costs[preset] = {
            "steps": config.steps,
            "clips_per_step": config.batch,
            "views_per_step": config.batch * config.clips.frames * 2,
            "tera_operations_per_step": round(step / 1e12, 4),
            "peta_operations": round(step * config.steps / 1e15, 2),
        }
        print(preset, costs[preset])
    write_record("cost", settings={"presets": chosen.presets}, measured=costs, seconds=time.monotonic() - began)
    return 0


def step_operations(config: TrainConfig) -> float:
    """Of one step of walks, forward and backward; a multiplication and an addition are two."""
    with torch.device("meta"):
        model = ResNet(config.encoder)
        views = torch.empty(2, config.clips.frames, 3, config.view_px, config.view_px)
        grid = grid_of(config.view_px)
        places = torch.empty(1, grid.cells, 2)
        counter = FlopCounterMode(display=False)
        with counter:
            out, back = (model(view)[None] for view in views)
            walk_losses(out, back, places, grid=grid, config=config.walks)
    return float(counter.get_total_flops()) * config.batch * (1 + _BACKWARD)


if __name__ == "__main__":
    sys.exit(main())
