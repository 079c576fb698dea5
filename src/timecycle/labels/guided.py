"""Image-guided decoding: outlines that follow the edges of the image (guided filter; He, Sun and Tang 2010).

Around every cell, each channel of a label map is fitted by a linear function of the image's colours, as in the fast
guided filter: on the grid of the labels, with the pooled image. These functions are averaged over overlapping windows,
interpolated to every pixel, and applied to the pixel's own colour. Unlike in the usual filter, what the windows smooth
away is added again as far as colours do not explain the labels: where the image has no edges, labels are decoded as
without a guide, and thin parts are kept. Two channels of a distribution keep their sum; of more, the background takes
what objects leave.
"""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from timecycle.grid import Axis, Grid
from timecycle.kernel import deciding as compiled
from timecycle.kernel.library import kernel_for
from timecycle.labels.label_map import LabelValues, pool, upsample

Coefficients = Float[Tensor, "fine_rows fine_columns channels 4"]  # of red, green, blue (0 to 1) and a constant
Maps = Float[Tensor, "maps rows columns"]
Rectangle = tuple[slice, slice]

_LABELS_PER_CELL = 2  # along each side of a feature cell, at least
_EPSILON = 1e-3  # variance of colours (0 to 1) below which the image has no edges
_SMALL_SHARE = 1e-3  # of a channel in a cell: less neither counts nor makes an outline
_SMALL_VARIANCE = 1e-4  # of a channel: less is not worth explaining
_OUTLINE_VARIANCE = 0.02  # of a channel around a cell: more is an outline
_CONSTANT = (0, 0, 0, 1)


