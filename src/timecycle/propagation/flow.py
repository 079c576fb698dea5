"""Dense correspondence between two images: every cell's nearest neighbour, refined below the size of a cell."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Float32, Int, UInt8
from torch import Tensor

from timecycle.errors import SettingsError
from timecycle.labels.soft import upsample
from timecycle.model.encoder import Encoder, FeatureMap, checked
from timecycle.propagation.neighbours import Reference, neighbours
from timecycle.propagation.settings import PropagateConfig
from timecycle.propagation.state import resize
from timecycle.propagation.tiles import Cells
from timecycle.propagation.window import Window

_LEAST_ALIKE = 5  # of eight neighbours: all there are on a border, none in a corner


@dataclass(frozen=True, eq=False)
class Correspondence:
    """Where the content of image A is found in image B."""

    flow: Float32[np.ndarray, "height width 2"]  # (dx, dy) in pixels of A and B, at every pixel of A
    similarity: Float32[np.ndarray, "rows columns"]  # cosine of each cell of A with its match
    start: Float32[np.ndarray, "rows columns 2"]  # centre of each cell of A, (x, y)
    end: Float32[np.ndarray, "rows columns 2"]  # its match in B

    def __repr__(self) -> str:
        height, width, _ = self.flow.shape
        rows, columns = self.similarity.shape
        return (
            f"Correspondence(flow {width}x{height}, {columns}x{rows} cells, mean cosine {self.similarity.mean():.3f})"
        )


def correspond(
    a: UInt8[np.ndarray, "height width 3"],
    b: UInt8[np.ndarray, "h w 3"],
    *,
    encoder: Encoder,
    config: PropagateConfig,
) -> Correspondence:
    """Where everything in image A is found in image B, searched in the window for labelled frames."""
    maps = [checked(encoder.encode(resize(image, config)), encoder) for image in (a, b)]
    window = config.window(maps[0].grid, labelled=True)
    at_own_size = [
        FeatureMap(features.cells, features.grid.rescaled(*image.shape[:2]))
        for features, image in zip(maps, (a, b), strict=True)
    ]
    return match(*at_own_size, window=window)


@torch.inference_mode()
def match(a: FeatureMap, b: FeatureMap, *, window: Window | None = None) -> Correspondence:
    """The best match in B of every cell of A; a window (in cells) keeps matches near where they start."""
    if window is not None and a.grid != b.grid:
        raise SettingsError(
            "a window was asked for between images of different sizes",
            remedy="resize the images to one size, or match them everywhere (anchor_window_px=none)",
        )
    found = neighbours(a.cells, [Reference(b.cells, window)], k=1, temperature=1.0, weighting="joint")
    rows, columns, _ = a.cells.shape
    index = found.index.reshape(rows, columns)
    y, x = _refined(a.cells, b.cells, index)
    end = torch.stack([b.grid.x.pixel_of(x), b.grid.y.pixel_of(y)], dim=-1).cpu().float()
    start = a.grid.centres()
    similarity = (a.cells * b.cells.flatten(0, 1)[index]).sum(dim=-1)
    flow = upsample(end - start, a.grid).permute(1, 2, 0).contiguous()
    return Correspondence(flow.numpy(), similarity.cpu().numpy(), start.numpy(), end.numpy())


def warp(
    image: UInt8[np.ndarray, "h w 3"], flow: Float32[np.ndarray, "height width 2"]
) -> UInt8[np.ndarray, "height width 3"]:
    """The image read where the flow points: B warped by the flow from A looks like A."""
    height, width, _ = image.shape
    y, x = np.mgrid[0 : flow.shape[0], 0 : flow.shape[1]].astype(np.float32)
    place = np.stack([x + flow[..., 0], y + flow[..., 1]], axis=-1)
    # align_corners=False puts -1 and 1 on the outer pixels' edges, half a pixel beyond their centres.
    normalised = (torch.from_numpy(place) + 0.5) / torch.tensor([width, height]) * 2 - 1
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    read = F.grid_sample(pixels, normalised[None].float(), padding_mode="border", align_corners=False)
    return read[0].round().clamp(0, 255).byte().permute(1, 2, 0).contiguous().numpy()


def consistent(there: Correspondence, back: Correspondence) -> Bool[np.ndarray, "rows columns"]:
    """The cells of A that can be shown: forward-backward consistent to a cell, and moving as most cells around them.

    A match that is neither is mostly wrong; alone among others it is so even where it returns.
    """
    cell_px = _cell_px(there)
    height, width, _ = back.flow.shape
    x, y = np.moveaxis(np.rint(there.end).astype(np.int64), -1, 0)
    home = there.end + back.flow[y.clip(0, height - 1), x.clip(0, width - 1)]
    returns = np.abs(home - there.start).max(axis=-1) <= cell_px
    return np.asarray(returns & (_alike(there.end - there.start, within_px=1.5 * cell_px) >= _LEAST_ALIKE))


def _alike(moved: Float[np.ndarray, "rows columns 2"], *, within_px: float) -> Int[np.ndarray, "rows columns"]:
    """How many of the eight cells around each one moved alike."""
    rows, columns, _ = moved.shape
    around = np.pad(moved, ((1, 1), (1, 1), (0, 0)), constant_values=np.inf)
    shifts = [(dy, dx) for dy in range(3) for dx in range(3) if (dy, dx) != (1, 1)]
    others = (around[dy : dy + rows, dx : dx + columns] for dy, dx in shifts)
    return np.asarray(sum((np.abs(other - moved).max(axis=-1) <= within_px).astype(np.int64) for other in others))


def at_pixels(sure: Bool[np.ndarray, "rows columns"], found: Correspondence) -> Bool[np.ndarray, "height width"]:
    """The pixels whose nearest cell is `sure` and whose flow, which mixes that of several cells, is still its own."""
    height, width, _ = found.flow.shape
    row = np.abs(np.arange(height)[:, None] - found.start[:, 0, 1]).argmin(axis=1)
    column = np.abs(np.arange(width)[:, None] - found.start[0, :, 0]).argmin(axis=1)
    moved = (found.end - found.start)[row][:, column]
    return np.asarray(sure[row][:, column] & (np.abs(found.flow - moved).max(axis=-1) <= _cell_px(found)))


def _cell_px(found: Correspondence) -> float:
    return float(max(np.abs(np.diff(found.start, axis=axis)).max(initial=1.0) for axis in (0, 1)))


def _refined(
    query: Cells, key: Cells, index: Int[Tensor, "rows columns"]
) -> tuple[Float[Tensor, "rows columns"], Float[Tensor, "rows columns"]]:
    """Row and column of each match, moved to the top of the parabola through it and its two neighbours."""
    rows, columns, _ = key.shape
    y, x = index // columns, index % columns

    def score(row: Int[Tensor, "rows columns"], column: Int[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
        return (query * key[row.clamp(0, rows - 1), column.clamp(0, columns - 1)]).sum(dim=-1)

    peak = score(y, x)
    dy = _parabola(score(y - 1, x), peak, score(y + 1, x))
    dx = _parabola(score(y, x - 1), peak, score(y, x + 1))
    inner_y, inner_x = (y > 0) & (y < rows - 1), (x > 0) & (x < columns - 1)
    return y + torch.where(inner_y, dy, 0), x + torch.where(inner_x, dx, 0)


def _parabola(
    before: Float[Tensor, "..."], peak: Float[Tensor, "..."], after: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """Where, from -1/2 to 1/2, the parabola through three values one step apart is highest."""
    bend = before - 2 * peak + after
    return torch.where(bend < 0, (before - after) / (2 * bend), 0.0).clamp(-0.5, 0.5)
