"""Cycle-consistent tracking (section 3.1): track a patch back in time and forward again to where it was cut.

Frames come oldest first; the last is I_t, from which the patch p_t was cut at the pose theta. For i = 1 to k:

    L_long^i   l_theta of the long cycle   I_t -> I_t-1 -> ... -> I_t-i -> ... -> I_t-1 -> I_t
    L_skip^i   l_theta of the skip cycle   I_t -> I_t-i -> I_t
    L_sim^i    similarity of the patch and its direct track into I_t-i

Patches that go to the same frame are tracked together, and cycles of all lengths share the way back, so the tracker is
called 2k times.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from timecycle.errors import SettingsError
from timecycle.model.affinity import Affinity, Patches
from timecycle.model.localizer import LocalizerConfig
from timecycle.model.sampler import SamplingGrid, inside_frame, sample_affinity, sampling_grid
from timecycle.model.tracker import Tracked, Tracker
from timecycle.objectives import ObjectiveResult, Scalar, weighted_sum
from timecycle.pose import Theta, alignment_error

Reduction = Literal["mean", "sum"]

# The step that ends in I_t for long and skip cycles, the step into I_t-i for direct tracks, and the step into I_t
# itself (length 0) for the same-frame cycle.
Kind = Literal["long", "skip", "direct", "same_frame"]
Tracks = dict[Kind, dict[int, Tracked]]  # by kind and cycle length


@dataclass(frozen=True, kw_only=True)
class CyclesConfig:
    """The weights of the losses, and how each loss is reduced to a number.

    With `mean`, losses are averaged over the cycle lengths and the similarity over the patch's cells too. With `sum`,
    as the paper prints it, losses are added over the lengths and the similarity over the cells: it is then the
    negative Frobenius inner product of the two patches, which weighs 100 times as much on 10x10 cells. Either way
    losses are averaged over the batch, and an alignment error over the points of its grid.
    """

    temperature: float = 0.0442  # 512 ** -0.5, of the 2019 release
    localizer: LocalizerConfig = field(default_factory=LocalizerConfig)
    long: float = 0.02  # weight of the cycles through every frame
    skip: float = 0.1  # weight of the cycles that jump to a frame directly
    inlier: float = 1.0  # weight of the inlier score
    similarity: float = 0.0  # the paper's: its optimum is that all features are equal
    same_frame: float = 0.0  # not in the paper: the patch is matched to its own frame, where its pose is known
    reduction: Reduction = "mean"  # over cycle lengths and cells: mean, or sum as the paper prints it

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
        return {name: getattr(self, name) for name in ("long", "skip", "inlier", "similarity", "same_frame")}


def cycle_losses(
    frames: Float[Tensor, "b n c h w"],
    patch: Float[Tensor, "b c rows columns"],
    theta: Float[Tensor, "b 3"],
    *,
    tracker: Tracker,
    config: CyclesConfig,
) -> ObjectiveResult:
    """Compute the losses of cycles of lengths 1 to k; features have unit length, `theta` is the pose of the patch."""
    tracks = track_cycles(frames, patch[:, None], tracker)

    def error(track: Tracked) -> Tensor:
        return alignment_error(track.theta, theta[:, None], scale=tracker.scale)

    def score(track: Tracked) -> Tensor:
        return inlier_score(track.affinity, track.sampling_grid, tracker=tracker)

    summed = config.reduction == "sum"
    lengths, cells = (len(tracks["long"]), tracker.patch_grid.cells) if summed else (1, 1)
    long_error = _by_length(tracks["long"], error)
    cosine = (patch[:, None] * _by_length(tracks["direct"], lambda track: track.patches)).sum(dim=2)
    target = sampling_grid(theta[:, None], frame_grid=tracker.frame_grid, patch_grid=tracker.patch_grid)
    losses = {
        "long": long_error.mean() * lengths,
        "skip": _by_length(tracks["skip"], error).mean() * lengths,
        "inlier": -_by_length(tracks["direct"], score).mean() * lengths,
        "similarity": -cosine.mean() * (lengths * cells),
        "same_frame": _cross_entropy(tracks["same_frame"][0].affinity, target, tracker),
    }
    return weighted_sum(losses, config.weights, _diagnostics(tracks["direct"], theta, long_error, tracker))


def track_cycles(frames: Float[Tensor, "b n c h w"], query: Patches, tracker: Tracker) -> Tracks:
    """Track a patch of the last frame through all cycles; results are keyed by kind and cycle length."""
    # Split once: indexing at every step would cost a gradient of the size of all frames each time.
    *past, current = frames.unbind(dim=1)
    k = len(past)
    # Backward, T^(-i): from I_t-i+1 to I_t-i, together with the direct track of the query into I_t-i.
    backward: dict[int, Patches] = {}
    direct: dict[int, Tracked] = {}
    for i in range(1, k + 1):
        # The first step back is the direct track of length 1.
        patches = query if i == 1 else torch.cat([backward[i - 1], query], dim=1)
        tracked = tracker(past[k - i], patches)
        backward[i] = tracked.patches[:, :1]
        direct[i] = _select(tracked, patches.shape[1] - 1)
    # Forward, T^(i): into I_t-i go all cycles that turned in an earlier frame, the longest first.
    forward: list[Patches] = []
    for i in range(k - 1, 0, -1):
        forward = [*forward, backward[i + 1]]
        forward = list(tracker(past[k - i], torch.cat(forward, dim=1)).patches.split(1, dim=1))
    # Into I_t go long cycles of lengths k to 1, skip cycles of lengths 2 to k, and the query. For length 1 the long
    # cycle and the skip cycle are the same.
    skips = [direct[i].patches for i in range(2, k + 1)]
    last = tracker(current, torch.cat([*forward, backward[1], *skips, query], dim=1))
    return {
        "long": {i: _select(last, k - i) for i in range(1, k + 1)},
        "skip": {i: _select(last, k + i - 2) for i in range(1, k + 1)},
        "direct": direct,
        "same_frame": {0: _select(last, 2 * k - 1)},
    }


def _select(tracked: Tracked, index: int) -> Tracked:
    """Select one of the patches that were tracked together."""
    one = slice(index, index + 1)
    return Tracked(
        tracked.affinity[:, one], tracked.theta[:, one], tracked.sampling_grid[:, one], tracked.patches[:, one]
    )


def _by_length(tracks: Mapping[int, Tracked], measure: Callable[[Tracked], Tensor]) -> Float[Tensor, "b k ..."]:
    """Measure tracks of one kind and stack the results by cycle length."""
    return torch.cat([measure(track) for track in tracks.values()], dim=1)


def inlier_score(affinity: Affinity, positions: SamplingGrid, *, tracker: Tracker) -> Float[Tensor, "b m"]:
    """Return the mean affinity at the sampling grid, over the patch cells that lie inside the frame.

    Affinities compete for a frame's cells, so equal features everywhere score only one over their number.
    """
    inside = inside_frame(positions, tracker.frame_grid).float()
    value = sample_affinity(affinity, positions, frame_grid=tracker.frame_grid)
    return (value * inside).sum(dim=2) / inside.sum(dim=2).clamp_min(1)


def _cross_entropy(affinity: Affinity, positions: SamplingGrid, tracker: Tracker) -> Scalar:
    """Return the cross-entropy of the affinity to the known positions of the patch cells."""
    inside = inside_frame(positions, tracker.frame_grid).float()
    value = sample_affinity(affinity, positions, frame_grid=tracker.frame_grid)
    cost = -((value + 1e-8).log() * inside).flatten(1).sum(dim=1)
    return (cost / inside.flatten(1).sum(dim=1).clamp_min(1)).mean()


@torch.no_grad()
def _diagnostics(
    direct: Mapping[int, Tracked], theta: Theta, long_error: Float[Tensor, "b k"], tracker: Tracker
) -> dict[str, Scalar]:
    """Compute the numbers that tell learning from shortcuts."""

    def entropy(track: Tracked) -> Tensor:
        return -(track.affinity * track.affinity.clamp_min(1e-12).log()).sum(dim=3)

    def inside(track: Tracked) -> Tensor:
        return inside_frame(track.sampling_grid, tracker.frame_grid).float()

    centre_error = alignment_error(torch.zeros_like(theta), theta, scale=tracker.scale).mean()
    half_px = tracker.frame_grid.x.pixels / 2
    return {
        "return_error_px": long_error.sqrt().mean() * half_px,
        # Against always guessing the centre: near 0 nothing is tracked, whatever the other losses say.
        "pose_gain": 1 - long_error.mean() / centre_error.clamp_min(1e-6),
        # 1: every frame cell is as likely as any other.
        "entropy": _by_length(direct, entropy).mean() / math.log(tracker.frame_grid.cells),
        "outside": 1 - _by_length(direct, inside).mean(),
        # How much the estimated poses of different patches differ: 0 when all get the same pose.
        "spread": _spread(_by_length(direct, lambda track: track.theta)) / _spread(theta).clamp_min(1e-6),
    }


def _spread(theta: Theta) -> Scalar:
    return theta[..., :2].std(dim=0, correction=0).mean()
