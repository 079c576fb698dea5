"""Small videos and small settings, so that whole runs take seconds."""

import pytest

import kills
from clips import write_clip
from timecycle.config import train_config
from timecycle.synthetic import WorldConfig, make_world

TINY = (*kills.TINY, "validate_every=4", "checkpoint_every=2")


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
