"""Where labels carried forward and back meet: each pass weighs by how near its drawing is, and how clear its labels.

A pass that lost an object, behind something else or because little of it was drawn, has hardly a cell left that is
clearly the object's, and leaves it to the other pass. Where a drawing shows that an object is not there, the pass that
comes from it is clear about that.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.labels.soft import SoftMap
from timecycle.labels.space import fill_unknown, settle

PerChannel = Float[Tensor, " channels"]

_NOTHING = 1e-6


@dataclass(frozen=True, eq=False)
class Pass:
    """What one direction of time says about a frame."""

    soft: SoftMap
    knows: Bool[Tensor, " channels"]
    distance: PerChannel  # to the drawing it comes from, in frames
    absent: Bool[Tensor, " channels"]  # on that drawing


@dataclass(frozen=True, eq=False)
class Blended:
    """The soft labels of both passes together, and how much of each channel is the forward pass's."""

    soft: SoftMap
    share: PerChannel


def blend(forward: Pass, backward: Pass, *, exclusive: bool) -> Blended:
    """The labels of a frame between two drawings. What one pass knows nothing of is the other's."""
    ahead = fill_unknown(forward.soft, backward.soft, knows=forward.knows, exclusive=exclusive)
    back = fill_unknown(backward.soft, forward.soft, knows=backward.knows, exclusive=exclusive)
    share = _share_by_distance(forward, backward)
    if exclusive:
        clear = [torch.where(one.absent, 1.0, clearness(soft)) for one, soft in ((forward, ahead), (backward, back))]
        # What a pass only took from the other, where it sees nothing itself, says nothing of how clear it is.
        share = torch.where(forward.knows & backward.knows, _weighed(share, *clear), share)
    soft = ahead * share + back * (1 - share)
    alone = torch.where(forward.knows & ~backward.knows, 1.0, torch.where(backward.knows & ~forward.knows, 0.0, share))
    return Blended(settle(soft) if exclusive else soft, alone)


def clearness(soft: SoftMap) -> PerChannel:
    """The part of each channel's weight that lies in cells where no other channel has more."""
    own = soft == soft.amax(dim=-1, keepdim=True)
    return (soft * own).sum(dim=(0, 1)) / soft.sum(dim=(0, 1)).clamp_min(_NOTHING)


def _share_by_distance(forward: Pass, backward: Pass) -> PerChannel:
    """As much as the other drawing is farther away; all on the drawing itself."""
    share = backward.distance / (forward.distance + backward.distance).clamp_min(1)
    return torch.where(forward.distance == 0, 1.0, share)


def _weighed(share: PerChannel, forward: PerChannel, backward: PerChannel) -> PerChannel:
    """The share with each side weighed by how clear it is, squared: what is half as clear is far less often right."""
    ahead, back = share * forward.square(), (1 - share) * backward.square()
    both = ahead + back
    return torch.where(both > 0, ahead / both, share)
