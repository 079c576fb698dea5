"""The raw signals of confidence, per object and per feature cell, computed without ground truth.

A frame is compared with the oldest frame in memory and with the nearest annotated frames. Five checks are made:
forward-backward consistency of the matches; labels propagated back, which should give the labels there; the object's
appearance against the annotation, since frozen labels pass the first two; its outline against the edges of the image;
and its history since it was annotated (history.py), since errors are propagated on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.confidence.history import History, PerObject
from timecycle.device import host_tensor
from timecycle.labels.guided import explained_share
from timecycle.labels.label_map import Extent, overlap
from timecycle.matching.forward_backward import forward_backward
from timecycle.matching.neighbours import Packing
from timecycle.matching.tiles import Features
from timecycle.matching.window import Window

# Per object: all from 0 to 1, higher is better.
SIGNALS = (
    "margin",  # how clearly its cells are its own, or a point's weight is concentrated
    "certainty",  # 1 - the entropy of its votes, in bits
    "mean_margin",  # the mean margin since it was annotated
    "min_margin",  # the lowest margin since it was annotated
    "recency",  # 1 on the annotated frame, less with every frame since
    "past_cycle",  # the share of it that is forward-backward consistent with the oldest frame in memory
    "past_overlap",  # IoU of its labels, propagated back to that frame, with the labels there
    "annotation_cycle",  # as past_cycle, with the nearest annotated frames
    "annotation_overlap",  # as past_overlap, with the nearest annotated frames
    "annotation_agreement",  # the share of it whose best match in an annotated frame is the same object
    "annotation_similarity",  # cosine with the best match in an annotated frame
    "appearance",  # whether it looks like the annotated object rather than like its surroundings
    "size",  # its area relative to the annotation: 1 if equal, 0.5 if half or twice as large
    "edges",  # how much of its outline follows the colours of the image: right outlines mostly do
    "interior",  # the share of it that is not at its outline: thin objects lose much by half a cell
)
# Per feature cell, likewise.
CELL_SIGNALS = (
    "margin",
    "past_cycle",
    "past_agreement",
    "annotation_cycle",
    "annotation_agreement",
    "annotation_similarity",
)

CYCLE_TOLERANCE_CELLS = 1.5  # a cycle that ends within it is consistent: the grid is no finer
_NEUTRAL = 0.5  # the value of a signal where there is nothing to compare with
_MIN_SIZE_GROWN = 0.1  # `size` of an object much larger than annotated; lower values mean nearly gone
_EPSILON = 1e-6

Covered = Float[Tensor, "cells objects"]  # an Extent, row by row
PerCell = Float[Tensor, " cells"]


@dataclass(frozen=True, eq=False)
class ComparisonFrame:
    """A frame to compare with: its features, how much of each cell every object covers, and where it is searched."""

    cells: Features
    extent: Covered
    packing: Packing
    window: Window | None
    objects: Bool[Tensor, " objects"]  # to compare; of an annotated frame, those it is the nearest for


@dataclass(frozen=True, eq=False)
class Signals:
    """The signals of a frame, in the order of SIGNALS and CELL_SIGNALS, and the area of each object."""

    objects: Float[Tensor, "objects signals"]
    cells: Float[Tensor, "rows columns cell_signals"]
    area: PerObject  # in cells


@torch.inference_mode()
def compute_signals(
    cells: Features,
    extent: Extent,
    *,
    votes: Extent,
    packing: Packing,
    history: History,
    past: ComparisonFrame | None,
    annotated: Sequence[ComparisonFrame],
    colours: Float[Tensor, "rows columns 3"] | None = None,
    points: bool = False,
) -> Signals:
    """Compute the signals of a frame on which objects cover `extent`; `votes` is the same before sharpening.

    `colours` are the mean colours of its cells. `points` says that objects are keypoints, which cover no cell wholly.
    """
    rows, columns, objects = extent.shape
    flat, flat_votes = extent.flatten(0, 1), votes.flatten(0, 1)
    history = History(history.values.to(flat.device))
    own = _Side(cells, flat, packing)
    recent = _mean([_compare(own, past)], [past]) if past is not None else _neutral(flat)
    annotation = _mean([_compare(own, frame) for frame in annotated], annotated) if annotated else _neutral(flat)
    per_object = [
        margins(votes, points=points),
        _weighted(flat_votes, 1 - _entropy(flat_votes)),
        history.mean_margin,
        history.min_margin,
        history.recency,
        recent.cycle,
        recent.overlap,
        annotation.cycle,
        annotation.overlap,
        annotation.agreement,
        annotation.similarity,
        annotation.appearance,
        annotation.size,
        _edges(extent, None if points else colours),
        _interior(extent),
    ]
    margin = (2 * flat_votes - 1).abs().amin(dim=1) if not points and objects else flat.new_ones(len(flat))
    per_cell = [
        margin,
        recent.cell_cycle,
        recent.cell_agreement,
        annotation.cell_cycle,
        annotation.cell_agreement,
        annotation.cell_similarity,
    ]
    return Signals(
        host_tensor(torch.stack(per_object, dim=1), "signals"),
        host_tensor(torch.stack(per_cell, dim=1).reshape(rows, columns, -1), "signals"),
        host_tensor(flat.sum(dim=0), "signals"),
    )


def margins(extent: Extent, *, points: bool) -> PerObject:
    """Return how clearly each object's cells are its own; for points, how concentrated their weight is."""
    if points:
        return _concentration(extent)
    flat = extent.flatten(0, 1)
    return _weighted(flat, (2 * flat - 1).abs())


