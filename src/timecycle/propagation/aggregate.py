"""Aggregate the labels of matched reference cells into the label map of a new frame.

A reference takes part only for the channels that are known on it.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.labels.label_map import LabelMap, LabelValues, from_blocks
from timecycle.labels.space import Space, normalise, sharpen
from timecycle.matching.neighbours import Packing, Reference, aggregate_labels, neighbours, neighbours_of_groups
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.memory import MemoryFrame
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.target import TargetModel, with_prior

Votes = Float[Tensor, "queries labels"]
KnownChannels = Bool[Tensor, "references channels"]


def aggregate(
    features: FeatureMap,
    memory: Sequence[MemoryFrame],
    *,
    space: Space,
    config: PropagateConfig,
    packing: Packing,
    target: TargetModel | None = None,
) -> LabelMap:
    """Match a frame with the memory and aggregate the labels; `packing` is that of its features."""
    rows, columns, _ = features.cells.shape
    subcells = config.subcells_of(space)
    grid = features.grid.subdivided(subcells)
    if not memory:
        values = features.cells.new_zeros(grid.y.cells, grid.x.cells, space.channels)
        return LabelMap(values, torch.zeros(space.channels, dtype=torch.bool), grid, subcells)
    known = torch.stack([frame.labels.known for frame in memory])
    all_equal = bool((known == known[0]).all())
    if all_equal:
        votes = _votes_of_all(features, memory, config, space, packing)
    elif config.weighting == "joint":
        votes = _votes_of_groups(features, memory, config, known, packing)
    else:
        votes = _votes_per_reference(features, memory, config, known)
    values = from_blocks(votes, rows=rows, columns=columns, subcells=subcells)
    if config.stretch and space.stretchable:
        values = _stretch(values)
    elif space.exclusive and not all_equal:
        values = normalise(values)
    if target is not None:
        prior = target.posterior(features)
        values = with_prior(values, prior, weight=config.target_weight, subcells=subcells)
    if space.exclusive:
        values = sharpen(values, config.sharpening)
    return LabelMap(values, known.any(dim=0), grid, subcells)


def _votes_of_all(
    features: FeatureMap, memory: Sequence[MemoryFrame], config: PropagateConfig, space: Space, packing: Packing
) -> Votes:
    """Aggregate all channels at once: every reference knows the same channels."""
    matches = neighbours(
        features.cells,
        _references(features, memory, config),
        k=config.neighbours,
        temperature=config.temperature,
        weighting=config.weighting,
        packing=packing,
    )
    votes = aggregate_labels(matches, _labels(memory))
    # The 2019 release stretched the bare sums; everything else needs labels to stay a distribution.
    return votes if config.stretch and space.stretchable else votes / matches.weight.sum(dim=1, keepdim=True)


def _votes_of_groups(
    features: FeatureMap,
    memory: Sequence[MemoryFrame],
    config: PropagateConfig,
    known: KnownChannels,
    packing: Packing,
) -> Votes:
    """Aggregate each group of channels from the top k of those references on which the group is known.

    A reference from before an object's first annotation neither votes on that object nor counts among its top k.
    """
    groups, group_of_channel = torch.unique(known, dim=1, return_inverse=True)
    known_groups = groups.any(dim=0).nonzero().squeeze(1)
    matches_by_group = neighbours_of_groups(
        features.cells,
        _references(features, memory, config),
        groups[:, known_groups],
        k=config.neighbours,
        temperature=config.temperature,
        packing=packing,
    )
    labels = [blocks.reshape(len(blocks), -1, known.shape[1]) for blocks in _labels(memory)]
    votes = torch.zeros_like(labels[0])
    for group, matches in zip(known_groups.tolist(), matches_by_group, strict=True):
        channels = (group_of_channel == group).nonzero().squeeze(1).to(votes.device)
        own = aggregate_labels(matches, [label[..., channels].flatten(1) for label in labels])
        votes[..., channels] = own.reshape(len(own), -1, len(channels))
    return votes.flatten(1)


def _votes_per_reference(
    features: FeatureMap, memory: Sequence[MemoryFrame], config: PropagateConfig, known: KnownChannels
) -> Votes:
    """Aggregate each channel from the references that know it, whose top k are their own."""
    matches = neighbours(
        features.cells,
        _references(features, memory, config),
        k=config.neighbours,
        temperature=config.temperature,
        weighting="per_reference",
    )
    counted = known.float().to(features.cells.device)
    weight = aggregate_labels(matches, [channels.expand(features.grid.cells, -1) for channels in counted])
    votes = aggregate_labels(matches, _labels(memory)).reshape(len(weight), -1, known.shape[1])
    return torch.where(weight[:, None] > 0, votes / weight[:, None].clamp_min(1e-12), 0).flatten(1)


def _references(features: FeatureMap, memory: Sequence[MemoryFrame], config: PropagateConfig) -> list[Reference]:
    missing = max(config.past_frames + 1 - len(memory), 0) if config.repeat_first else 0
    return [
        Reference(
            frame.features.cells,
            config.window(features.grid, annotated=frame.is_annotated),
            copies=1 + (missing if i == 0 else 0),
            packing=frame.packing,
        )
        for i, frame in enumerate(memory)
    ]


def _labels(memory: Sequence[MemoryFrame]) -> list[Votes]:
    return [frame.label_blocks for frame in memory]


def _stretch(values: LabelValues) -> LabelValues:
    low, high = values.amin(dim=(0, 1)), values.amax(dim=(0, 1))
    return torch.where(high > low, (values - low) / (high - low).clamp_min(1e-12), 0)
