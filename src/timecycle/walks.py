"""Walks over two views: out through time in one geometric view of a clip, back in another (the second objective).

A walker starts on a cell of the first frame, steps from frame to frame with the probabilities of an affinity, turns,
and comes back in the other view. There it should stand where the known map between the views puts its start. The two
views share no place, so neither standing still nor matching by position closes the walk.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from timecycle.errors import SettingsError
from timecycle.grid import Grid
from timecycle.model.affinity import at_least_fp32
from timecycle.model.objective import Outcome, Scalar, weighted
from timecycle.pose import to_cells

Views = Float[Tensor, "b n c h w"]  # features of length one of n frames of a clip in one view
Steps = Float[Tensor, "b cells cells"]  # for each cell a distribution over the cells of the next frame
Places = Float[Tensor, "b cells 2"]  # of the first view's cells in the coordinates of the second


@dataclass(frozen=True, kw_only=True)
class WalksConfig:
    temperature: float = 0.07
    dropout: float = 0.1  # share of possible steps that are closed, so that no walk relies on one way
    walk: float = 1.0
    still: float = 1.0  # the walk of length 0: from one view to the other in the same frame
    things: float = 0.0  # the walk should end on the thing it began on, wherever on it
    strangers: int = 0  # other clips of the batch among whose cells a walker may get lost at every step
    motion: float = 0.0  # share of a loss that goes to cells by how much they change; the rest goes to all alike

    def __post_init__(self) -> None:
        for name in ("walk", "still", "things", "strangers"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SettingsError(f"walks.{name} is {getattr(self, name)}", remedy="give 0 or more")
        if not 0 < self.temperature < math.inf:
            raise SettingsError(f"walks.temperature is {self.temperature}", remedy="give a number above 0")
        if not 0 <= self.dropout < 1 or not 0 <= self.motion <= 1:
            raise SettingsError(
                f"walks.dropout is {self.dropout} and walks.motion {self.motion}",
                remedy="give a dropout from 0 to below 1, and a motion from 0 to 1",
            )


@dataclass(frozen=True, eq=False)
class Things:
    """Which thing cells lie on, in the first frame of the view a walk begins in and of the one it ends in."""

    on: Int[Tensor, "b cells"]
    home: Int[Tensor, "b cells"]


def walk_losses(
    out: Views,
    back: Views,
    places: Places,
    *,
    grid: Grid,
    config: WalksConfig,
    visible: Bool[Tensor, "b cells"] | None = None,
    things: Things | None = None,
    change: Float[Tensor, "b cells"] | None = None,
    generator: torch.Generator | None = None,
) -> Outcome:
    """Cross-entropy of where walks of every length end to the known places of their starts in the other view.

    Cells that are not `visible` all the way are left out. `change` is how much each cell of the first frame of `out`
    changes to the next, on any scale.
    """
    target = returns(places, grid, visible)
    # Taken apart once: every later indexing would cost a gradient of the size of all frames.
    going, coming = out.unbind(dim=1), back.unbind(dim=1)
    away = torch.eye(grid.cells, device=out.device).expand(len(out), -1, -1)
    home = away
    ends: dict[int, Steps] = {0: _steps(going[0], coming[0], config, generator)}
    for length in range(1, len(going)):
        away = away @ _steps(going[length - 1], going[length], config, generator)
        if length > 1:
            home = _steps(coming[length - 1], coming[length - 2], config, generator) @ home
        turn = _steps(going[length], coming[length - 1], config, generator)
        ends[length] = away @ (turn @ home)
    weight = target.seen if change is None else target.seen * _by_motion(change, config.motion)
    costs = {length: _cross_entropy(end, target, weight) for length, end in ends.items()}
    walks = [cost for length, cost in costs.items() if length > 0]
    losses = {"still": costs[0]} | ({"walk": torch.stack(walks).mean()} if walks else {})
    if things is not None:
        losses["things"] = torch.stack([astray(end, things) for end in ends.values()]).mean()
    weights = {"walk": config.walk, "still": config.still, "things": config.things}
    return weighted(losses, weights, _figures(ends, target, grid))


@dataclass(frozen=True, eq=False)
class Returns:
    """Where each cell's walk should end: weights of the cells around the place, and whether the view has it."""

    weight: Steps
    cells: Float[Tensor, "b cells 2"]
    seen: Float[Tensor, "b cells"]


