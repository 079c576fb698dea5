"""Encoders of the benchmarks: former weights by their names, and settings of descriptors that can be changed."""

import numpy as np
import pytest

from encoders import find_weights, load_named
from timecycle.model.registry import load_encoder

IMAGE = np.kron(np.random.default_rng(0).integers(0, 255, (40, 60, 3)), np.ones((4, 4, 1))).astype(np.uint8)
in_repository = pytest.mark.skipif(find_weights("timecycle-v1") is None, reason="the source archive lacks timecycle-v1")
FORMER = [pytest.param(name, marks=in_repository) for name in ("timecycle-v1", "random-timecycle-v1@1")]


@pytest.mark.parametrize("name", ["timecycle-v2", *FORMER, "random-resnet18"])
def test_changed_settings_reach_every_encoder_that_has_them(name):
    plain, changed = (load_named(name, changes).encode(IMAGE).cells for changes in ((), ("colour=0.7",)))
    assert plain.shape != changed.shape or not plain.equal(changed)
    assert load_named(name, ("colour=0.7",)).name == f"{name} colour=0.7"
    assert load_named(name, ("colour=0.7",), called="greyer").name == "greyer"


@in_repository
def test_former_weights_are_those_of_their_file():
    path = find_weights("timecycle-v1")
    assert path is not None
    named, from_file = load_named("timecycle-v1"), load_encoder(path)
    assert (named.name, named.sha256) == ("timecycle-v1", from_file.sha256)
    assert named.encode(IMAGE).cells.equal(from_file.encode(IMAGE).cells)


def test_random_weights_in_the_form_of_bundled_ones_are_those_of_the_package():
    named, known = load_named("random-timecycle-v2@1"), load_encoder("random-timecycle-v2@1")
    assert (named.name, named.sha256) == (known.name, known.sha256)
    assert load_named("random-timecycle-v2@2").sha256 != known.sha256


def test_an_encoder_without_such_settings_is_said_to_be_unchanged(capsys):
    assert load_named("rgb", ("colour=0.7",)).name == "rgb"
    assert "rgb has no descriptor settings; it is measured without colour=0.7" in capsys.readouterr().err
