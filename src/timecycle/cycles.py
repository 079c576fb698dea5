"""Tracking cycles (section 3.1): follow a patch back in time and forward again; it should end where it began.

Frames come oldest first; the last is I_t, from which the patch was cut. All patches that visit a frame are tracked
into it together, and cycles of all lengths share the way back: for k past frames the tracker is called 2k times.
"""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from timecycle.errors import SettingsError
from timecycle.model.affinity import Affinity, Patches
from timecycle.model.localizer import LocalizerConfig
from timecycle.model.objective import Outcome, Scalar, weighted
from timecycle.model.sampler import Cells, inside, read_affinity, where
from timecycle.model.tracker import Tracked, Tracker
from timecycle.pose import Theta, alignment_error

Reduction = Literal["mean", "sum"]


@dataclass(frozen=True, kw_only=True)
class CyclesConfig:
    """Weights of the losses, and how these are put together from their parts.

    With `mean`, losses are averaged over the cycle lengths and the similarity over the patch's cells too. With `sum`,
    as the paper prints it, losses are added over the lengths, and the similarity over the cells: the negative Frobenius
    inner product of the two patches, which weighs 100 times as much on 10x10 cells. Either way they are averaged over
    the batch, and an alignment error over the points of its grid.
    """

    temperature: float = 0.0442  # 512 ** -0.5, of the 2019 release
    localizer: LocalizerConfig = field(default_factory=LocalizerConfig)
    long: float = 0.02
    skip: float = 0.1
    inlier: float = 1.0
    similarity: float = 0.0  # the paper's: its optimum is that all features are equal
    still: float = 0.0  # not in the paper: the patch found in its own frame, where its place is known
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        if self.reduction not in get_args(Reduction):
            raise SettingsError(f"cycles.reduction is {self.reduction!r}", remedy="choose one of mean, sum")
        if not 0 < self.temperature < math.inf:
            raise SettingsError(f"cycles.temperature is {self.temperature}", remedy="give a number above 0")
        for name, weight in self.weights.items():
            if not 0 <= weight < math.inf:
                raise SettingsError(f"cycles.{name} is {weight}", remedy="give 0 or more")

    @property
    def weights(self) -> dict[str, float]:
        """The weight of every loss, by name."""
        return {name: getattr(self, name) for name in ("long", "skip", "inlier", "similarity", "still")}


def cycle_losses(
    frames: Float[Tensor, "b n c h w"],
    patch: Float[Tensor, "b c rows columns"],
    theta: Float[Tensor, "b 3"],
    *,
    tracker: Tracker,
    config: CyclesConfig,
) -> Outcome:
    """The losses of cycles of lengths 1 to k for features of length one; `theta` is where the patch was cut."""
    tracks = _follow(frames, patch[:, None], tracker)
    error = {
        name: alignment_error(found.theta, theta[:, None], scale=tracker.scale)
        for name, found in (("long", tracks.long), ("skip", tracks.skip))
    }
    score = inlier_score(tracks.direct.found, tracks.direct.cells, tracker=tracker)
    truth = where(theta[:, None], frame_grid=tracker.frame_grid, patch_grid=tracker.patch_grid)
    cosines = (patch[:, None] * tracks.direct.patches).sum(dim=2)
    added = config.reduction == "sum"
    lengths, cells = (score.shape[1], tracker.patch_grid.cells) if added else (1, 1)
    losses = {
        "long": error["long"].mean() * lengths,
        "skip": error["skip"].mean() * lengths,
        "inlier": -score.mean() * lengths,
        "similarity": -cosines.mean() * (lengths * cells),
        "still": _surprise(tracks.still.found, truth, tracker),
    }
    return weighted(losses, config.weights, _figures(tracks, theta, error["long"], tracker))


def inlier_score(found: Affinity, cells: Cells, *, tracker: Tracker) -> Float[Tensor, "b m"]:
    """How much affinity lies where the pose says: the mean over the patch cells that the pose leaves in the frame.

    Affinities compete for a frame's cells, so equal features everywhere score only one over their number.
    """
    seen = inside(cells, tracker.frame_grid).float()
    value = read_affinity(found, cells, frame_grid=tracker.frame_grid)
    return (value * seen).sum(dim=2) / seen.sum(dim=2).clamp_min(1)


