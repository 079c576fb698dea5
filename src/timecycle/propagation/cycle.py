"""From every cell of a frame to its best match in another frame, and from there back."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from timecycle.propagation.neighbours import Packing, Reference, neighbours
from timecycle.propagation.tiles import Cells
from timecycle.propagation.window import Window


@dataclass(frozen=True, eq=False)
class Cycle:
    """Matches both ways, and how far from its start each cell's way there and back ends."""

    there: Int[Tensor, " cells"]
    back: Int[Tensor, " others"]
    similarity: Float[Tensor, " cells"]  # cosine with the match
    gap: Float[Tensor, " cells"]  # in cells


def go_and_return(
    frame: Cells, other: Cells, window: Window | None, *, packing: Packing, other_packing: Packing
) -> Cycle:
    """The cycle of length one between two frames of a video."""
    there = _best(frame, Reference(other, window, packing=other_packing), packing)
    back = _best(other, Reference(frame, window, packing=packing), other_packing)
    columns = frame.shape[1]
    start = torch.arange(len(there), device=there.device)
    end = back[there]
    gap = torch.hypot((end % columns - start % columns).float(), (end // columns - start // columns).float())
    similarity = (frame.flatten(0, 1) * other.flatten(0, 1)[there]).sum(dim=1)
    return Cycle(there, back, similarity, gap)


def _best(query: Cells, reference: Reference, packing: Packing) -> Int[Tensor, " queries"]:
    return neighbours(query, [reference], k=1, temperature=1.0, weighting="joint", packing=packing).index[:, 0]
