"""What is computed on one device or path and compared with another: features, matches, label maps, a training step.

Each result is compared by a function that raises AssertionError; where results may differ, because candidates are tied
to within rounding, it compares what is not tied.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from timecycle.config import train_config
from timecycle.device import Device
from timecycle.kernel.search import TopK
from timecycle.labels import Masks
from timecycle.labels.label_map import LabelMap
from timecycle.matching.neighbours import Packing, Reference, _search
from timecycle.matching.tiles import WindowedFeatures, search_tiles
from timecycle.matching.window import Window
from timecycle.model.encoder import Encoder, FeatureMap
from timecycle.model.inference import ResNetEncoder
from timecycle.model.registry import load_encoder
from timecycle.model.resnet import random_resnet
from timecycle.propagation.propagator import Propagator
from timecycle.propagation.settings import PropagateConfig
from timecycle.speed.tasks import make_batches
from timecycle.synthetic import WorldConfig, make_world
from timecycle.training.step import State

WORLD = WorldConfig(height_px=96, width_px=128, frames=8)
PROMISE = "TIMECYCLE_TEST_DEVICE"
SMALL = ("batch=2", "view_px=64", "clips.frames=3", "clips.short_side_px=72", "clips.crop_px=72", "precision=fp32")


def require_cuda() -> torch.device:
    """Return the CUDA device; without one skip the test, or fail it where a device was promised."""
    promised = os.environ.get(PROMISE, "")
    if promised not in ("", "cuda"):
        pytest.fail(f"{PROMISE} is {promised!r}: set it to cuda, or to nothing")
    if not torch.cuda.is_available():
        if promised:
            pytest.fail(f"{PROMISE} promises a CUDA device, and torch finds none")
        pytest.skip(f"torch finds no CUDA device; with {PROMISE}=cuda this would be a failure")
    return torch.device("cuda")


def other_convolutions() -> AbstractContextManager[None]:
    """Compute convolutions of the CPU by another library: the same numbers, rounded differently."""
    other: AbstractContextManager[None] = torch.backends.mkldnn.flags(enabled=False)
    return other


# What is computed


def bundled_encoder(device: Device) -> ResNetEncoder:
    encoder = load_encoder(device=device)
    assert isinstance(encoder, ResNetEncoder)
    return encoder


def encoded(encoder: Encoder, frames: Sequence[int] = (0, 3, 6)) -> list[FeatureMap]:
    world = make_world(WORLD)
    return [encoder.encode(world.frame(t)) for t in frames]


def searched_in_tiles(features: Sequence[Tensor], device: torch.device, k: int = 10) -> TopK:
    """Search the first of some feature maps in the others, in torch."""
    query, *keys = (one.to(device) for one in features)
    return search_tiles(query, [WindowedFeatures(key, window) for key, window in zip(keys, _WINDOWS, strict=True)], k)


def searched(features: Sequence[Tensor], k: int = 10) -> TopK:
    """Search as propagation does: in the compiled kernel, where there is one."""
    query, *keys = features
    return _search(query, [Reference(key, window) for key, window in zip(keys, _WINDOWS, strict=True)], k, Packing())


_WINDOWS = (Window(4.0, "disc"), None)


def propagated(encoder: Encoder, config: PropagateConfig) -> list[LabelMap]:
    """Propagate the masks of the first frame through the clip."""
    world = make_world(WORLD)
    masks = Masks(world.mask(0))
    propagator = Propagator(encoder, config, Masks.space([masks]))
    return [propagator.advance(t, image, masks if t == 0 else None) for t, image in enumerate(world.frames())]


@dataclass(frozen=True)
class TrainingStep:
    """The losses of one step, and the gradient of every parameter."""

    losses: Mapping[str, float]
    gradients: Mapping[str, Tensor]


def trained(device: torch.device, *overrides: str) -> TrainingStep:
    """Make one step of random walks, by default without dropout: each kind of device draws other random numbers."""
    config = train_config("small", (*SMALL, "walks.dropout=0", *overrides))
    state = State.fresh(random_resnet(config.encoder, seed=1), config, device)
    outcome = state.advance(state.learner, make_batches(config, device))
    losses = {"total": outcome.total, **outcome.losses}
    return TrainingStep(
        {name: float(value) for name, value in losses.items()},
        {name: p.grad.cpu() for name, p in state.learner.named_parameters() if p.grad is not None},
    )


# Whether it agrees


def features_agree(expected: Sequence[FeatureMap], actual: Sequence[FeatureMap], *, tolerance: float) -> None:
    for one, other in zip(expected, actual, strict=True):
        assert one.grid == other.grid
        torch.testing.assert_close(other.cells.cpu(), one.cells.cpu(), rtol=0, atol=tolerance)


def matches_agree(expected: TopK, actual: TopK, *, tolerance: float) -> None:
    """Scores agree, and the keys whose score no other key of the query has."""
    torch.testing.assert_close(actual.score.cpu(), expected.score.cpu(), rtol=0, atol=tolerance)
    score = expected.score.cpu()
    gap = (score[:, :-1] - score[:, 1:]) > 2 * tolerance
    clear = torch.ones_like(score, dtype=torch.bool)
    clear[:, 1:] &= gap
    clear[:, :-1] &= gap
    clear[:, -1] = False  # the first key that was dropped is not known
    assert clear.float().mean() > 0.5, "nearly everything is tied: nothing is compared"
    assert torch.equal(actual.index.cpu()[clear], expected.index.cpu()[clear])


def labels_agree(expected: Sequence[LabelMap], actual: Sequence[LabelMap], *, tie: float) -> None:
    """The strongest channel is the same in every cell where it leads by more than `tie`."""
    for one, other in zip(expected, actual, strict=True):
        assert torch.equal(one.known, other.known)
        best = one.values.topk(2, dim=-1)
        clear = best.values[..., 0] - best.values[..., 1] > tie
        assert clear.float().mean() > 0.9, "nearly everything is tied: nothing is compared"
        assert torch.equal(other.values.argmax(dim=-1)[clear], best.indices[..., 0][clear])


def steps_agree(expected: TrainingStep, actual: TrainingStep, *, loss: float, gradient: float) -> None:
    """Losses agree to a relative `loss`, and the gradient of each parameter to a relative `gradient` of its norm."""
    assert actual.losses == pytest.approx(expected.losses, rel=loss)
    assert actual.gradients.keys() == expected.gradients.keys()
    for name, one in expected.gradients.items():
        error = float((actual.gradients[name] - one).norm() / one.norm().clamp_min(1e-12))
        assert error <= gradient, f"the gradient of {name} differs by {error:.2g} of its norm"
