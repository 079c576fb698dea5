"""Segments: neighbouring cells of alike colour, which a walk should not leave.

A cell on a plain wall cannot be told from its neighbours. The cross-entropy to a single cell punishes that as much as
a walk that leaves its object, and features then learn the surroundings that tell where on the wall a cell lies. A walk
that ends anywhere on the segment it started on is right, as it is when masks are propagated.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from timecycle.grid import Grid
from timecycle.objectives import Scalar

Segments = Float[Tensor, "b cells segments"]  # 1 at the segment of each cell; a segment may be empty

_ITERATIONS = 6  # of k-means; more hardly change it
_POSITION = 1.7  # weight of the position from -1 to 1, beside colours of variance 1


@torch.no_grad()
def find_segments(
    images: UInt8[Tensor, "b height width 3"],
    objects: Int[Tensor, "b cells"],
    grid: Grid,
    *,
    object_count: int,
    most: int,
    generators: Sequence[torch.Generator],
) -> Segments:
    """Find up to `most` segments in each image by k-means over colour and position; objects never share one.

    Their number is drawn for every image, from a third of `most` on, so that regions of all sizes are kept together.
    """
    rows, columns = (axis.area().to(images.device) for axis in (grid.y, grid.x))
    colours = torch.einsum("yh,bhwc,xw->byxc", rows, images.float(), columns).flatten(1, 2)
    colours = colours - colours.mean(dim=1, keepdim=True)
    colours = colours / colours.square().mean(dim=(1, 2), keepdim=True).sqrt().clamp_min(1.0)  # 1 level: plain images
    y, x = (torch.linspace(-_POSITION, _POSITION, axis.cells, device=images.device) for axis in (grid.y, grid.x))
    position = torch.stack(torch.meshgrid(y, x, indexing="ij"), dim=-1).flatten(0, 1)
    clusters = [
        _clusters(torch.cat([colour, position], dim=1), most, generator)
        for colour, generator in zip(colours, generators, strict=True)
    ]
    return _one_hot(torch.stack(clusters) + most * objects, most * object_count)


def segment_loss(
    walk: Float[Tensor, "b cells cells"],
    target: Float[Tensor, "b cells cells"],
    visible: Float[Tensor, "b cells"],
    segments: Segments,
) -> Scalar:
    """Return minus the log-probability that walks end on the segment they started on.

    `target` holds for every cell the weights of the cells of the other view where it lies. Cells of a segment weigh
    by one over the root of their number, so that large segments count more than small ones, but not in proportion.
    """
    mapped = torch.einsum("bij,bi,bik->bjk", target, visible, segments)  # the segments, on the other view
    there = mapped / mapped.sum(dim=2, keepdim=True).clamp_min(1e-3)
    cost = -((walk @ there * segments).sum(dim=2) + 1e-4).log()
    sizes = torch.einsum("bik,bk->bi", segments, (segments * visible[..., None]).sum(dim=1))
    weight = visible / sizes.clamp_min(1).sqrt()
    return ((cost * weight).sum(dim=1) / weight.sum(dim=1).clamp_min(1e-6)).mean()


def _clusters(points: Float[Tensor, "cells d"], most: int, generator: torch.Generator) -> Int[Tensor, "cells"]:
    """Assign points to the nearest of some centres, which move to the mean of their points."""
    device = points.device
    centres = points[torch.randperm(len(points), generator=generator, device=device)[:most]]
    # The number stays on the device, where reading it would wait for all that was asked before.
    count = torch.randint(max(1, most // 3), most + 1, (1,), generator=generator, device=device)
    unused = torch.arange(len(centres), device=device) >= count
    for _ in range(_ITERATIONS):
        members = _one_hot(_nearest(points, centres, unused), len(centres))
        sizes = members.sum(dim=0)[:, None]
        centres = torch.where(sizes > 0, members.T @ points / sizes.clamp_min(1), centres)
    return _nearest(points, centres, unused)


def _nearest(
    points: Float[Tensor, "cells d"], centres: Float[Tensor, "most d"], unused: Bool[Tensor, "most"]
) -> Int[Tensor, "cells"]:
    distances = (points[:, None] - centres[None]).square().sum(dim=2)
    return distances.masked_fill(unused, torch.inf).argmin(dim=1)


def _one_hot(ids: Int[Tensor, "*shape"], count: int) -> Float[Tensor, "*shape count"]:
    return (ids[..., None] == torch.arange(count, device=ids.device)).float()
