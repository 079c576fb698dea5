"""Image-guided decoding: outlines that follow the edges of the image (guided filter; He, Sun and Tang 2010).

Around every cell, each channel of a label map is fitted by a linear function of the image's colours, as in the fast
guided filter: on the grid of the labels, with the pooled image. These functions are averaged over overlapping windows,
interpolated to every pixel, and applied to the pixel's own colour. Unlike in the usual filter, what the windows smooth
away is added again as far as colours do not explain the labels: where the image has no edges, labels are decoded as
without a guide, and thin parts are kept. Two channels of a distribution keep their sum; of more, the background takes
what objects leave.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from timecycle.grid import Axis, Grid
from timecycle.kernel import deciding as compiled
from timecycle.kernel.library import kernel_for
from timecycle.labels.label_map import LabelValues, pool, upsample

Coefficients = Float[Tensor, "rows columns channels 4"]  # of red, green, blue (0 to 1) and a constant
Maps = Float[Tensor, "maps rows columns"]

_LABELS_PER_CELL = 2  # along each side of a feature cell, at least
_EPSILON = 1e-3  # variance of colours (0 to 1) below which the image has no edges
_SMALL_VARIANCE = 1e-4  # of a channel: less is not worth explaining
_CONSTANT = (0, 0, 0, 1)


def guided_argmax(
    values: LabelValues, grid: Grid, *, image: UInt8[Tensor, "height width 3"], subcells: int
) -> Int[Tensor, "height width"]:
    """Return the strongest channel at every pixel, guided by the image; the lowest channel wins a tie.

    Channel 0 is the background and all channels sum to one; feature cells have `subcells` labels along each side.
    """
    parts = max(_LABELS_PER_CELL // subcells, 1)
    if parts > 1:
        values, grid = upsample(values, _fine_grid(grid, parts)).permute(1, 2, 0), grid.subdivided(parts)
    radius, functions = subcells * parts, kernel_for(values)
    if functions is None:
        lines = fit_lines(values, _pooled(image, grid), radius=radius)
        return _evaluate(lines, grid, image).argmax(dim=0).int()
    colours = compiled.pool_image(functions, image, grid)
    lines = compiled.fit_lines(functions, values, colours, radius=radius, epsilon=_EPSILON)
    return compiled.decide_guided(functions, lines, grid, image)


def fit_lines(values: LabelValues, guide: Float[Tensor, "rows columns 3"], *, radius: int) -> Coefficients:
    """Fit every channel by a linear function of the guide around every cell, averaged over the windows that hold it.

    What the windows smooth away of a channel is added to the constant, as far as the guide does not explain it.
    """
    rows, columns, channels = values.shape
    lines = values.new_zeros(rows, columns, channels, 4)
    colours = guide.permute(2, 0, 1)
    mean = _box(colours, radius)
    inverse = _inverse_covariance(colours, mean, radius)
    for channel in range(1, channels):
        place = _outline(values[..., channel], 2 * radius)
        lines[..., channel, 3] = values[..., channel]
        if place is not None:
            inner, outer = place
            fitted = _fit(values[outer][..., channel], colours[:, *outer], mean[:, *outer], inverse[:, *outer], radius)
            within = tuple(slice(i.start - o.start, i.stop - o.start) for i, o in zip(inner, outer, strict=True))
            lines[(*inner, channel)] = fitted[within]
    # A constant is fitted exactly: what the objects leave is the background's.
    lines[..., 0, :] = values.new_tensor(_CONSTANT) - lines[..., 1:, :].sum(dim=2)
    return lines


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


def _outline(
    channel: Float[Tensor, "rows columns"], reach: int
) -> tuple[tuple[slice, slice], tuple[slice, slice]] | None:
    """Return the region that the filter may change, and the region it depends on; None if nothing changes."""
    change = torch.zeros_like(channel, dtype=torch.bool)
    change[1:] |= channel[1:] != channel[:-1]
    change[:, 1:] |= channel[:, 1:] != channel[:, :-1]
    if not bool(change.any()):
        return None
    inner, outer = [], []
    for dim, size in enumerate(channel.shape):
        places = change.any(dim=1 - dim).nonzero().squeeze(1)
        low, high = int(places[0]), int(places[-1]) + 1
        inner.append(slice(max(low - reach, 0), min(high + reach, size)))
        outer.append(slice(max(low - 2 * reach, 0), min(high + 2 * reach, size)))
    return (inner[0], inner[1]), (outer[0], outer[1])


def _inverse_covariance(colours: Maps, mean: Maps, radius: int) -> Float[Tensor, "9 rows columns"]:
    """Return the inverse of the colours' covariance around every cell, row by row, by its cofactors."""
    products = torch.stack([colours[i] * colours[j] for i, j in _PAIRS])
    cov = _box(products, radius) - torch.stack([mean[i] * mean[j] for i, j in _PAIRS])
    (rr, rg, rb, gg, gb, bb) = cov + _EPSILON * cov.new_tensor([1, 0, 0, 1, 0, 1])[:, None, None]
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


def _fine_grid(grid: Grid, parts: int) -> Grid:
    """Return the grid over an image with a pixel for every one of `parts` x `parts` labels of a cell."""
    return Grid(*(Axis(axis.cells, axis.cells * parts, parts, (parts - 1) / 2) for axis in (grid.y, grid.x)))


def _evaluate(
    coefficients: Coefficients, grid: Grid, image: UInt8[Tensor, "height width 3"]
) -> Float[Tensor, "channels height width"]:
    """Apply the interpolated functions to every pixel."""
    colours = torch.cat([image.permute(2, 0, 1).float() / 255, torch.ones(1, *image.shape[:2])])
    channels = coefficients.shape[2]
    return torch.stack(
        [(upsample(coefficients[:, :, channel], grid) * colours).sum(dim=0) for channel in range(channels)]
    )
