"""What the remembered frames say about a new one: the nearest cells vote, each on what its frame knows."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.labels.soft import SoftMap
from timecycle.labels.space import Space, settle
from timecycle.model.encoder import FeatureMap
from timecycle.propagation.memory import Remembered
from timecycle.propagation.neighbours import Packing, Reference, neighbours, neighbours_of_groups, vote
from timecycle.propagation.settings import PropagateConfig

Votes = Float[Tensor, "queries channels"]


@dataclass(frozen=True, eq=False)
class Elected:
    """Soft labels, and the channels that any voter knows anything about."""

    soft: SoftMap
    knows: Bool[Tensor, " channels"]


def elect(
    features: FeatureMap, voters: Sequence[Remembered], *, space: Space, config: PropagateConfig, packing: Packing
) -> Elected:
    """The soft labels that the voters give the cells of a frame; `packing` is that of its features."""
    rows, columns, _ = features.cells.shape
    if not voters:
        nothing = features.cells.new_zeros(rows, columns, space.channels)
        return Elected(nothing, torch.zeros(space.channels, dtype=torch.bool, device=nothing.device))
    knows = torch.stack([frame.knows for frame in voters])
    agreed = bool((knows == knows[0]).all())
    if agreed:
        votes = _vote_together(features, voters, config, space, packing)
    elif config.weighting == "joint":
        votes = _vote_by_knowledge(features, voters, config, knows, packing)
    else:
        votes = _vote_per_reference_by_knowledge(features, voters, config, knows)
    if config.stretch and space.stretchable:
        votes = _stretched(votes)
    elif space.exclusive and not agreed:
        votes = settle(votes[None])[0]
    return Elected(votes.reshape(rows, columns, space.channels), knows.any(dim=0))


def _vote_together(
    features: FeatureMap, voters: Sequence[Remembered], config: PropagateConfig, space: Space, packing: Packing
) -> Votes:
    """All voters know the same: one vote on all channels."""
    found = neighbours(
        features.cells,
        _references(features, voters, config),
        k=config.neighbours,
        temperature=config.temperature,
        weighting=config.weighting,
        packing=packing,
    )
    votes = vote(found, _labels(voters))
    # The 2019 program stretched the bare sums; everything else needs labels to stay a distribution.
    return votes if config.stretch and space.stretchable else votes / found.weight.sum(dim=1, keepdim=True)


def _vote_by_knowledge(
    features: FeatureMap,
    voters: Sequence[Remembered],
    config: PropagateConfig,
    knows: Bool[Tensor, "voters channels"],
    packing: Packing,
) -> Votes:
    """Channels known by the same frames are voted on by the nearest cells of just those frames.

    A frame that knows nothing of an object, as it is from before its drawing, has no vote on it, and takes no place
    among the nearest.
    """
    groups, member = torch.unique(knows, dim=1, return_inverse=True)
    known = groups.any(dim=0).nonzero().squeeze(1)
    elected = neighbours_of_groups(
        features.cells,
        _references(features, voters, config),
        groups[:, known],
        k=config.neighbours,
        temperature=config.temperature,
        packing=packing,
    )
    labels = _labels(voters)
    votes = labels[0].new_zeros(features.grid.cells, knows.shape[1])
    for group, found in zip(known.tolist(), elected, strict=True):
        channels = (member == group).nonzero().squeeze(1)
        votes[:, channels] = vote(found, [label[:, channels] for label in labels])
    return votes


def _vote_per_reference_by_knowledge(
    features: FeatureMap,
    voters: Sequence[Remembered],
    config: PropagateConfig,
    knows: Bool[Tensor, "voters channels"],
) -> Votes:
    """Every reference has its own nearest cells, so those that do not know a channel are simply not counted for it."""
    found = neighbours(
        features.cells,
        _references(features, voters, config),
        k=config.neighbours,
        temperature=config.temperature,
        weighting="per_reference",
    )
    entitled = vote(found, [known.float().expand(features.grid.cells, -1) for known in knows])
    return torch.where(entitled > 0, vote(found, _labels(voters)) / entitled.clamp_min(1e-12), 0)


def _references(features: FeatureMap, voters: Sequence[Remembered], config: PropagateConfig) -> list[Reference]:
    missing = max(config.past_frames + 1 - len(voters), 0) if config.repeat_first else 0
    return [
        Reference(
            frame.cells,
            config.window(features.grid, labelled=frame.labelled),
            copies=1 + (missing if i == 0 else 0),
            packing=frame.packing,
        )
        for i, frame in enumerate(voters)
    ]


def _labels(voters: Sequence[Remembered]) -> list[Float[Tensor, "cells channels"]]:
    return [frame.soft.flatten(0, 1) for frame in voters]


def _stretched(votes: Float[Tensor, "queries channels"]) -> Float[Tensor, "queries channels"]:
    low, high = votes.amin(dim=0), votes.amax(dim=0)
    return torch.where(high > low, (votes - low) / (high - low).clamp_min(1e-12), 0)
