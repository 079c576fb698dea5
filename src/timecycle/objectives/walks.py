"""Contrastive random walks between two views of a clip: forward in time in one view, back in the other.

A walk starts on a cell of the first frame of the first view and steps from frame to frame with the probabilities of
an affinity. In its last frame it crosses to the other view and steps back to the first frame. It should end where the
known map between the views puts its start. The views differ geometrically, so neither staying in place nor matching by
position closes a walk.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from timecycle.errors import SettingsError
from timecycle.grid import Grid
from timecycle.model.affinity import at_least_fp32
from timecycle.objectives import ObjectiveResult, Scalar, weighted_sum
from timecycle.objectives.segments import Segments, segment_loss
from timecycle.pose import to_cells

Views = Float[Tensor, "b n c h w"]  # features of unit length of n frames of a clip in one view
BackViews = Float[Tensor, "b n-1 c h w"]  # in the other view, whose last frame no walk visits
Transition = Float[Tensor, "b cells cells"]  # for each cell a distribution over the cells of another frame
Points = Float[Tensor, "b cells 2"]  # of the first view's cells in the normalised coordinates of the second


@dataclass(frozen=True, kw_only=True)
class WalksConfig:
    temperature: float = 0.07  # of the softmax over the cells of the next frame
    dropout: float = 0.1  # share of transitions that are dropped, so that no walk relies on a single path
    walk: float = 1.0  # weight of the walk through the clip and back; 0 leaves it out
    same_frame: float = 1.0  # the walk of length 0: from one view to the other in the same frame
    segments: float = 0.0  # the walk should end on the segment it started on, anywhere on it
    most_segments: int = 16  # in an image, found by colour and position
    pasted: float = 0.0  # the walk should end on the object it started on, anywhere on it
    negatives: int = 0  # other clips of the batch whose cells are negatives at every step
    motion: float = 0.0  # share of the loss weight that follows how much cells change; the rest is uniform
    contrast: float = 0.0  # share of the loss weight that follows how much cells differ from their neighbours

    def __post_init__(self) -> None:
        for name in ("walk", "same_frame", "segments", "pasted", "negatives"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SettingsError(f"walks.{name} is {getattr(self, name)}", remedy="give 0 or more")
        if self.most_segments < 2:
            raise SettingsError(f"walks.most_segments is {self.most_segments}", remedy="give 2 or more")
        if not 0 < self.temperature < math.inf:
            raise SettingsError(f"walks.temperature is {self.temperature}", remedy="give a number above 0")
        if not 0 <= self.dropout < 1:
            raise SettingsError(f"walks.dropout is {self.dropout}", remedy="give 0 to below 1")
        for name in ("motion", "contrast"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingsError(f"walks.{name} is {getattr(self, name)}", remedy="give 0 to 1")


@dataclass(frozen=True, eq=False)
class PastedObjects:
    """The object id of every cell of the first frame, in the view where walks start and in the one where they end."""

    start: Int[Tensor, "b cells"]
    end: Int[Tensor, "b cells"]
    count: int  # of ids, that of the background included


@dataclass(frozen=True, eq=False)
class Regions:
    """What the cells of the first frame belong to: walks may end anywhere on it."""

    pasted: PastedObjects | None = None
    segments: Segments | None = None


_NO_REGIONS = Regions()
_NOTHING: Mapping[str, Tensor] = {}


def walk_losses(
    out: Views,
    back: BackViews,
    points: Points,
    *,
    grid: Grid,
    config: WalksConfig,
    visible: Bool[Tensor, "b cells"] | None = None,
    regions: Regions = _NO_REGIONS,
    amounts: Mapping[str, Float[Tensor, "b cells"]] = _NOTHING,
    generators: Sequence[torch.Generator] = (),
) -> ObjectiveResult:
    """Compute the cross-entropy of walks of every length to `points`, where their starts lie in the other view.

    Cells that are not `visible` in every frame are left out. `amounts` are of the cells of the first frame of `out`, on
    any scale: their `motion` to the next frame and their `contrast` to their neighbours. Transitions are dropped by the
    generator of each clip, so that they do not depend on the clips beside it; without generators none are. The loss is
    the mean over clips, each the mean over its cells.
    """
    target = return_targets(points, grid, visible)
    walks = _walks(out, back, config, generators)
    weight = target.valid
    for name, amount in amounts.items():
        weight = weight * _weights_by(amount, getattr(config, name))
    costs = {length: _cross_entropy(walk, target, weight) for length, walk in walks.items()}
    through_time = [cost for length, cost in costs.items() if length > 0]
    losses = {"same_frame": costs[0]} | ({"walk": torch.stack(through_time).mean()} if through_time else {})
    if (segments := regions.segments) is not None:
        left = [segment_loss(walk, target.weight, target.valid, segments) for walk in walks.values()]
        losses["segments"] = torch.stack(left).mean()
    if (pasted := regions.pasted) is not None:
        losses["pasted"] = torch.stack([object_loss(walk, pasted) for walk in walks.values()]).mean()
    weights = {name: getattr(config, name) for name in ("walk", "same_frame", "segments", "pasted")}
    return weighted_sum(losses, weights, _diagnostics(walks, target, grid))


def _walks(
    out: Views, back: BackViews, config: WalksConfig, generators: Sequence[torch.Generator]
) -> dict[int, Transition]:
    """Compute where walks of every length end: from the first frame of one view to that of the other."""
    # Split once: indexing at every step would cost a gradient of the size of all frames each time.
    forward, backward = out.unbind(dim=1), back.unbind(dim=1)
    outward = torch.eye(out[0, 0, 0].numel(), device=out.device).expand(len(out), -1, -1)
    inward = outward
    walks: dict[int, Transition] = {0: _transition(forward[0], backward[0], config, generators)}  # by length
    for length in range(1, len(forward)):
        outward = outward @ _transition(forward[length - 1], forward[length], config, generators)
        if length > 1:
            inward = _transition(backward[length - 1], backward[length - 2], config, generators) @ inward
        crossing = _transition(forward[length], backward[length - 1], config, generators)
        walks[length] = outward @ (crossing @ inward)
    return walks


@dataclass(frozen=True, eq=False)
class ReturnTargets:
    """Where each cell's walk should end."""

    weight: Transition  # bilinear weights of the cells around the target
    cells: Float[Tensor, "b cells 2"]  # (column, row) of the target
    valid: Float[Tensor, "b cells"]  # 1 where the second view shows the target