def _surprise(found: Affinity, cells: Cells, tracker: Tracker) -> Scalar:
    """Cross-entropy of where each patch cell is found to where it is known to be."""
    seen = inside(cells, tracker.frame_grid).float()
    value = read_affinity(found, cells, frame_grid=tracker.frame_grid)
    return -((value + 1e-8).log() * seen).sum() / seen.sum().clamp_min(1)


@dataclass(frozen=True, eq=False)
class _Tracks:
    """The ends of all cycles in I_t (lengths 1 to k), and the patch's direct tracks into the past frames and I_t."""

    long: Tracked
    skip: Tracked
    direct: Tracked
    still: Tracked


def _follow(frames: Float[Tensor, "b n c h w"], query: Patches, tracker: Tracker) -> _Tracks:
    # Taken apart once: every later indexing would cost a gradient of the size of all frames.
    *earlier, last = frames.unbind(dim=1)
    past = len(earlier)
    back: list[Patches] = []  # the patch after 1, 2 ... steps back
    direct: list[Tracked] = []
    for step in range(1, past + 1):
        frame = earlier[past - step]
        # The first step back is also the shortest skip.
        visitors = query if step == 1 else torch.cat([back[-1], query], dim=1)
        tracked = tracker(frame, visitors)
        back.append(tracked.patches[:, :1])
        direct.append(_part(tracked, slice(-1, None)))
    # Forward: at every frame all cycles that turned before it arrive together, the longest first.
    going: list[Patches] = []
    for step in range(past - 1, 0, -1):
        going = [*going, back[step]]
        tracked = tracker(earlier[past - step], torch.cat(going, dim=1))
        going = list(tracked.patches.split(1, dim=1))
    skips = [one.patches for one in direct[1:]]
    arrived = tracker(last, torch.cat([*going, back[0], *skips, query], dim=1))
    # `going` holds lengths k to 2 and back[0] length 1, whose cycle and skip are the same.
    lengths = list(range(past - 1, -1, -1))
    return _Tracks(
        long=_part(arrived, lengths),
        skip=_part(arrived, list(range(past - 1, 2 * past - 1))),
        direct=_joined(direct),
        still=_part(arrived, slice(-1, None)),
    )


def _part(tracked: Tracked, which: slice | list[int]) -> Tracked:
    return Tracked(tracked.theta[:, which], tracked.patches[:, which], tracked.found[:, which], tracked.cells[:, which])


def _joined(parts: list[Tracked]) -> Tracked:
    return Tracked(
        torch.cat([part.theta for part in parts], dim=1),
        torch.cat([part.patches for part in parts], dim=1),
        torch.cat([part.found for part in parts], dim=1),
        torch.cat([part.cells for part in parts], dim=1),
    )


@torch.no_grad()
def _figures(tracks: _Tracks, theta: Theta, error: Float[Tensor, "b m"], tracker: Tracker) -> dict[str, Scalar]:
    """Figures that tell learning from shortcuts."""
    found = tracks.direct.found
    cells = torch.tensor(float(found.shape[3]))
    entropy = -(found * found.clamp_min(1e-12).log()).sum(dim=3).mean() / cells.log()
    centre_error = alignment_error(torch.zeros_like(theta), theta, scale=tracker.scale).mean()
    half_px = tracker.frame_grid.x.pixels / 2
    return {
        "return_error_px": error.sqrt().mean() * half_px,
        # Against always guessing the centre: near 0 nothing is tracked, whatever the other losses say.
        "pose_gain": 1 - error.mean() / centre_error.clamp_min(1e-6),
        "entropy": entropy,  # 1: every frame cell is as likely as any other
        "outside": 1 - inside(tracks.direct.cells, tracker.frame_grid).float().mean(),
        # How different the places of different patches are: 0 when all are found at one fixed place.
        "spread": _spread(tracks.direct.theta) / _spread(theta).clamp_min(1e-6),
    }


def _spread(theta: Theta) -> Scalar:
    return theta[..., :2].std(dim=0, correction=0).mean()
