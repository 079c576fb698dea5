"""Localizer g: estimates the pose theta of a patch from its affinity A. Three kinds share one interface.

`paper`       two 3x3 convolutions of 512 channels over the patch grid and one linear layer, as printed
`release`     4x4 convolutions of 128 and 64 channels, as in the authors' 2019 program
`procrustes`  a weighted rigid fit to the matches in closed form, without parameters
The learned kinds take every frame cell as a channel, so they work for one size of frame and patch.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from timecycle.errors import SettingsError
from timecycle.grid import Grid
from timecycle.model.affinity import Affinity
from timecycle.pose import Theta, apply_pose, cell_centres

Kind = Literal["paper", "release", "procrustes"]

_MIN_RELEASE_CELLS = 7  # two 4x4 convolutions without padding remove six


@dataclass(frozen=True, kw_only=True)
class LocalizerConfig:
    kind: Kind = "procrustes"  # without weights to learn; or the convolutions of `paper` or `release`
    sharpen: float = 2.0  # procrustes: power of the affinity before expectations; 1 pulls vague matches to the centre

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise SettingsError(f"localizer is {self.kind!r}", remedy=f"choose one of {', '.join(get_args(Kind))}")
        if not 0 < self.sharpen < math.inf:
            raise SettingsError(f"cycles.localizer.sharpen is {self.sharpen}", remedy="give a number above 0")


def make_localizer(config: LocalizerConfig, *, frame_grid: Grid, patch_grid: Grid) -> nn.Module:
    """Build the module that estimates poses from affinities."""
    if config.kind == "procrustes":
        return Procrustes(config.sharpen, frame_grid=frame_grid, patch_grid=patch_grid)
    if config.kind == "paper":
        return PaperLocalizer(frame_grid.cells, patch_grid)
    return ReleaseLocalizer(frame_grid.cells, patch_grid)


def min_patch_cells(config: LocalizerConfig) -> int:
    """Return how many cells wide a patch must be for this localizer."""
    return _MIN_RELEASE_CELLS if config.kind == "release" else 1


class PaperLocalizer(nn.Module):
    """Two 3x3 convolutions of 512 channels, then one linear layer to (tx, ty, alpha)."""

    def __init__(self, frame_cells: int, patch_grid: Grid) -> None:
        super().__init__()
        self._shape = (patch_grid.y.cells, patch_grid.x.cells)
        self.conv1 = nn.Conv2d(frame_cells, 512, 3, padding=1)
        self.conv2 = nn.Conv2d(512, 512, 3, padding=1)
        self.linear = nn.Linear(512 * patch_grid.cells, 3)
        _initialise(self, self.linear)

    def forward(self, affinity: Affinity) -> Theta:
        x = F.relu(self.conv1(_as_images(affinity, self._shape)))
        x = F.relu(self.conv2(x))
        theta: Tensor = self.linear(x.flatten(1))
        return theta.float().reshape(*affinity.shape[:2], 3)


class ReleaseLocalizer(nn.Module):
    """Two 4x4 convolutions without padding or bias, leaky ReLUs, one linear layer."""

    def __init__(self, frame_cells: int, patch_grid: Grid) -> None:
        super().__init__()
        self._shape = (patch_grid.y.cells, patch_grid.x.cells)
        remaining = (self._shape[0] - 6) * (self._shape[1] - 6)
        if min(self._shape) < _MIN_RELEASE_CELLS:
            raise SettingsError(
                f"the localizer `release` needs patches of at least 7x7 cells, not {self._shape[1]}x{self._shape[0]}",
                remedy="use larger patches (80 px at stride 8 are 10x10), or the localizer `paper` or `procrustes`",
            )
        self.conv1 = nn.Conv2d(frame_cells, 128, 4, bias=False)
        self.conv2 = nn.Conv2d(128, 64, 4, bias=False)
        self.linear = nn.Linear(64 * remaining, 3)
        _initialise(self, self.linear)

    def forward(self, affinity: Affinity) -> Theta:
        x = F.leaky_relu(self.conv1(_as_images(affinity, self._shape)), 0.1)
        x = F.leaky_relu(self.conv2(x), 0.1)
        theta: Tensor = self.linear(x.flatten(1))
        return theta.float().reshape(*affinity.shape[:2], 3)


class Procrustes(nn.Module):
    """Fits the rotation and translation from the patch's cells to their expected positions in the frame.

    Each cell is weighted by its largest affinity, so that certain matches count more.
    """

    def __init__(self, sharpen: float, *, frame_grid: Grid, patch_grid: Grid) -> None:
        super().__init__()
        self._sharpen = sharpen
        scale = patch_grid.x.pixels / frame_grid.x.pixels
        self.register_buffer("frame", cell_centres(frame_grid), persistent=False)
        self.register_buffer("patch", scale * cell_centres(patch_grid), persistent=False)
        self.frame: Tensor
        self.patch: Tensor

    def forward(self, affinity: Affinity) -> Theta:
        sharp = affinity**self._sharpen
        sharp = sharp / sharp.sum(dim=3, keepdim=True)
        expected = sharp @ self.frame  # b m patch 2
        largest = affinity.amax(dim=3)
        weight = (largest / largest.sum(dim=2, keepdim=True))[..., None]
        target, source = ((weight * points).sum(dim=2, keepdim=True) for points in (expected, self.patch))
        x, y = (expected - target).unbind(dim=-1)
        u, v = (self.patch - source).unbind(dim=-1)
        w = weight[..., 0]
        dot, cross = (w * (u * x + v * y)).sum(dim=2), (w * (u * y - v * x)).sum(dim=2)
        # Where all cells are expected at one point there is no direction: then no rotation, and a finite gradient.
        alpha = torch.atan2(cross, dot + 1e-8)
        zero = torch.zeros_like(alpha)
        rotated = apply_pose(torch.stack([zero, zero, alpha], dim=-1), source, scale=1.0)
        translation = (target - rotated)[:, :, 0]
        return torch.cat([translation, alpha[..., None]], dim=-1)


def _as_images(affinity: Affinity, shape: tuple[int, int]) -> Float[Tensor, "bm frame rows columns"]:
    """View affinities as images of the patch grid with a channel for each frame cell; memory is channels last."""
    return affinity.reshape(-1, *shape, affinity.shape[3]).permute(0, 3, 1, 2)


def _initialise(localizer: nn.Module, linear: nn.Linear) -> None:
    """Initialise convolutions by Kaiming (fan out) and the last layer near zero: first poses are the frame's centre."""
    for module in localizer.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    nn.init.normal_(linear.weight, std=0.01)
    nn.init.zeros_(linear.bias)
