"""A small run of benchmarks/speed.py with loose bounds, to detect regressions."""

import sys
from functools import partial

import numpy as np
import pytest

from speed import Scene, bare, in_turns, measure_agreement, peak_rss_mib, prepared_frames, whole
from timecycle.config import propagate_config
from timecycle.kernel.library import find_kernel
from timecycle.labels import Masks
from timecycle.model.registry import load_encoder
from timecycle.synthetic import WorldConfig, make_world


@pytest.fixture(scope="module")
def scene():
    world = make_world(WorldConfig(height_px=240, width_px=426, frames=40))
    frames = [world.frame(t) for t in range(40)]
    return Scene(load_encoder("random-resnet18", device="cpu"), frames, Masks(world.mask(0)))


@pytest.mark.slow  # real sizes and several rounds, as fewer would measure noise
@pytest.mark.skipif(find_kernel().functions is None, reason="the bound holds with the kernel only")
def test_propagation_takes_less_than_three_times_as_long_as_encoding(scene):
    config = propagate_config("fast")
    network = partial(bare, scene.encoder, prepared_frames(scene, config))
    measured = in_turns({"whole": partial(whole, scene, config)}, network, 3)
    assert measured["ratios"]["whole"] < 3


def test_labels_equal_those_of_float64_matching(scene):
    few = Scene(scene.encoder, scene.frames[:6], scene.masks)
    assert measure_agreement(few)["same_pixels_worst_frame"] > 0.9999


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_peak_memory_of_a_command_is_its_own():
    here = np.ones(300 << 17)  # 300 MiB of this process
    takes_100_mib = "held = bytearray(b'1') * (100 << 20); import time; time.sleep(0.3)"
    assert 100 < peak_rss_mib([sys.executable, "-c", takes_100_mib]) < 200
    assert here.nbytes == 300 << 20
