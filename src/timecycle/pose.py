"""Where a patch lies in a frame: theta = (tx, ty, alpha), its grid M(theta) and the alignment error l_theta.

Frame and patch have coordinates of their own, x right and y down, from -1 to 1 between the outer *edges* of their
pixels (align_corners=False): pixel p of n lies at (2p + 1) / n - 1. A pose puts the patch's centre on (tx, ty) and
turns it by alpha; its size is that of the patch against the frame, never a constant.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from timecycle.grid import Axis, Grid

Theta = Float[Tensor, "*batch 3"]  # tx, ty in frame coordinates; alpha in radians, from x towards y
Places = Float[Tensor, "*batch points 2"]  # (x, y)


def place(theta: Theta, points: Float[Tensor, "*#batch points 2"], *, scale: float) -> Places:
    """M(theta): points of the patch in frame coordinates; `scale` is the patch's size over the frame's."""
    tx, ty, alpha = (part[..., None] for part in theta.unbind(dim=-1))
    cos, sin = alpha.cos(), alpha.sin()
    u, v = points.unbind(dim=-1)
    return torch.stack([scale * (cos * u - sin * v) + tx, scale * (sin * u + cos * v) + ty], dim=-1)


def alignment_error(
    a: Theta, b: Float[Tensor, "*#batch 3"], *, scale: float, side: int = 10
) -> Float[Tensor, "*batch"]:
    """l_theta: the mean squared distance between the points of a patch under two poses, in frame coordinates.

    The points are the centres of side x side equal squares; the square root times half the frame's length in pixels
    is a distance in pixels.
    """
    points = square_places(side).to(a)
    difference = place(a, points, scale=scale) - place(b, points, scale=scale)
    return difference.square().sum(dim=-1).mean(dim=-1)


def square_places(side: int) -> Float[Tensor, "places 2"]:
    """The (x, y) of the pixels of a square picture, row by row, in its own coordinates."""
    line = (torch.arange(side) * 2 + 1) / side - 1
    return torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1).flatten(0, 1)


def mapped_cells(maps: Float[Tensor, "b 2 3"], grid: Grid) -> Float[Tensor, "b cells 2"]:
    """Where affine maps from one view to another put the first view's cells, in cells of the second."""
    points = cell_places(grid, device=maps.device)
    return to_cells(torch.einsum("bxy,py->bpx", maps[..., :2], points) + maps[:, None, :, 2], grid)


def cell_places(grid: Grid, *, device: torch.device | None = None) -> Places:
    """Where the cells of a feature map look, in the coordinates of their own image, row by row."""
    x, y = (_normalised(axis, device) for axis in (grid.x, grid.y))
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1).flatten(0, 1)


def to_cells(points: Places, grid: Grid) -> Places:
    """Frame coordinates as (column, row) of the frame's feature map, fractional and possibly outside."""
    x, y = points.unbind(dim=-1)
    return torch.stack([_cell(x, grid.x), _cell(y, grid.y)], dim=-1)


def _normalised(axis: Axis, device: torch.device | None) -> Float[Tensor, " cells"]:
    pixel = axis.pixel_of(torch.arange(axis.cells, device=device, dtype=torch.float32))
    return (2 * pixel + 1) / axis.pixels - 1


def _cell(coordinate: Float[Tensor, "*batch points"], axis: Axis) -> Float[Tensor, "*batch points"]:
    return axis.cell_of(((coordinate + 1) * axis.pixels - 1) / 2)
