"""Small videos and small settings, so that whole runs take seconds."""

from pathlib import Path
from typing import Any

import pytest

from clips import write_clip
from timecycle.config import train_config
from timecycle.synthetic import WorldConfig, make_world
from timecycle.training.record import read_journal

TINY = (
    *("batch=2", "view_px=64", "patches.patch_px=24"),
    *("held_out=0.3", "held_out_clips=2", "optimizer.warmup_steps=2"),
    *("clips.frames=3", "clips.short_side_px=72", "clips.crop_px=72", "clips.min_motion=0"),
    *("validate_every=4", "checkpoint_every=2"),
)


@pytest.fixture(scope="session")
def videos(tmp_path_factory):
    """Eight videos of the synthetic world."""
    folder = tmp_path_factory.mktemp("videos")
    for number in range(8):
        world = make_world(WorldConfig(height_px=80, width_px=96, frames=14, seed=number))
        write_clip(folder / f"world{number}.mp4", world)
    return folder


@pytest.fixture(params=["walks", "cycles"])
def config(request):
    return train_config("small", [*TINY, f"objective={request.param}", "steps=6", "precision=fp32"])


@pytest.fixture(scope="session")
def tiny():
    """The settings of runs that take seconds."""
    return TINY


def without_times(folder: Path) -> list[dict[str, Any]]:
    """Read a run's journal without the fields that depend on the clock."""
    clock = ("seconds", "data_share")
    return [{key: value for key, value in line.items() if key not in clock} for line in read_journal(folder)]
