"""Capacity estimates for large corpora from measured constants."""

import dataclasses
import json

import numpy as np
import pytest

from capacity import NEEDED, Assumptions, best_interval, capacity
from record import RESULTS


@pytest.fixture(scope="module")
def records():
    return {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in NEEDED}


def test_twice_the_video_costs_twice_as_much(records):
    one = capacity(records, Assumptions())
    two = capacity(records, dataclasses.replace(Assumptions(), hours=2e6, clips=2e8))
    for few, many in zip((*one.training, *one.labelling), (*two.training, *two.labelling), strict=True):
        assert few.what == many.what
        if few.dollars is not None:
            assert few.dollars > 0
            assert many.dollars == pytest.approx(2 * few.dollars)


def test_prices_are_parameters(records):
    one, dear = (capacity(records, Assumptions(core_hour=price)) for price in (0.04, 0.4))
    assert dear.training[0].dollars == pytest.approx(10 * one.training[0].dollars)
    assert dear.training[0].amount == one.training[0].amount


def test_best_checkpoint_interval_minimises_lost_time():
    """Compare with a search: saving takes `save` of every interval, and a failure loses half of one on average."""
    save, between = 0.4, 3600.0
    tried = np.linspace(5, 300, 3000)
    lost = save / tried + tried / 2 / between
    assert best_interval(save, between) == pytest.approx(tried[lost.argmin()], rel=0.01)
