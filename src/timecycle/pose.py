"""The pose theta = (tx, ty, alpha) of a patch in a frame, its sampling grid M(theta) and the alignment error l_theta.

Frame and patch each have normalised coordinates, x right and y down, from -1 to 1 between the outer *edges* of their
pixels (align_corners=False): pixel p of n is centred on (2p + 1) / n - 1. A pose rotates the patch by alpha about its
centre and moves the centre to (tx, ty). The scale is the patch's size over the frame's, never a constant.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from timecycle.grid import Axis, Grid

Theta = Float[Tensor, "*batch 3"]  # tx, ty in frame coordinates; alpha in radians, from x towards y
Points = Float[Tensor, "*batch points 2"]  # (x, y)


def apply_pose(theta: Theta, points: Float[Tensor, "*#batch points 2"], *, scale: float) -> Points:
    """Map points of the patch to frame coordinates: M(theta); `scale` is the patch's size over the frame's."""
    tx, ty, alpha = (parameter[..., None] for parameter in theta.unbind(dim=-1))
    cos, sin = alpha.cos(), alpha.sin()
    u, v = points.unbind(dim=-1)
    return torch.stack([scale * (cos * u - sin * v) + tx, scale * (sin * u + cos * v) + ty], dim=-1)


def alignment_error(
    a: Theta, b: Float[Tensor, "*#batch 3"], *, scale: float, side: int = 10
) -> Float[Tensor, "*batch"]:
    """Return l_theta: the mean squared distance between the points of a patch under two poses, in frame coordinates.

    The points are the centres of side x side equal squares. The square root of the error times half the frame's side
    in pixels is a distance in pixels.
    """
    points = pixel_centres(side).to(a)
    difference = apply_pose(a, points, scale=scale) - apply_pose(b, points, scale=scale)
    return difference.square().sum(dim=-1).mean(dim=-1)


def pixel_centres(side: int) -> Float[Tensor, "pixels 2"]:
    """Return the (x, y) of the pixels of a square image, row by row, in its normalised coordinates."""
    line = (torch.arange(side) * 2 + 1) / side - 1
    return torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1).flatten(0, 1)


def cell_centres(grid: Grid, *, device: torch.device | None = None) -> Points:
    """Return the (x, y) of the cells of a feature map, row by row, in the normalised coordinates of its image."""
    x, y = (_normalised_centres(axis, device) for axis in (grid.x, grid.y))
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1).flatten(0, 1)


def map_cells(maps: Float[Tensor, "b 2 3"], grid: Grid) -> Float[Tensor, "b cells 2"]:
    """Map the cells of one view to another view by affine maps; the result is in cells of the second view."""
    points = cell_centres(grid, device=maps.device)
    return to_cells(torch.einsum("bxy,py->bpx", maps[..., :2], points) + maps[:, None, :, 2], grid)


def to_cells(points: Points, grid: Grid) -> Points:
    """Convert frame coordinates to (column, row) of the frame's feature map, fractional and possibly outside it."""
    x, y = points.unbind(dim=-1)
    return torch.stack([_to_cells(x, grid.x), _to_cells(y, grid.y)], dim=-1)


def _normalised_centres(axis: Axis, device: torch.device | None) -> Float[Tensor, " cells"]:
    pixel = axis.pixel_of(torch.arange(axis.cells, device=device, dtype=torch.float32))
    return (2 * pixel + 1) / axis.pixels - 1


def _to_cells(coordinate: Float[Tensor, "*batch points"], axis: Axis) -> Float[Tensor, "*batch points"]:
    return axis.cell_of(((coordinate + 1) * axis.pixels - 1) / 2)