@dataclass(frozen=True, eq=False)
class _Side:
    cells: Features
    extent: Covered
    packing: Packing


@dataclass(frozen=True, eq=False)
class _Comparison:
    """The signals from one comparison frame, per object and per cell."""

    cycle: PerObject
    overlap: PerObject
    agreement: PerObject
    similarity: PerObject
    appearance: PerObject
    size: PerObject
    cell_cycle: PerCell
    cell_agreement: PerCell
    cell_similarity: PerCell


def _compare(own: _Side, other: ComparisonFrame) -> _Comparison:
    cycle = forward_backward(own.cells, other.cells, other.window, packing=own.packing, other_packing=other.packing)
    consistent = (cycle.error_cells <= CYCLE_TOLERANCE_CELLS).float()
    matched = other.extent[cycle.forward]
    agreement = 1 - (own.extent - matched).abs()
    # Object agreement: the label at the matched cell, weighted by the query cell's own coverage.
    same = _weighted(own.extent, matched)
    ratio = own.extent.sum(dim=0) / other.extent.sum(dim=0).clamp_min(_EPSILON)
    # An object that moved farther than the window cannot be matched, right or wrong.
    away = _left_window(own, other)
    return _Comparison(
        cycle=torch.where(away, _NEUTRAL, _weighted(own.extent, consistent[:, None].expand_as(own.extent))),
        overlap=torch.where(away, _NEUTRAL, overlap(own.extent[cycle.backward], other.extent)),
        agreement=torch.where(away, _NEUTRAL, same),
        similarity=_weighted(own.extent, cycle.similarity[:, None].expand_as(own.extent)).clamp(0, 1),
        appearance=_appearance(own, other),
        size=torch.where(ratio <= 1, ratio, (1 / ratio.clamp_min(_EPSILON)).clamp_min(_MIN_SIZE_GROWN)),
        cell_cycle=consistent,
        cell_agreement=agreement.amin(dim=1) if agreement.shape[1] else consistent,
        cell_similarity=cycle.similarity.clamp(0, 1),
    )


def _appearance(own: _Side, other: ComparisonFrame) -> PerObject:
    """Return half of 1 + cosine(object now, object there) - cosine(object now, its surroundings there)."""
    now = _mean_feature(own.cells, own.extent)
    there = _mean_feature(other.cells, other.extent)
    surroundings = _mean_feature(other.cells, 1 - other.extent)
    return ((1 + (now * there).sum(dim=1) - (now * surroundings).sum(dim=1)) / 2).clamp(0, 1)


def _mean_feature(cells: Features, weight: Covered) -> Float[Tensor, "objects channels"]:
    mean = weight.T @ cells.flatten(0, 1)
    return torch.nn.functional.normalize(mean, dim=1)


