"""h: features read from a frame where a pose puts the patch (section 3.2)."""

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.grid import Grid
from timecycle.model.affinity import Affinity, Features, Patches, at_least_fp32
from timecycle.pose import Theta, cell_places, place, to_cells

Cells = Float[Tensor, "b m patch 2"]  # (column, row) on the frame's feature map of every cell of a patch


def where(theta: Theta, *, frame_grid: Grid, patch_grid: Grid) -> Cells:
    """M(theta) at the cells of the patch, in cells of the frame."""
    scale = scale_of(frame_grid=frame_grid, patch_grid=patch_grid)
    points = cell_places(patch_grid, device=theta.device).to(theta.dtype)
    return to_cells(place(theta, points, scale=scale), frame_grid)


def scale_of(*, frame_grid: Grid, patch_grid: Grid) -> float:
    """The patch's size over the frame's."""
    return patch_grid.x.pixels / frame_grid.x.pixels


def sample(frame: Features, cells: Cells, *, patch_grid: Grid) -> Patches:
    """The frame's features at these cells; zero outside the frame.

    Descriptors mixed from four neighbours are shorter than one, so they are scaled to length one again.
    """
    size = torch.tensor([frame.shape[3], frame.shape[2]], device=cells.device, dtype=cells.dtype)
    # grid_sample counts from -1 to 1 between the outer edges of the map. In bf16 it is slower and would round places.
    read = F.grid_sample(at_least_fp32(frame), (2 * cells + 1) / size - 1, align_corners=False)
    read = F.normalize(read, dim=1).transpose(1, 2)
    return read.reshape(*read.shape[:3], patch_grid.y.cells, patch_grid.x.cells)


def read_affinity(found: Affinity, cells: Cells, *, frame_grid: Grid) -> Float[Tensor, "b m patch"]:
    """For each patch cell, its own affinity map read bilinearly at its own place; zero outside the frame."""
    low = cells.floor()
    part = cells - low
    total = torch.zeros_like(found[..., 0])
    for right in (0, 1):
        for down in (0, 1):
            corner = low + torch.tensor([right, down], device=cells.device, dtype=cells.dtype)
            share = (part[..., 0] if right else 1 - part[..., 0]) * (part[..., 1] if down else 1 - part[..., 1])
            seen = inside(corner, frame_grid)
            index = corner[..., 1] * frame_grid.x.cells + corner[..., 0]
            value = found.gather(3, index.masked_fill(~seen, 0).long()[..., None])[..., 0]
            total = total + share * seen * value
    return total


def inside(cells: Cells, grid: Grid) -> Bool[Tensor, "b m patch"]:
    """Which places lie on the frame's feature map."""
    column, row = cells.unbind(dim=-1)
    return (column >= 0) & (column <= grid.x.cells - 1) & (row >= 0) & (row <= grid.y.cells - 1)