def return_targets(points: Points, grid: Grid, visible: Bool[Tensor, "b cells"] | None = None) -> ReturnTargets:
    """Convert points of the second view to bilinear weights of its cells."""
    cells = to_cells(points, grid)
    column, row = cells.unbind(dim=-1)
    weight_x, weight_y = (
        (1 - (position[..., None] - torch.arange(count, device=points.device)).abs()).clamp_min(0)
        for position, count in ((column, grid.x.cells), (row, grid.y.cells))
    )
    weight = (weight_y[..., :, None] * weight_x[..., None, :]).flatten(2)
    # Outside the outer centres the weights no longer add up to one.
    valid = (weight.sum(dim=2) > 0.999).float()
    if visible is not None:
        valid = valid * visible
    return ReturnTargets(weight, cells, valid)


def _transition(
    start: Float[Tensor, "b c h w"],
    end: Float[Tensor, "b c h w"],
    config: WalksConfig,
    generators: Sequence[torch.Generator],
) -> Transition:
    """Compute the probabilities of stepping from the cells of one feature map to those of another."""
    queries = start.flatten(2).transpose(1, 2)
    others = range(1, min(config.negatives, len(end) - 1) + 1)
    keys = [end, *(end.roll(other, dims=0) for other in others)]  # the clip itself, then negatives from other clips
    score = at_least_fp32(torch.cat([torch.bmm(queries, key.flatten(2)) for key in keys], dim=2)) / config.temperature
    if config.dropout and generators:
        drawn = [torch.rand(score.shape[1:], generator=one, device=score.device) for one in generators]
        score = score.masked_fill(torch.stack(drawn) < config.dropout, -1e4)
    # Steps to other clips end the walk: rows then sum to less than one.
    return score.softmax(dim=2)[..., : queries.shape[1]]


def _weights_by(amount: Float[Tensor, "b cells"], share: float) -> Float[Tensor, "b cells"]:
    """Weight cells by an amount: about 1 on average over a clip, and 1 - share where the amount is 0."""
    return 1 - share + share * amount / amount.mean(dim=1, keepdim=True).clamp_min(1e-6)


def _cross_entropy(walk: Transition, target: ReturnTargets, weight: Float[Tensor, "b cells"]) -> Scalar:
    cost = -(target.weight * (walk + 1e-8).log()).sum(dim=2)
    return ((cost * weight).sum(dim=1) / weight.sum(dim=1).clamp_min(1)).mean()


def object_loss(walk: Transition, pasted: PastedObjects) -> Scalar:
    """Return minus the log-probability that walks end on the object they started on; objects of a clip weigh equally.

    Unlike the cross-entropy to a cell, it does not separate the cells of an object from each other.
    """
    ids = torch.arange(pasted.count, device=walk.device)
    end = (pasted.end[..., None] == ids).float()
    reached = walk @ end
    cost = -(reached.gather(2, pasted.start[..., None])[..., 0] + 1e-6).log()
    start = (pasted.start[..., None] == ids).float() * (end.sum(dim=1, keepdim=True) > 0)  # objects that can be reached
    cells = start.sum(dim=1)
    object_costs = (cost[..., None] * start).sum(dim=1) / cells.clamp_min(1)
    return (object_costs.sum(dim=1) / (cells > 0).sum(dim=1).clamp_min(1)).mean()


@torch.no_grad()
def _diagnostics(walks: dict[int, Transition], target: ReturnTargets, grid: Grid) -> dict[str, Scalar]:
    """Compute how often walks end within a cell of their target, by length, and the entropy of the longest."""
    diagnostics = {}
    for length, walk in walks.items():
        best = walk.argmax(dim=2)
        cell = torch.stack([best % grid.x.cells, best // grid.x.cells], dim=-1)
        near = ((cell - target.cells).abs().amax(dim=-1) <= 1).float()
        diagnostics[f"return_rate_{length}"] = (near * target.valid).sum() / target.valid.sum().clamp_min(1)
    longest = walks[max(walks)]
    diagnostics["entropy"] = -(longest * longest.clamp_min(1e-12).log()).sum(dim=2).mean() / math.log(grid.cells)
    diagnostics["visible"] = target.valid.mean()
    return diagnostics
