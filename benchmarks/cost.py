"""Count the floating-point operations of training presets, on meta tensors.

    python benchmarks/cost.py [--presets bundled full]

The count covers the forward pass of the encoder and the walks; the backward pass takes twice as much. Loading,
normalisation and the optimizer are not counted. Results: cost.json.
"""

import argparse
import sys
import time

import torch
from torch.utils.flop_counter import FlopCounterMode

from record import write_record
from timecycle.config import train_config
from timecycle.model.resnet import ResNet, grid_of
from timecycle.objectives.walks import walk_losses
from timecycle.training.settings import TrainConfig

_BACKWARD = 2  # times the forward pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["bundled", "full"])
    chosen = parser.parse_args()
    began = time.monotonic()
    costs = {}
    for preset in chosen.presets:
        config = train_config(preset)
        step = step_operations(config)
        costs[preset] = {
            "steps": config.steps,
            "clips_per_step": config.batch,
            "views_per_step": config.batch * (2 * config.clips.frames - 1),
            "tera_operations_per_step": round(step / 1e12, 4),
            "peta_operations": round(step * config.steps / 1e15, 2),
        }
        print(preset, costs[preset])
    write_record("cost", settings={"presets": chosen.presets}, measured=costs, seconds=time.monotonic() - began)
    return 0


def step_operations(config: TrainConfig) -> float:
    """Count the operations of one training step, forward and backward; a multiply-add counts as two."""
    with torch.device("meta"):
        model = ResNet(config.encoder)
        views = torch.empty(2 * config.clips.frames - 1, 3, config.view_px, config.view_px)
        grid = grid_of(config.view_px)
        positions = torch.empty(1, grid.cells, 2)
        counter = FlopCounterMode(display=False)
        with counter:
            out, back = (part[None] for part in model(views).split([config.clips.frames, config.clips.frames - 1]))
            walk_losses(out, back, positions, grid=grid, config=config.walks)
    return float(counter.get_total_flops()) * config.batch * (1 + _BACKWARD)


if __name__ == "__main__":
    sys.exit(main())
