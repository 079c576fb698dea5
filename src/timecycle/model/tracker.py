"""T = h(g(f)): find a patch in a frame and read its features there (section 3.2). Exists only while learning."""

from dataclasses import dataclass

from torch import nn

from timecycle.grid import Grid
from timecycle.model.affinity import Affinity, Features, Patches, affinity
from timecycle.model.localizer import LocalizerConfig, make_localizer
from timecycle.model.sampler import Cells, sample, scale_of, where
from timecycle.pose import Theta


@dataclass(frozen=True, eq=False)
class Tracked:
    """Where each patch was found, what was read there, and how it was found."""

    theta: Theta
    patches: Patches
    found: Affinity
    cells: Cells


class Tracker(nn.Module):
    """Follows patches into a frame. It is told nothing about where they were, so it cannot just stay."""

    def __init__(self, config: LocalizerConfig, *, frame_grid: Grid, patch_grid: Grid, temperature: float) -> None:
        super().__init__()
        self.frame_grid = frame_grid
        self.patch_grid = patch_grid
        self.temperature = temperature
        self.localizer = make_localizer(config, frame_grid=frame_grid, patch_grid=patch_grid)

    @property
    def scale(self) -> float:
        return scale_of(frame_grid=self.frame_grid, patch_grid=self.patch_grid)

    def forward(self, frame: Features, patches: Patches) -> Tracked:
        """All patches that visit a frame go there together: the frame's features are used once."""
        found = affinity(frame, patches, temperature=self.temperature)
        theta: Theta = self.localizer(found)
        cells = where(theta, frame_grid=self.frame_grid, patch_grid=self.patch_grid)
        return Tracked(theta, sample(frame, cells, patch_grid=self.patch_grid), found, cells)
