"""A CUDA device computes what the CPU computes: features, matches, labels and gradients.

These tests run where there is such a device, are skipped elsewhere, and fail where TIMECYCLE_TEST_DEVICE=cuda promised
one. The comparisons themselves are tested everywhere: they hold between two ways to compute the same on the CPU, and
fail where something is wrong.
"""

import dataclasses

import pytest
import torch

import parity
from parity import features_agree, labels_agree, matches_agree, steps_agree
from timecycle.confidence.fusion import ConfidenceConfig
from timecycle.kernel.library import find_kernel
from timecycle.labels import Masks
from timecycle.matching import neighbours, tiles
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.video import propagate
from timecycle.synthetic import make_world
from timecycle.video import open_video

CPU = torch.device("cpu")
SIZE = {"image_size_px": parity.WORLD.height_px}
SETTINGS = [
    pytest.param(PropagateConfig(**SIZE), id="default"),
    pytest.param(PropagateConfig(**SIZE, target_weight=0, sharpening=1), id="plain"),
    pytest.param(PropagateConfig(**SIZE, subcells=2, window_px=None, anchor_window_px=None), id="subcells"),
    pytest.param(PropagateConfig(**SIZE, weighting="per_reference"), id="per_reference"),
]
STEPS = [
    pytest.param((), id="walks"),
    pytest.param(
        (
            "walks.negatives=1",
            "walks.motion=0.5",
            "walks.contrast=0.5",
            "copy_paste.most=2",
            "walks.pasted=0.5",
            "walks.segments=0.5",
        ),
        id="walks and objects",
    ),
    pytest.param(("objective=cycles", "patches.patch_px=24"), id="cycles"),
]
FEATURES, SCORES, TIE = 1e-4, 1e-5, 1e-2
STEP = {"loss": 1e-3, "gradient": 2e-2}


@pytest.fixture(scope="module")
def features():
    return [one.cells for one in parity.encoded(parity.bundled_encoder("cpu"))]


# On the device


def test_features_are_those_of_the_cpu(cuda):
    actual = parity.encoded(parity.bundled_encoder("cuda"))
    assert {one.cells.device.type for one in actual} == {"cuda"}
    features_agree(parity.encoded(parity.bundled_encoder("cpu")), actual, tolerance=FEATURES)


def test_features_in_tf32_are_nearly_those_of_the_cpu():
    parity.require_cuda()
    expected, actual = (parity.encoded(parity.bundled_encoder(name)) for name in ("cpu", "cuda"))
    cosines = [(one.cells * other.cells.cpu()).sum(dim=-1).mean() for one, other in zip(expected, actual, strict=True)]
    assert min(cosines) > 0.999


def test_matches_are_those_of_the_cpu(cuda, features):
    actual = parity.searched_in_tiles(features, cuda)
    assert actual.index.device.type == "cuda"
    matches_agree(parity.searched_in_tiles(features, CPU), actual, tolerance=SCORES)
    matches_agree(parity.searched(features), actual, tolerance=SCORES)


@pytest.mark.parametrize("config", SETTINGS)
def test_labels_are_those_of_the_cpu(cuda, config):
    expected, actual = (parity.propagated(parity.bundled_encoder(name), config) for name in ("cpu", "cuda"))
    labels_agree(expected, actual, tie=TIE)


def test_confidence_is_that_of_the_cpu(cuda):
    world = make_world(parity.WORLD)
    frames, masks = open_video(world.video(), fps=24), {0: Masks(world.mask(0))}
    values = []
    for name in ("cpu", "cuda"):
        encoder = parity.bundled_encoder(name)
        run = propagate(frames, masks, encoder=encoder, config=PropagateConfig(**SIZE), confidence=ConfidenceConfig())
        values.append([[one.value for one in frame.confidence.objects.values()] for frame in run])
    assert values[1] == [pytest.approx(objects, abs=0.02) for objects in values[0]]


@pytest.mark.parametrize("settings", STEPS)
def test_a_training_step_is_that_of_the_cpu(cuda, settings):
    steps_agree(parity.trained(CPU, *settings), parity.trained(cuda, *settings), **STEP)


def test_equal_seeds_drop_equal_transitions(cuda):
    first, second = (parity.trained(cuda, "walks.dropout=0.3") for _ in range(2))
    steps_agree(first, second, loss=1e-5, gradient=1e-3)
    assert first.losses["total"] != pytest.approx(parity.trained(cuda).losses["total"], rel=1e-3)


# The promise of a device


