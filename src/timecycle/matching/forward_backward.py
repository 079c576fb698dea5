"""Forward-backward consistency: from every cell to its best match in another frame, and from there back."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from timecycle.matching.neighbours import Packing, Reference, neighbours
from timecycle.matching.tiles import Features
from timecycle.matching.window import Window


@dataclass(frozen=True, eq=False)
class Cycle:
    """The best matches in both directions, and how far from its start each forward-backward cycle ends."""

    forward: Int[Tensor, " cells"]
    backward: Int[Tensor, " others"]
    similarity: Float[Tensor, " cells"]  # cosine with the forward match
    error_cells: Float[Tensor, " cells"]


def forward_backward(
    frame: Features, other: Features, window: Window | None, *, packing: Packing, other_packing: Packing
) -> Cycle:
    """Match two frames of a video in both directions."""
    forward = _best(frame, Reference(other, window, packing=other_packing), packing)
    backward = _best(other, Reference(frame, window, packing=packing), other_packing)
    columns = frame.shape[1]
    start = torch.arange(len(forward), device=forward.device)
    end = backward[forward]
    error = torch.hypot((end % columns - start % columns).float(), (end // columns - start // columns).float())
    similarity = (frame.flatten(0, 1) * other.flatten(0, 1)[forward]).sum(dim=1)
    return Cycle(forward, backward, similarity, error)


def _best(query: Features, reference: Reference, packing: Packing) -> Int[Tensor, " queries"]:
    return neighbours(query, [reference], k=1, temperature=1.0, weighting="joint", packing=packing).index[:, 0]
