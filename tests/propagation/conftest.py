"""A small synthetic world and its oracle encoder, shared by tests that only read them."""

import pytest

from oracle import OracleEncoder
from timecycle.synthetic import WorldConfig, make_world


@pytest.fixture(scope="module")
def world():
    return make_world(WorldConfig(height_px=97, width_px=129, frames=12, objects=3))


@pytest.fixture(scope="module")
def encoder(world):
    return OracleEncoder(world, stride_px=8)
