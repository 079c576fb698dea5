"""What speaks for the labels of a frame: raw signals of every object and every cell, told without truth.

A frame is compared with witnesses: the oldest frame that still votes, and the two nearest drawings.
From each cell the best match in a witness is found, and from there the way back. A track that stands still closes
every such cycle, so what an object looks like is held against the drawing too, and labels are carried back to it:
they should give what was drawn. And a mistake is carried on, so the way since the drawing counts (trail.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.labels.soft import Extent, overlap
from timecycle.propagation.cycle import go_and_return
from timecycle.propagation.neighbours import Packing
from timecycle.propagation.tiles import Cells
from timecycle.propagation.trail import Trail
from timecycle.propagation.window import Window

# Of an object: all from 0 to 1, and the higher the better.
SIGNALS = (
    "margin",  # how clearly its cells are its own, or a point's weight is in one place
    "certainty",  # 1 - the entropy of its votes, in bits
    "way",  # the mean margin since it was drawn
    "lowest",  # the lowest margin since it was drawn
    "fresh",  # 1 on the drawing, and less with every frame since
    "past_return",  # the share of it that comes back after going to the oldest frame that votes
    "past_labels",  # its labels carried back to that frame, over the labels there (intersection over union)
    "drawing_return",  # as past_return, with the nearest drawings
    "drawing_labels",  # as past_labels, with the nearest drawings: do they give what was drawn?
    "drawing_agreement",  # the share of it whose best match in a drawing is the same object
    "similarity",  # cosine with the best match in a drawing
    "appearance",  # whether it looks like the object that was drawn rather than like what was around it
    "size",  # how near its area is to that of the drawing: 1 as large, 0.5 half or twice as large
    "bulk",  # the share of it that is not at its outline: what is thin loses much by half a cell
)
# Of a cell, in the same sense.
CELL_SIGNALS = ("margin", "past_return", "past_agreement", "drawing_return", "drawing_agreement", "similarity")

HOME_CELLS = 1.5  # a cycle that ends so near its start came back: a grid of cells cannot tell better
_UNTOLD = 0.5  # a signal where there is nothing to compare with: neither for nor against
_SMALLEST_GROWN = 0.1  # `size` of what is much larger than drawn: below is what is nearly gone
_NOTHING = 1e-6

Covered = Float[Tensor, "cells objects"]  # an Extent, row by row
PerCell = Float[Tensor, " cells"]
PerObject = Float[Tensor, " objects"]


@dataclass(frozen=True, eq=False)
class Witness:
    """A frame that another one is held against: its features, and what its cells show of each object."""

    cells: Cells
    extent: Covered
    packing: Packing
    shows: Bool[Tensor, " objects"]  # which objects it speaks for: of a drawing, those it is the nearest of


@dataclass(frozen=True, eq=False)
class Evidence:
    """The signals of a frame, in the order of SIGNALS and CELL_SIGNALS, and how much of it each object covers."""

    objects: Float[Tensor, "objects signals"]
    cells: Float[Tensor, "rows columns cell_signals"]
    area: PerObject  # in cells


@torch.inference_mode()
def gather(
    cells: Cells,
    extent: Extent,
    *,
    packing: Packing,
    trail: Trail,
    past: Witness | None,
    drawings: Sequence[Witness],
    window: Window | None,
    drawing_window: Window | None,
    spread: bool = False,
) -> Evidence:
    """The evidence for `extent`, what each object is said to cover of a frame; `spread` for points, which cover no
    cell wholly."""
    rows, columns, objects = extent.shape
    flat = extent.flatten(0, 1)
    trail = Trail(trail.values.to(flat.device))
    own = _Side(cells, flat, packing)
    recent = _mean([_compared(own, past, window)], [past]) if past is not None else _unknown(flat)
    drawn = (
        _mean([_compared(own, drawing, drawing_window) for drawing in drawings], drawings)
        if drawings
        else _unknown(flat)
    )
    per_object = [
        margin_of(extent, spread=spread),
        _weighted(flat, 1 - _entropy(flat)),
        trail.mean,
        trail.lowest,
        trail.fresh,
        recent.returned,
        recent.labels,
        drawn.returned,
        drawn.labels,
        drawn.agreement,
        drawn.similarity,
        drawn.appearance,
        drawn.size,
        _bulk(extent),
    ]
    sure = (2 * flat - 1).abs().amin(dim=1) if not spread and objects else flat.new_ones(len(flat))
    per_cell = [
        sure,
        recent.cell_return,
        recent.cell_agreement,
        drawn.cell_return,
        drawn.cell_agreement,
        drawn.cell_similarity,
    ]
    return Evidence(
        torch.stack(per_object, dim=1).cpu(),
        torch.stack(per_cell, dim=1).reshape(rows, columns, -1).cpu(),
        flat.sum(dim=0).cpu(),
    )


def margin_of(extent: Extent, *, spread: bool) -> PerObject:
    """How clearly each object's cells are its own; of points, how much of their weight is in one place."""
    if spread:
        return _concentration(extent)
    flat = extent.flatten(0, 1)
    return _weighted(flat, (2 * flat - 1).abs())


