"""An encoder's features are looked at before labels follow them."""

import numpy as np
import pytest
import torch

from timecycle.errors import WeightsError
from timecycle.grid import grid_over
from timecycle.labels import Masks
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.flow import correspond
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.state import Propagation


class Strange:
    """Encodes 16x16 pixels as one cell, as it is told to."""

    name, sha256, form = "strange", "0" * 64, "test"

    def __init__(self, cells: torch.Tensor) -> None:
        self.cells = cells

    def encode(self, image):
        grid = grid_over(*image.shape[:2], cells=(2, 3), stride_px=16, first_px=0)
        return FeatureMap(self.cells, grid)


IMAGE = np.zeros((32, 48, 3), np.uint8)
SOUND = torch.nn.functional.normalize(torch.ones(2, 3, 4), dim=-1)


def with_value(value):
    cells = SOUND.clone()
    cells[1, 2, 3] = value
    return cells


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_features_that_are_no_numbers_are_refused(value):
    encoder = Strange(with_value(value))
    with pytest.raises(WeightsError, match="the encoder strange gave features that are no numbers"):
        Propagation(encoder).step(IMAGE, Masks(np.ones((32, 48), np.uint16)))
    with pytest.raises(WeightsError, match="no numbers"):
        correspond(IMAGE, IMAGE, encoder=encoder, config=PropagateConfig())


@pytest.mark.parametrize("shape", [(3, 3, 4), (2, 4, 4), (2, 3, 0)], ids=str)
def test_features_that_do_not_fit_their_grid_are_refused(shape):
    encoder = Strange(torch.zeros(shape))
    with pytest.raises(WeightsError, match="for a grid of 2 rows and 3 columns"):
        Propagation(encoder).step(IMAGE, Masks(np.ones((32, 48), np.uint16)))


def test_sound_features_are_taken():
    labels = Propagation(Strange(SOUND)).step(IMAGE, Masks(np.ones((32, 48), np.uint16)))
    assert labels.ids.all()
