"""Propagation on a device that does not exist: no tensor is on another, and waiting happens only where it is named."""

import numpy as np
import pytest
import torch

from fake_device import OnDevice, fake_device
from timecycle.labels import Keypoints, Masks
from timecycle.matching import tiles
from timecycle.matching.tiles import WindowedFeatures, search_tiles
from timecycle.matching.window import Window
from timecycle.propagation.propagator import Propagator
from timecycle.propagation.settings import PropagateConfig

HEIGHT, WIDTH = 64, 96
IMAGE = np.zeros((HEIGHT, WIDTH, 3), np.uint8)


def masks(ids=(1, 2)):
    values = np.zeros((HEIGHT, WIDTH), np.uint16)
    for i in ids:
        values[16:40, 20 * i : 20 * i + 16] = i
    return Masks.of(values)


def waits_of(labels, config, frames=7):
    with fake_device() as (device, waits):
        propagator = Propagator(OnDevice(device), config)
        for t in range(frames):
            propagator.step(IMAGE, labels.get(t))
        assert propagator.latest.labels.values.device.type == device.type
    return waits


@pytest.mark.parametrize(
    ("labels", "settings"),
    [
        ({0: masks()}, {}),
        ({0: masks((1,)), 3: masks((2,))}, {"target_interval": 2}),  # an object that comes later
        ({0: masks()}, {"subcells": 2, "target_weight": 0, "guided_filter": False}),
        ({0: masks()}, {"weighting": "per_reference", "target_weight": 0}),
        ({0: Keypoints(("nose",), np.array([[30.0, 20.0]], np.float32), np.array([True]))}, {}),
    ],
    ids=["default", "a later object", "subcells", "per_reference", "keypoints"],
)
def test_a_frame_runs_on_the_device(labels, settings):
    waits = waits_of(labels, PropagateConfig(**settings))
    assert waits["features"] == 7  # whether they are finite
    assert waits["labels"] == 7  # the label map is decoded in the memory of the host
    assert waits.keys() <= {"features", "labels", "ties"}


def test_ties_that_are_broken_in_the_end_give_the_same_matches(monkeypatch):
    """As on an accelerator, with real values."""
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randint(-1, 2, (9, 11, 4), generator=generator).float() for _ in range(2))
    references = [WindowedFeatures(key, Window(3.0, "disc")), WindowedFeatures(query, None)]
    at_once = search_tiles(query, references, 5)
    monkeypatch.setattr(tiles, "reads_at_once", lambda _: False)
    monkeypatch.setattr(tiles, "_TILE_ACCELERATOR", 4)
    in_the_end = search_tiles(query, references, 5)
    assert torch.equal(at_once.index, in_the_end.index)
    assert torch.equal(at_once.score, in_the_end.score)