@dataclass(frozen=True, eq=False)
class _Side:
    cells: Cells
    extent: Covered
    packing: Packing


@dataclass(frozen=True, eq=False)
class _Comparison:
    """What one witness says, by object and by cell."""

    returned: PerObject
    labels: PerObject
    agreement: PerObject
    similarity: PerObject
    appearance: PerObject
    size: PerObject
    cell_return: PerCell
    cell_agreement: PerCell
    cell_similarity: PerCell


def _compared(own: _Side, witness: Witness, window: Window | None) -> _Comparison:
    cycle = go_and_return(own.cells, witness.cells, window, packing=own.packing, other_packing=witness.packing)
    home = (cycle.gap <= HOME_CELLS).float()
    found = witness.extent[cycle.there]
    agreement = 1 - (own.extent - found).abs()
    # For an object a match speaks by what it is there; what it is here weighs how much it counts.
    same = _weighted(own.extent, found)
    ratio = own.extent.sum(dim=0) / witness.extent.sum(dim=0).clamp_min(_NOTHING)
    # What went farther than a window sees cannot be found, right or wrong.
    away = _out_of_sight(own, witness, window)
    return _Comparison(
        returned=torch.where(away, _UNTOLD, _weighted(own.extent, home[:, None].expand_as(own.extent))),
        labels=torch.where(away, _UNTOLD, overlap(own.extent[cycle.back], witness.extent)),
        agreement=torch.where(away, _UNTOLD, same),
        similarity=_weighted(own.extent, cycle.similarity[:, None].expand_as(own.extent)).clamp(0, 1),
        appearance=_appearance(own, witness),
        size=torch.where(ratio <= 1, ratio, (1 / ratio.clamp_min(_NOTHING)).clamp_min(_SMALLEST_GROWN)),
        cell_return=home,
        cell_agreement=agreement.amin(dim=1) if agreement.shape[1] else home,
        cell_similarity=cycle.similarity.clamp(0, 1),
    )


def _appearance(own: _Side, witness: Witness) -> PerObject:
    """Half of 1 + cosine(object now, object drawn) - cosine(object now, what was around the drawing)."""
    now = _mean_feature(own.cells, own.extent)
    drawn = _mean_feature(witness.cells, witness.extent)
    around = _mean_feature(witness.cells, 1 - witness.extent)
    return ((1 + (now * drawn).sum(dim=1) - (now * around).sum(dim=1)) / 2).clamp(0, 1)


def _mean_feature(cells: Cells, weight: Covered) -> Float[Tensor, "objects channels"]:
    mean = weight.T @ cells.flatten(0, 1)
    return torch.nn.functional.normalize(mean, dim=1)