def guided_argmax(
    values: LabelValues, grid: Grid, *, image: UInt8[Tensor, "height width 3"], subcells: int
) -> Int[Tensor, "height width"]:
    """Return the strongest channel at every pixel, guided by the image; the lowest channel wins a tie.

    Channel 0 is the background and all channels sum to one; feature cells have `subcells` labels along each side.
    """
    parts = max(_LABELS_PER_CELL // subcells, 1)
    divided, fine = _divided(grid, parts), grid.subdivided(parts)
    radius, functions = subcells * parts, kernel_for(values)
    colours = mean_colours(image, fine)
    if functions is None:
        return evaluate(fit_lines(values, divided, colours, radius=radius), fine, image).argmax(dim=0).int()
    return compiled.decide_guided(functions, values, divided, colours, fine, image, radius=radius, epsilon=_EPSILON)


def fit_lines(
    values: LabelValues, divided: Grid, guide: Float[Tensor, "fine_rows fine_columns 3"], *, radius: int
) -> Coefficients:
    """Fit every channel by a linear function of the guide around every cell, averaged over the windows that hold it.

    The cells are those of the guide: `divided` interpolates the label map to them. What the windows smooth away of a
    channel is added to the constant, as far as the guide does not explain it.
    """
    rows, columns, _ = guide.shape
    channels = values.shape[2]
    lines = values.new_zeros(rows, columns, channels, 4)
    colours = guide.permute(2, 0, 1)
    mean = _box(colours, radius)
    inverse = _inverse_covariance(colours, mean, radius)
    fine = upsample(values, divided)
    parts = rows // values.shape[0]
    for channel in range(1, channels):
        present = values[..., channel] >= _SMALL_SHARE
        for rectangle in _rectangles(present, parts, (rows, columns)):
            lines[(*rectangle, channel)][..., 3] = fine[channel][rectangle]
        for changing in _rectangles(_changes(values[..., channel]), parts, (rows, columns)):
            inner = _grown(changing, 2 * radius, (rows, columns))
            outer = _grown(inner, 2 * radius, (rows, columns))
            fitted = _fit(fine[channel][outer], colours[:, *outer], mean[:, *outer], inverse[:, *outer], radius)
            within = tuple(slice(i.start - o.start, i.stop - o.start) for i, o in zip(inner, outer, strict=True))
            lines[(*inner, channel)] = fitted[within]
    # A constant is fitted exactly: what the objects leave is the background's.
    lines[..., 0, :] = values.new_tensor(_CONSTANT) - lines[..., 1:, :].sum(dim=2)
    return lines


def explained_share(
    values: LabelValues, colours: Float[Tensor, "rows columns 3"], *, radius: int = 1
) -> Float[Tensor, " channels"]:
    """Return how much of each channel's variance around its outline is explained by the colours: its mean R2.

    Low where an outline does not follow the image, which right ones mostly do. 0.5 where a channel has no outline.
    """
    guide, channels = colours.permute(2, 0, 1), values.permute(2, 0, 1)
    mean = _box(guide, radius)
    inverse = _inverse_covariance(guide, mean, radius)
    average = _box(channels, radius)
    variance = _box(channels.square(), radius) - average.square()
    products = (channels[:, None] * guide).flatten(0, 1)
    covariance = _box(products, radius).reshape(-1, 3, *mean.shape[1:]) - mean * average[:, None]
    slope = torch.einsum("ijyx,cjyx->ciyx", inverse.reshape(3, 3, *mean.shape[1:]), covariance)
    explained = ((slope * covariance).sum(dim=1) / (variance + _SMALL_VARIANCE)).clamp(0, 1)
    outline = (variance > _OUTLINE_VARIANCE).float()
    cells = outline.sum(dim=(1, 2))
    return torch.where(cells > 0, (explained * outline).sum(dim=(1, 2)) / cells.clamp_min(1), 0.5)


def guide_of(image: UInt8[np.ndarray, "height width 3"]) -> UInt8[Tensor, "height width 3"]:
    """Return an image as a tensor; copied where it is read-only, of which torch would warn."""
    return torch.from_numpy(np.require(image, requirements=["C", "W"]))


def mean_colours(image: UInt8[Tensor, "height width 3"], grid: Grid) -> Float[Tensor, "rows columns 3"]:
    """Return the mean colour (0 to 1) of every cell."""
    functions = kernel_for()  # images are in the memory of the host
    return _pooled(image, grid) if functions is None else compiled.pool_image(functions, image, grid)


def _fit(
    channel: Float[Tensor, "rows columns"],
    colours: Maps,
    mean: Maps,
    inverse: Float[Tensor, "9 rows columns"],
    radius: int,
) -> Float[Tensor, "rows columns 4"]:
    average = _box(channel[None], radius)
    covariance = _box(colours * channel, radius) - mean * average
    slope = torch.stack([(inverse[row : row + 3] * covariance).sum(dim=0) for row in (0, 3, 6)])
    constant = average - (slope * mean).sum(dim=0, keepdim=True)
    variance = _box(channel.square()[None], radius) - average.square()
    explained = ((slope * covariance).sum(dim=0, keepdim=True) / (variance + _SMALL_VARIANCE)).clamp(0, 1)
    smooth = _box(torch.cat([slope, constant, average, explained]), radius)
    detail = (1 - smooth[5]) * (channel - smooth[4])
    return torch.cat([smooth[:3], (smooth[3] + detail)[None]]).permute(1, 2, 0)


def _changes(channel: Float[Tensor, "rows columns"]) -> Bool[Tensor, "rows columns"]:
    """Return where a channel differs from the cell above or to the left."""
    changes = torch.zeros_like(channel, dtype=torch.bool)
    changes[1:] |= (channel[1:] - channel[:-1]).abs() >= _SMALL_SHARE
    changes[:, 1:] |= (channel[:, 1:] - channel[:, :-1]).abs() >= _SMALL_SHARE
    return changes


def _rectangles(cells: Bool[Tensor, "rows columns"], parts: int, size: tuple[int, int]) -> list[Rectangle]:
    """Return the rectangle of parts that holds these cells, if any, and one more cell around for interpolation."""
    if not bool(cells.any()):
        return []
    sides = []
    for dim in (0, 1):
        held = cells.any(dim=1 - dim).nonzero().squeeze(1)
        sides.append(slice(int(held[0]) * parts, (int(held[-1]) + 1) * parts))
    return [_grown((sides[0], sides[1]), parts, size)]


def _grown(rectangle: Rectangle, by: int, size: tuple[int, int]) -> Rectangle:
    rows, columns = (slice(max(s.start - by, 0), min(s.stop + by, end)) for s, end in zip(rectangle, size, strict=True))
    return rows, columns


def _inverse_covariance(colours: Maps, mean: Maps, radius: int) -> Float[Tensor, "9 rows columns"]:
    """Return the inverse of the colours' covariance around every cell, row by row, by its cofactors."""
    products = torch.stack([colours[i] * colours[j] for i, j in _PAIRS])
    cov = _box(products, radius) - torch.stack([mean[i] * mean[j] for i, j in _PAIRS])
    rr, rg, rb, gg, gb, bb = cov
    rr, gg, bb = rr + _EPSILON, gg + _EPSILON, bb + _EPSILON
    c00, c01, c02 = gg * bb - gb * gb, rb * gb - rg * bb, rg * gb - rb * gg
    c11, c12, c22 = rr * bb - rb * rb, rb * rg - rr * gb, rr * gg - rg * rg
    determinant = rr * c00 + rg * c01 + rb * c02
    inverse: Tensor = torch.stack([c00, c01, c02, c01, c11, c12, c02, c12, c22]) / determinant
    return inverse


_PAIRS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


def _box(maps: Maps, radius: int) -> Maps:
    """Average over a square window, cut off at the border."""
    side = 2 * radius + 1
    across = F.avg_pool2d(maps[None], (1, side), 1, (0, radius), count_include_pad=False)
    return F.avg_pool2d(across, (side, 1), 1, (radius, 0), count_include_pad=False)[0]


def _pooled(image: UInt8[Tensor, "height width 3"], grid: Grid) -> Float[Tensor, "rows columns 3"]:
    return pool(image.permute(2, 0, 1).float() / 255, grid)


def _divided(grid: Grid, parts: int) -> Grid:
    """Return the grid over an image with a pixel for every one of the `parts` x `parts` parts of a cell."""
    return Grid(*(Axis(axis.cells, axis.cells * parts, parts, (parts - 1) / 2) for axis in (grid.y, grid.x)))


def evaluate(
    coefficients: Coefficients, grid: Grid, image: UInt8[Tensor, "height width 3"]
) -> Float[Tensor, "channels height width"]:
    """Apply the interpolated functions to every pixel."""
    colours = torch.cat([image.permute(2, 0, 1).float() / 255, torch.ones(1, *image.shape[:2])])
    channels = coefficients.shape[2]
    return torch.stack(
        [(upsample(coefficients[:, :, channel], grid) * colours).sum(dim=0) for channel in range(channels)]
    )
