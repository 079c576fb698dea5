"""Tracker T(x^I, x^p) = h(x^I, g(f(x^I, x^p))): finds patches in a frame (section 3.2). Used only in training.

f   affinity.py    A = f(x^I, x^p)    similarity of every patch cell to every frame cell
g   localizer.py   theta = g(A)       pose of the patch in the frame
h   sampler.py     h(x^I, theta)      frame features at the sampling grid M(theta)
"""

from dataclasses import dataclass

from torch import nn

from timecycle.grid import Grid
from timecycle.model.affinity import Affinity, Features, Patches, compute_affinity
from timecycle.model.localizer import LocalizerConfig, make_localizer
from timecycle.model.sampler import SamplingGrid, patch_scale, sample, sampling_grid
from timecycle.pose import Theta


@dataclass(frozen=True, eq=False)
class Tracked:
    """Patches tracked into a frame."""

    affinity: Affinity  # A
    theta: Theta  # pose
    sampling_grid: SamplingGrid  # M(theta)
    patches: Patches  # the frame's features at M(theta)


class Tracker(nn.Module):
    """Tracks patches into a frame. It is not given their earlier poses, so that it cannot learn to stay in place."""

    def __init__(self, config: LocalizerConfig, *, frame_grid: Grid, patch_grid: Grid, temperature: float) -> None:
        super().__init__()
        self.frame_grid = frame_grid
        self.patch_grid = patch_grid
        self.temperature = temperature
        self.localizer = make_localizer(config, frame_grid=frame_grid, patch_grid=patch_grid)

    @property
    def scale(self) -> float:
        return patch_scale(frame_grid=self.frame_grid, patch_grid=self.patch_grid)

    def forward(self, frame: Features, patches: Patches) -> Tracked:
        """Track several patches into one frame at once."""
        affinity = compute_affinity(frame, patches, temperature=self.temperature)  # A = f(x^I, x^p)
        theta: Theta = self.localizer(affinity)  # theta = g(A)
        positions = sampling_grid(theta, frame_grid=self.frame_grid, patch_grid=self.patch_grid)  # M(theta)
        return Tracked(
            affinity, theta, positions, sample(frame, positions, patch_grid=self.patch_grid)
        )  # h(x^I, theta)
