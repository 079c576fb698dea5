"""The scripts under test are importable here only; the other tests do without them."""

import sys
from pathlib import Path

import pytest
import torch

from clips import write_clip
from timecycle.synthetic import WorldConfig, make_world

sys.path.insert(0, str(Path(__file__).parents[1]))


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight videos of the synthetic world."""
    folder = tmp_path_factory.mktemp("videos")
    for number in range(8):
        world = make_world(WorldConfig(height_px=80, width_px=96, frames=14, seed=number))
        write_clip(folder / f"world{number}.mp4", world)
    return folder


@pytest.fixture(autouse=True)
def _the_same_chance_in_every_run() -> None:
    """Networks that a test makes without a seed begin alike whatever ran before."""
    torch.manual_seed(0)
