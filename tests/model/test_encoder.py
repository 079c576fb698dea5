"""Features of an encoder are validated before labels are propagated with them."""

import numpy as np
import pytest
import torch

from timecycle.errors import WeightsError
from timecycle.grid import grid_over
from timecycle.labels import Masks
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.flow import correspond
from timecycle.propagation.propagator import Propagator
from timecycle.propagation.settings import PropagateConfig


class FixedEncoder:
    """Returns the same features for every image, with a cell for every 16x16 pixels."""

    name, sha256, description = "fixed", "0" * 64, "test"

    def __init__(self, cells: torch.Tensor) -> None:
        self.cells = cells

    def encode(self, image):
        grid = grid_over(*image.shape[:2], cells=(2, 3), stride_px=16, first_px=0)
        return FeatureMap(self.cells, grid)


IMAGE = np.zeros((32, 48, 3), np.uint8)
VALID = torch.nn.functional.normalize(torch.ones(2, 3, 4), dim=-1)


def with_value(value):
    cells = VALID.clone()
    cells[1, 2, 3] = value
    return cells


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_features_that_are_not_finite_are_refused(value):
    encoder = FixedEncoder(with_value(value))
    with pytest.raises(WeightsError, match="the encoder fixed returned features that are not finite"):
        Propagator(encoder).step(IMAGE, Masks(np.ones((32, 48), np.uint16)))
    with pytest.raises(WeightsError, match="not finite"):
        correspond(IMAGE, IMAGE, encoder=encoder, config=PropagateConfig())


@pytest.mark.parametrize("shape", [(3, 3, 4), (2, 4, 4), (2, 3, 0)], ids=str)
def test_features_that_do_not_fit_their_grid_are_refused(shape):
    encoder = FixedEncoder(torch.zeros(shape))
    with pytest.raises(WeightsError, match="for a grid of 2 rows and 3 columns"):
        Propagator(encoder).step(IMAGE, Masks(np.ones((32, 48), np.uint16)))


def test_valid_features_are_accepted():
    labels = Propagator(FixedEncoder(VALID)).step(IMAGE, Masks(np.ones((32, 48), np.uint16)))
    assert labels.ids.all()