def returns(places: Places, grid: Grid, visible: Bool[Tensor, "b cells"] | None = None) -> Returns:
    """The places of the first view's cells in the second view, as bilinear weights of its cells."""
    cells = to_cells(places, grid)
    column, row = cells.unbind(dim=-1)
    across, down = (
        (1 - (place[..., None] - torch.arange(count, device=places.device)).abs()).clamp_min(0)
        for place, count in ((column, grid.x.cells), (row, grid.y.cells))
    )
    weight = (down[..., :, None] * across[..., None, :]).flatten(2)
    # Outside the outer centres the weights no longer add up to one.
    seen = (weight.sum(dim=2) > 0.999).float()
    if visible is not None:
        seen = seen * visible
    return Returns(weight, cells, seen)


def _steps(
    start: Float[Tensor, "b c h w"],
    end: Float[Tensor, "b c h w"],
    config: WalksConfig,
    generator: torch.Generator | None,
) -> Steps:
    walkers = start.flatten(2).transpose(1, 2)
    others = range(1, min(config.strangers, len(end) - 1) + 1)
    ends = [end, *(end.roll(other, dims=0) for other in others)]  # its own clip first
    score = at_least_fp32(torch.cat([torch.bmm(walkers, one.flatten(2)) for one in ends], dim=2)) / config.temperature
    if config.dropout and generator is not None:
        closed = torch.rand(score.shape, generator=generator, device=score.device) < config.dropout
        score = score.masked_fill(closed, -1e4)
    # What goes to strangers never comes back: rows then sum to less than one.
    return score.softmax(dim=2)[..., : walkers.shape[1]]


def _by_motion(change: Float[Tensor, "b cells"], share: float) -> Float[Tensor, "b cells"]:
    """Weights of about one on average over the cells of a clip; all alike where nothing changes."""
    return 1 - share + share * change / change.mean(dim=1, keepdim=True).clamp_min(1e-6)


def _cross_entropy(end: Steps, target: Returns, weight: Float[Tensor, "b cells"]) -> Scalar:
    cost = -(target.weight * (end + 1e-8).log()).sum(dim=2)
    return (cost * weight).sum() / weight.sum().clamp_min(1)


def astray(end: Steps, things: Things) -> Scalar:
    """Minus the logarithm of how likely walks end on the thing they began on; every thing of a clip counts alike.

    Unlike the cross-entropy to a place it does not part the cells of a thing from each other.
    """
    count = int(max(things.on.max(), things.home.max())) + 1
    home = one_hot(things.home, count).float()
    arrived = end @ home
    cost = -(arrived.gather(2, things.on[..., None])[..., 0] + 1e-6).log()
    began = one_hot(things.on, count).float() * (home.sum(dim=1, keepdim=True) > 0)  # things that can be reached
    cells = began.sum(dim=1)
    of_things = (cost[..., None] * began).sum(dim=1) / cells.clamp_min(1)
    return of_things.sum() / (cells > 0).sum().clamp_min(1)


@torch.no_grad()
def _figures(ends: dict[int, Steps], target: Returns, grid: Grid) -> dict[str, Scalar]:
    """How often walks come home within a cell, by length, and how sure each is."""
    figures = {}
    for length, end in ends.items():
        best = end.argmax(dim=2)
        place = torch.stack([best % grid.x.cells, best // grid.x.cells], dim=-1)
        near = ((place - target.cells).abs().amax(dim=-1) <= 1).float()
        figures[f"home_{length}"] = (near * target.seen).sum() / target.seen.sum().clamp_min(1)
    longest = ends[max(ends)]
    cells = torch.tensor(float(grid.cells))
    figures["entropy"] = -(longest * longest.clamp_min(1e-12).log()).sum(dim=2).mean() / cells.log()
    figures["seen"] = target.seen.mean()
    return figures