def _weighted(weight: Covered, values: Covered) -> PerObject:
    """The mean of a signal over each object; 0 for one that is nowhere."""
    return (weight * values).sum(dim=0) / weight.sum(dim=0).clamp_min(_NOTHING)


def _entropy(share: Covered) -> Covered:
    """Of a vote between an object and everything else, in bits."""
    share = share.clamp(0, 1)
    entropy: Tensor = (torch.special.entr(share) + torch.special.entr(1 - share)) / math.log(2)
    return entropy


def _concentration(extent: Extent) -> PerObject:
    """The share of a point's weight in the nine cells around its strongest."""
    _, columns, objects = extent.shape
    kept = []
    for channel in range(objects):
        weight = extent[..., channel]
        row, column = divmod(int(weight.argmax()), columns)
        near = weight[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2].sum()
        kept.append(near / weight.sum().clamp_min(_NOTHING))
    return torch.stack(kept) if kept else extent.new_zeros(0)


def _bulk(extent: Extent) -> PerObject:
    """What is left of each object where every cell is only as full as the emptiest beside it.

    A cell is as full as an outline at half the votes would make it, which is sharper than the votes are.
    """
    maps = (2 * extent - 0.5).clamp(0, 1).permute(2, 0, 1)[:, None]
    if not len(maps):
        return extent.new_zeros(0)
    across = -torch.nn.functional.max_pool2d(-maps, (1, 3), stride=1, padding=(0, 1))
    down = -torch.nn.functional.max_pool2d(-maps, (3, 1), stride=1, padding=(1, 0))
    return torch.minimum(across, down).sum(dim=(1, 2, 3)) / maps.sum(dim=(1, 2, 3)).clamp_min(_NOTHING)


def _mean(said: Sequence[_Comparison], witnesses: Sequence[Witness]) -> _Comparison:
    """What witnesses say together: of each object those that speak for it and show it, if there is any."""
    speaking = [
        witness.shows.to(witness.extent.device) & (witness.extent.sum(dim=0) > _NOTHING) for witness in witnesses
    ]
    weight = torch.stack(speaking).float()
    share, known = weight / weight.sum(dim=0).clamp_min(1), weight.any(dim=0)

    def of_objects(name: str) -> PerObject:
        mean = (torch.stack([getattr(one, name) for one in said]) * share).sum(dim=0)
        return torch.where(known, mean, _UNTOLD)

    def of_cells(name: str) -> PerCell:
        return torch.stack([getattr(one, name) for one in said]).amax(dim=0)  # one witness that knows a cell is enough

    return _Comparison(
        **{name: of_objects(name) for name in ("returned", "labels", "agreement", "similarity", "appearance", "size")},
        **{name: of_cells(name) for name in ("cell_return", "cell_agreement", "cell_similarity")},
    )


def _out_of_sight(own: _Side, witness: Witness, window: Window | None) -> Bool[Tensor, " objects"]:
    """Whether an object's centre moved farther than the window reaches."""
    if window is None:
        return torch.zeros(own.extent.shape[1], dtype=torch.bool, device=own.extent.device)
    now, then = (_centres(side.extent, side.cells.shape[1]) for side in (own, witness))
    return (now - then).square().sum(dim=1) > window.radius**2


def _centres(covered: Covered, columns: int) -> Float[Tensor, "objects 2"]:
    cells = torch.arange(len(covered), device=covered.device)
    places = torch.stack([cells % columns, cells // columns], dim=1).float()
    return covered.T @ places / covered.sum(dim=0).clamp_min(_NOTHING)[:, None]


def _unknown(extent: Covered) -> _Comparison:
    """Where there is nothing to compare with: neither for nor against."""
    half, cell = extent.new_full((extent.shape[1],), _UNTOLD), extent.new_full((len(extent),), _UNTOLD)
    return _Comparison(half, half, half, half, half, half, cell, cell, cell)
