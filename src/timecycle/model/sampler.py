"""Bilinear sampler h: reads patch features from a frame at the sampling grid M(theta) (section 3.2)."""

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float
from torch import Tensor

from timecycle.grid import Grid
from timecycle.model.affinity import Affinity, Features, Patches, at_least_fp32
from timecycle.pose import Theta, apply_pose, cell_centres, to_cells

SamplingGrid = Float[Tensor, "b m patch 2"]  # for every patch cell its (column, row) on the frame's feature map


def sampling_grid(theta: Theta, *, frame_grid: Grid, patch_grid: Grid) -> SamplingGrid:
    """Return M(theta) at the cells of the patch, in cells of the frame."""
    scale = patch_scale(frame_grid=frame_grid, patch_grid=patch_grid)
    points = cell_centres(patch_grid, device=theta.device).to(theta.dtype)
    return to_cells(apply_pose(theta, points, scale=scale), frame_grid)


def patch_scale(*, frame_grid: Grid, patch_grid: Grid) -> float:
    """Return the patch's size over the frame's."""
    return patch_grid.x.pixels / frame_grid.x.pixels


def sample(frame: Features, positions: SamplingGrid, *, patch_grid: Grid) -> Patches:
    """Sample the frame's features bilinearly at these positions; features are zero outside the frame.

    A mean of four descriptors is shorter than they are, so the result is scaled to unit length again.
    """
    size = torch.tensor([frame.shape[3], frame.shape[2]], device=positions.device, dtype=positions.dtype)
    # grid_sample counts from -1 to 1 between the outer edges of the map. In bf16 it is slower and rounds positions.
    features = F.grid_sample(at_least_fp32(frame), (2 * positions + 1) / size - 1, align_corners=False)
    features = F.normalize(features, dim=1).transpose(1, 2)
    return features.reshape(*features.shape[:3], patch_grid.y.cells, patch_grid.x.cells)


def sample_affinity(affinity: Affinity, positions: SamplingGrid, *, frame_grid: Grid) -> Float[Tensor, "b m patch"]:
    """Sample each patch cell's own affinity map bilinearly at the cell's own position; zero outside the frame."""
    low = positions.floor()
    fraction = positions - low
    total = torch.zeros_like(affinity[..., 0])
    for right in (0, 1):
        for down in (0, 1):
            corner = low + torch.tensor([right, down], device=positions.device, dtype=positions.dtype)
            weight_x = fraction[..., 0] if right else 1 - fraction[..., 0]
            weight_y = fraction[..., 1] if down else 1 - fraction[..., 1]
            valid = inside_frame(corner, frame_grid)
            index = corner[..., 1] * frame_grid.x.cells + corner[..., 0]
            value = affinity.gather(3, index.masked_fill(~valid, 0).long()[..., None])[..., 0]
            total = total + weight_x * weight_y * valid * value
    return total


def inside_frame(positions: SamplingGrid, grid: Grid) -> Bool[Tensor, "b m patch"]:
    """Return which positions lie on the frame's feature map."""
    column, row = positions.unbind(dim=-1)
    return (column >= 0) & (column <= grid.x.cells - 1) & (row >= 0) & (row <= grid.y.cells - 1)