def test_a_missing_device_is_skipped_unless_it_was_promised(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv(parity.PROMISE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="torch finds no CUDA device"):
        parity.require_cuda()
    monkeypatch.setenv(parity.PROMISE, "cuda")
    with pytest.raises(pytest.fail.Exception, match="promises a CUDA device, and torch finds none"):
        parity.require_cuda()


def test_a_promise_of_something_else_is_refused(monkeypatch):
    monkeypatch.setenv(parity.PROMISE, "gpu")
    with pytest.raises(pytest.fail.Exception, match="is 'gpu': set it to cuda"):
        parity.require_cuda()


# The comparisons


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_features_of_other_convolutions_agree_and_wrong_ones_do_not(features):
    with parity.other_convolutions():
        actual = parity.encoded(parity.bundled_encoder("cpu"))
    expected = [dataclasses.replace(one, cells=cells) for one, cells in zip(actual, features, strict=True)]
    assert any(not torch.equal(one.cells, other.cells) for one, other in zip(expected, actual, strict=True))
    features_agree(expected, actual, tolerance=FEATURES)
    wrong = actual[1].cells.clone()
    wrong[2, 3, 5] += 1e-3
    with pytest.raises(AssertionError, match="not close"):
        features_agree(expected, [actual[0], FeatureMap(wrong, actual[1].grid), actual[2]], tolerance=FEATURES)


@pytest.mark.parametrize("path", ["kernel", "large tiles"])
def test_matches_of_another_search_agree_and_wrong_ones_do_not(features, monkeypatch, path):
    expected = parity.searched_in_tiles(features, CPU)
    if path == "kernel":
        if find_kernel().functions is None:
            pytest.skip(find_kernel().reason)
        actual = parity.searched(features)
    else:
        monkeypatch.setattr(tiles, "reads_at_once", lambda _: False)  # as on an accelerator
        actual = parity.searched_in_tiles(features, CPU)
    matches_agree(expected, actual, tolerance=SCORES)
    with pytest.raises(AssertionError, match="not close"):
        matches_agree(expected, dataclasses.replace(actual, score=actual.score + 1e-3), tolerance=SCORES)
    with pytest.raises(AssertionError):
        matches_agree(expected, dataclasses.replace(actual, index=actual.index.roll(1, dims=1)), tolerance=SCORES)


def test_matches_of_equal_scores_are_not_compared():
    expected = tiles.TopK(torch.tensor([[0.9, 0.7, 0.5, 0.5]]), torch.tensor([[4, 7, 1, 2]]), torch.zeros(1, 4).long())
    swapped = dataclasses.replace(expected, index=torch.tensor([[4, 7, 2, 1]]))
    with pytest.raises(AssertionError, match="nearly everything is tied"):
        matches_agree(expected, swapped, tolerance=0.3)
    expected = dataclasses.replace(expected, score=torch.tensor([[0.9, 0.7, 0.6, 0.5]]))
    matches_agree(expected, dataclasses.replace(expected, index=torch.tensor([[4, 7, 1, 3]])), tolerance=SCORES)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("config", SETTINGS)
def test_labels_of_another_path_agree_and_wrong_ones_do_not(monkeypatch, config):
    encoder = parity.bundled_encoder("cpu")
    expected = parity.propagated(encoder, config)
    monkeypatch.setattr(neighbours, "kernel_for", lambda *_: None)
    with parity.other_convolutions():
        actual = parity.propagated(encoder, config)
    assert not torch.equal(expected[-1].values, actual[-1].values)
    labels_agree(expected, actual, tie=TIE)
    values = actual[-1].values.clone()
    values[3, 4] = values[3, 4].flip(0)  # another object, as clearly
    with pytest.raises(AssertionError):
        labels_agree(expected, [*actual[:-1], dataclasses.replace(actual[-1], values=values)], tie=TIE)


def test_tied_cells_are_not_compared():
    (expected,) = parity.propagated(parity.bundled_encoder("cpu"), PropagateConfig(**SIZE))[-1:]
    values = expected.values.clone()
    values[3, 4] = torch.tensor([0.5, 0.495, *[0.0] * (values.shape[2] - 2)])
    tied = dataclasses.replace(expected, values=values)
    swapped = values.clone()
    swapped[3, 4, :2] = values[3, 4, :2].flip(0)
    labels_agree([tied], [dataclasses.replace(expected, values=swapped)], tie=TIE)
    with pytest.raises(AssertionError):
        labels_agree([tied], [dataclasses.replace(expected, values=swapped)], tie=1e-3)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("settings", STEPS)
def test_a_step_with_other_convolutions_agrees_and_a_wrong_one_does_not(settings):
    expected = parity.trained(CPU, *settings)
    with parity.other_convolutions():
        actual = parity.trained(CPU, *settings)
    assert any(not torch.equal(one, actual.gradients[name]) for name, one in expected.gradients.items())
    steps_agree(expected, actual, **STEP)
    name = "encoder.layer1.0.conv1.weight"
    scaled = {**actual.gradients, name: 1.05 * actual.gradients[name]}
    with pytest.raises(AssertionError, match=f"the gradient of {name} differs"):
        steps_agree(expected, dataclasses.replace(actual, gradients=scaled), **STEP)
    losses = {**actual.losses, "total": 1.01 * actual.losses["total"]}
    with pytest.raises(AssertionError):
        steps_agree(expected, dataclasses.replace(actual, losses=losses), **STEP)
    with pytest.raises(AssertionError):
        steps_agree(expected, parity.trained(CPU, *settings, "seed=1"), **STEP)  # other views of the clips
