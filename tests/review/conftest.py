"""Fixtures of the review tests; each module defines its own `world`."""

import pytest

from oracle import OracleEncoder
from timecycle.synthetic import World
from timecycle.video import Video, open_video


@pytest.fixture(scope="module")
def video(world: World) -> Video:
    return open_video(world.video())


@pytest.fixture(scope="module")
def encoder(world: World) -> OracleEncoder:
    return OracleEncoder(world, stride_px=4)