def _weighted(weight: Covered, values: Covered) -> PerObject:
    """Return the mean of a signal over each object; 0 for an object that covers nothing."""
    return (weight * values).sum(dim=0) / weight.sum(dim=0).clamp_min(_EPSILON)


def _entropy(share: Covered) -> Covered:
    """Return the entropy of a vote between an object and everything else, in bits."""
    share = share.clamp(0, 1)
    entropy: Tensor = (torch.special.entr(share) + torch.special.entr(1 - share)) / math.log(2)
    return entropy


def _concentration(extent: Extent) -> PerObject:
    """Return the share of each point's weight in the nine cells around its strongest."""
    columns, flat = extent.shape[1], extent.flatten(0, 1)
    cell, strongest = torch.arange(len(flat), device=flat.device)[:, None], flat.argmax(dim=0)
    is_near = (cell // columns - strongest // columns).abs() <= 1
    is_near &= (cell % columns - strongest % columns).abs() <= 1
    return (flat * is_near).sum(dim=0) / flat.sum(dim=0).clamp_min(_EPSILON)


def _interior(extent: Extent) -> PerObject:
    """Return the share of each object that remains after erosion by one cell.

    Coverage is sharpened first, as deciding at half the votes would sharpen it.
    """
    maps = (2 * extent - 0.5).clamp(0, 1).permute(2, 0, 1)[:, None]
    if not len(maps):
        return extent.new_zeros(0)
    across = -torch.nn.functional.max_pool2d(-maps, (1, 3), stride=1, padding=(0, 1))
    down = -torch.nn.functional.max_pool2d(-maps, (3, 1), stride=1, padding=(1, 0))
    return torch.minimum(across, down).sum(dim=(1, 2, 3)) / maps.sum(dim=(1, 2, 3)).clamp_min(_EPSILON)


def _edges(extent: Extent, colours: Float[Tensor, "rows columns 3"] | None) -> PerObject:
    if colours is None or not extent.shape[2]:
        return extent.new_full((extent.shape[2],), _NEUTRAL)
    return explained_share(extent, colours.to(extent.device))


def _mean(comparisons: Sequence[_Comparison], frames: Sequence[ComparisonFrame]) -> _Comparison:
    """Average comparisons: for each object, over the frames that are compared for it and show it."""
    weight = torch.stack(
        [frame.objects.to(frame.extent.device) & (frame.extent.sum(dim=0) > _EPSILON) for frame in frames]
    ).float()
    share, known = weight / weight.sum(dim=0).clamp_min(1), weight.any(dim=0)

    def of_objects(name: str) -> PerObject:
        mean = (torch.stack([getattr(one, name) for one in comparisons]) * share).sum(dim=0)
        return torch.where(known, mean, _NEUTRAL)

    def of_cells(name: str) -> PerCell:
        # One frame that agrees about a cell is enough.
        return torch.stack([getattr(one, name) for one in comparisons]).amax(dim=0)

    return _Comparison(
        **{name: of_objects(name) for name in ("cycle", "overlap", "agreement", "similarity", "appearance", "size")},
        **{name: of_cells(name) for name in ("cell_cycle", "cell_agreement", "cell_similarity")},
    )


def _left_window(own: _Side, other: ComparisonFrame) -> Bool[Tensor, " objects"]:
    """Return for each object whether its centre moved farther than the radius of the window."""
    if other.window is None:
        return torch.zeros(own.extent.shape[1], dtype=torch.bool, device=own.extent.device)
    now, then = (_centres(side.extent, side.cells.shape[1]) for side in (own, other))
    return (now - then).square().sum(dim=1) > other.window.radius**2


def _centres(covered: Covered, columns: int) -> Float[Tensor, "objects 2"]:
    cells = torch.arange(len(covered), device=covered.device)
    positions = torch.stack([cells % columns, cells // columns], dim=1).float()
    return covered.T @ positions / covered.sum(dim=0).clamp_min(_EPSILON)[:, None]


def _neutral(extent: Covered) -> _Comparison:
    """Return the comparison where there is nothing to compare with: neither for nor against."""
    half, cell = extent.new_full((extent.shape[1],), _NEUTRAL), extent.new_full((len(extent),), _NEUTRAL)
    return _Comparison(half, half, half, half, half, half, cell, cell, cell)
