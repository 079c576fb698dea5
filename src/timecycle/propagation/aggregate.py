"""Aggregate the labels of matched reference cells into the label map of a new frame.

A reference takes part only for the channels that are known on it.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.labels.label_map import LabelMap
from timecycle.labels.space import Space, normalise
from timecycle.matching.neighbours import Packing, Reference, aggregate_labels, neighbours, neighbours_of_groups
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.memory import MemoryFrame
from timecycle.propagation.settings import PropagateConfig

Votes = Float[Tensor, "queries channels"]
KnownChannels = Bool[Tensor, "references channels"]


def aggregate(
    features: FeatureMap, memory: Sequence[MemoryFrame], *, space: Space, config: PropagateConfig, packing: Packing
) -> LabelMap:
    """Match a frame with the memory and aggregate the labels; `packing` is that of its features."""
    rows, columns, _ = features.cells.shape
    if not memory:
        values = features.cells.new_zeros(rows, columns, space.channels)
        return LabelMap(values, torch.zeros(space.channels, dtype=torch.bool, device=values.device), features.grid)
    known = torch.stack([frame.labels.known for frame in memory])
    all_equal = bool((known == known[0]).all())
    if all_equal:
        votes = _votes_of_all(features, memory, config, space, packing)
    elif config.weighting == "joint":
        votes = _votes_of_groups(features, memory, config, known, packing)
    else:
        votes = _votes_per_reference(features, memory, config, known)
    if config.stretch and space.stretchable:
        votes = _stretch(votes)
    elif space.exclusive and not all_equal:
        votes = normalise(votes[None])[0]
    return LabelMap(votes.reshape(rows, columns, space.channels), known.any(dim=0), features.grid)


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
    labels = _labels(memory)
    votes = labels[0].new_zeros(features.grid.cells, known.shape[1])
    for group, matches in zip(known_groups.tolist(), matches_by_group, strict=True):
        channels = (group_of_channel == group).nonzero().squeeze(1)
        votes[:, channels] = aggregate_labels(matches, [label[:, channels] for label in labels])
    return votes


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
    weight = aggregate_labels(matches, [channels.float().expand(features.grid.cells, -1) for channels in known])
    return torch.where(weight > 0, aggregate_labels(matches, _labels(memory)) / weight.clamp_min(1e-12), 0)


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


def _labels(memory: Sequence[MemoryFrame]) -> list[Float[Tensor, "cells channels"]]:
    return [frame.labels.values.flatten(0, 1) for frame in memory]


def _stretch(votes: Votes) -> Votes:
    low, high = votes.amin(dim=0), votes.amax(dim=0)
    return torch.where(high > low, (votes - low) / (high - low).clamp_min(1e-12), 0)
