"""Blend the labels of the forward and the backward pass on frames between two annotated ones.

Each pass is weighted by how near its annotated frame is, and by how clear its labels are. A pass that lost an object,
behind an occluder or because little of it was annotated, has hardly a cell that is clearly the object's, and so leaves
it to the other pass. Where an annotated frame shows that an object is absent, the pass from there counts as clear.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.labels.label_map import LabelMap, LabelValues
from timecycle.labels.space import fill_unknown, normalise

PerChannel = Float[Tensor, " channels"]

_EPSILON = 1e-6


@dataclass(frozen=True, eq=False)
class Pass:
    """The label map of one direction of time, and the annotated frame it was propagated from."""

    labels: LabelMap
    distance: PerChannel  # to the annotated frame, in frames
    absent: Bool[Tensor, " channels"]  # annotated as absent on that frame


def blend(forward: Pass, backward: Pass, *, exclusive: bool) -> tuple[LabelMap, PerChannel]:
    """Return the blended label map, and the share of the forward pass in each channel.

    A channel that is known to one pass only is taken from that pass.
    """
    known, known_back = forward.labels.known, backward.labels.known
    values = fill_unknown(forward.labels.values, backward.labels.values, known=known, exclusive=exclusive)
    values_back = fill_unknown(backward.labels.values, forward.labels.values, known=known_back, exclusive=exclusive)
    share = _share_by_distance(forward, backward)
    if exclusive:
        clear, clear_back = (
            torch.where(one.absent, 1.0, clearness(filled))
            for one, filled in ((forward, values), (backward, values_back))
        )
        # Channels that were filled in from the other pass say nothing about this pass's clearness.
        share = torch.where(known & known_back, _share_by_clearness(share, clear, clear_back), share)
    blended = values * share + values_back * (1 - share)
    if exclusive:
        blended = normalise(blended)
    share = torch.where(known & ~known_back, 1.0, torch.where(known_back & ~known, 0.0, share))
    return LabelMap(blended, known | known_back, forward.labels.grid, forward.labels.subcells), share


def clearness(values: LabelValues) -> PerChannel:
    """Return the part of each channel's weight that lies in cells where no other channel has more."""
    own = values == values.amax(dim=-1, keepdim=True)
    return (values * own).sum(dim=(0, 1)) / values.sum(dim=(0, 1)).clamp_min(_EPSILON)


def _share_by_distance(forward: Pass, backward: Pass) -> PerChannel:
    """Return the forward share: proportional to the backward distance, and all of it on the annotated frame itself."""
    share = backward.distance / (forward.distance + backward.distance).clamp_min(1)
    return torch.where(forward.distance == 0, 1.0, share)


def _share_by_clearness(share: PerChannel, forward: PerChannel, backward: PerChannel) -> PerChannel:
    """Weight both sides by squared clearness: a pass half as clear is right far less than half as often."""
    ahead, back = share * forward.square(), (1 - share) * backward.square()
    total = ahead + back
    return torch.where(total > 0, ahead / total, share)
