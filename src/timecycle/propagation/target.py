"""The target model: a small classifier of one video, learned from its annotated frames while it is propagated.

Softmax regression from descriptors to the channels of a label map. It is fitted to the annotated frames, which count
for most, and to the clear cells of recent frames, and fitted again as frames come. Its posterior is a prior for
the aggregated labels: an object that drifts onto what looks like the background is pulled back. Where it disagrees
with the votes about an object it cannot tell the object apart, and counts less.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.device import reads_at_once
from timecycle.labels.label_map import LabelValues
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.memory import Memory, MemoryFrame

Posterior = Float[Tensor, "cell_rows cell_columns channels"]

_L2 = 0.001
_ITERATIONS = 12
_ITERATIONS_AGAIN = 4  # from the last weights
_ANNOTATED = 0.75  # share of the annotated frames in what it is fitted to
_FRAMES = 4  # propagated frames it is fitted to, besides annotated ones
_CLEAR = 0.8  # share of the strongest label in a cell of a propagated frame that is learned from
_FADED = 0.3  # of its annotated size: an object that is smaller counts less, what is left of it may be wrong
_SEEN = 0.5  # cells that a channel needs in order to be learned
_SMALLEST = 1e-6


@dataclass(frozen=True, eq=False)
class TargetModel:
    """The weights of a softmax regression, the last row being the bias, and the channels it decides."""

    weights: Float[Tensor, "dimensions channels"]
    seen: Bool[Tensor, " channels"]

    def posterior(self, features: FeatureMap) -> Posterior:
        """Return the probability of every seen channel in every cell, each being as frequent as any other."""
        with _one_thread():
            logits = (_inputs(features) @ self.weights).masked_fill(~self.seen, -torch.inf)
            return logits.softmax(dim=1).reshape(*features.cells.shape[:2], -1)

    def with_channels(self, extra: int) -> "TargetModel":
        """Return the model with `extra` channels that it has not seen."""
        weights = torch.cat([self.weights, self.weights.new_zeros(len(self.weights), extra)], dim=1)
        return TargetModel(weights, torch.cat([self.seen, self.seen.new_zeros(extra)]))


def fit_target(memory: Memory, start: TargetModel | None = None) -> TargetModel:
    """Fit the model to a memory with annotated frames; `start` is the last one."""
    samples = [_samples(frame) for frame in _frames(memory)]
    shown = _shown(memory.anchors)
    with _one_thread():
        return _fit(samples, shown, start)


def with_prior(values: LabelValues, posterior: Posterior, *, weight: float, subcells: int = 1) -> LabelValues:
    """Multiply a distribution by the posterior to the power of at most `weight`.

    The power is that share of `weight` by which the two agree about the channels of a cell: 0 where they agree no more
    than by chance. Channels that the model has not seen keep their share.
    """
    prior = posterior.repeat_interleave(subcells, 0).repeat_interleave(subcells, 1)
    seen = posterior.sum(dim=(0, 1)) > 0
    chance = 1 / seen.sum().clamp_min(1)
    with _one_thread():
        agreement = (values * prior).sum(dim=(0, 1)) / values.sum(dim=(0, 1)).clamp_min(_SMALLEST)
    trust = ((agreement - chance) / (1 - chance).clamp_min(_SMALLEST)).clamp_min(0)
    power = weight * (values * trust).sum(dim=-1, keepdim=True)
    own = values * seen
    product = own * (power * prior.clamp_min(_SMALLEST).log()).exp()
    total, kept = product.sum(dim=-1, keepdim=True), own.sum(dim=-1, keepdim=True)
    return torch.where(seen, product * (kept / total.clamp_min(_SMALLEST)), values)


@dataclass(frozen=True, eq=False)
class _Samples:
    """The cells of one frame, and which of them are learned from."""

    inputs: Float[Tensor, "cells dimensions"]
    labels: Float[Tensor, "cells channels"]  # 0 where a cell is not learned from
    known: Bool[Tensor, " channels"]
    annotated: bool


def _frames(memory: Memory) -> Iterator[MemoryFrame]:
    """Yield the annotated frames and some of the others, evenly spaced, the newest first."""
    yield from memory.anchors
    others = [frame for frame in memory if not frame.is_annotated]
    count = min(len(others), _FRAMES)
    for i in range(count):
        yield others[i * len(others) // count]


def _shown(anchors: Sequence[MemoryFrame]) -> Bool[Tensor, " channels"]:
    """Return which channels the last annotated frame that decides them shows.

    An object that was annotated as absent must not come back because an earlier frame shows it.
    """
    device = anchors[0].features.cells.device
    shown = torch.zeros_like(anchors[0].labels.known, device=device)
    for frame in anchors:
        if frame.annotated is not None:
            decided = frame.annotated.to(device)
            shown = torch.where(decided, frame.labels.of_cells().sum(dim=(0, 1)) >= _SEEN, shown)
    return shown


def _samples(frame: MemoryFrame) -> _Samples:
    labels = frame.labels.of_cells().flatten(0, 1)
    inputs = _inputs(frame.features)
    if not frame.is_annotated:
        share, channel = labels.max(dim=1)
        learned = (share > _CLEAR) & ((channel > 0) | _every_second(labels))  # background is plentiful
        if reads_at_once(labels.device):
            labels, inputs = labels[learned], inputs[learned]
        else:  # leaving cells out would wait for the device
            labels = labels * learned[:, None]
    return _Samples(inputs, labels, frame.labels.known, frame.is_annotated)


def _every_second(cells: Float[Tensor, "cells _"]) -> Bool[Tensor, " cells"]:
    return torch.arange(len(cells), device=cells.device) % 2 == 0


def _inputs(features: FeatureMap) -> Float[Tensor, "cells dimensions"]:
    """Return the descriptors, scaled so that one dimension has a variance of about one, and a constant."""
    cells = features.cells.flatten(0, 1)
    return torch.cat([cells * cells.shape[1] ** 0.5, cells.new_ones(len(cells), 1)], dim=1)


def _fit(samples: Sequence[_Samples], shown: Bool[Tensor, " channels"], start: TargetModel | None) -> TargetModel:
    """Minimise the balanced cross-entropy by steps with a fixed bound of its curvature (Böhning 1992)."""
    inputs = torch.cat([one.inputs for one in samples])
    labels = torch.cat([one.labels for one in samples])
    annotated, others = ([one for one in samples if one.annotated == kind] for kind in (True, False))
    size = torch.stack([one.labels.sum(dim=0) for one in annotated]).amax(dim=0)
    share = _balanced(annotated, _ANNOTATED, torch.full_like(size, _SEEN))
    if others:
        least = (_FADED * len(others) * size).clamp_min(_SEEN)
        share = torch.cat([share, _balanced(others, 1 - _ANNOTATED, least)])
    ridge = torch.full((inputs.shape[1],), _L2, device=inputs.device)
    ridge[-1] = 0  # not of the constant
    seen = (labels.sum(dim=0) >= _SEEN) & shown
    weighted = (inputs * share[:, None]).T
    factor = torch.linalg.cholesky(0.5 * (weighted @ inputs) + torch.diag(ridge + _SMALLEST))
    observed = weighted @ labels
    unknown = None
    if not all(bool(one.known.all()) for one in samples):
        unknown = torch.cat([~one.known.expand(len(one.labels), -1) for one in samples]).to(inputs.device)
    if start is None:
        weights, iterations = inputs.new_zeros(inputs.shape[1], labels.shape[1]), _ITERATIONS
    else:
        weights, iterations = start.weights, _ITERATIONS_AGAIN
    for _ in range(iterations):
        logits = inputs @ weights
        if unknown is not None:
            logits.masked_fill_(unknown, -torch.inf)
        slope = weighted @ logits.softmax(dim=1) - observed + ridge[:, None] * weights
        weights = weights - torch.cholesky_solve(slope, factor)
    return TargetModel(weights, seen)


def _balanced(samples: Sequence[_Samples], total: float, least: Float[Tensor, " channels"]) -> Float[Tensor, " cells"]:
    """Return weights of cells that give every channel that occurs the same share of `total`.

    A channel with less than its `least` number of cells gets that much less.
    """
    labels = torch.cat([one.labels for one in samples])
    mass = labels.sum(dim=0)
    occurs = mass >= _SEEN
    per_channel = torch.where(occurs, total / (occurs.sum().clamp_min(1) * mass.clamp_min(least)), 0)
    return labels @ per_channel


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread: sums then have one order, whatever the number of threads is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
