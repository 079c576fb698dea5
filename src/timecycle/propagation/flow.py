"""Dense correspondence between two images: the best match of every cell, refined to sub-cell precision."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Float32, Int, UInt8
from PIL import Image
from torch import Tensor

from timecycle.display import Displayed
from timecycle.errors import SettingsError
from timecycle.labels.label_map import upsample
from timecycle.matching.neighbours import Reference, neighbours
from timecycle.matching.tiles import Features
from timecycle.matching.window import Window
from timecycle.model.encoder import Encoder, FeatureMap
from timecycle.propagation.frame_encoder import FrameEncoder
from timecycle.propagation.settings import PropagateConfig
from timecycle.render import Picture, arrows
from timecycle.video.frame import Frame, rgb_of

_MIN_SIMILAR_NEIGHBOURS = 5  # of eight; a border cell has five, a corner cell three


@dataclass(frozen=True, eq=False)
class Correspondence(Displayed):
    """The match of every feature cell of image A in image B, and the dense flow interpolated from it."""

    flow: Float32[np.ndarray, "height width 2"]  # (dx, dy) in pixels of A and B, at every pixel of A
    similarity: Float32[np.ndarray, "rows columns"]  # cosine of each cell of A with its match
    start: Float32[np.ndarray, "rows columns 2"]  # centre of each cell of A, (x, y)
    end: Float32[np.ndarray, "rows columns 2"]  # its match in B

    def __repr__(self) -> str:
        height, width, _ = self.flow.shape
        rows, columns = self.similarity.shape
        return f"Correspondence({width}x{height} px, {columns}x{rows} cells, mean cosine {self.similarity.mean():.3f})"

    def show(self, image: Frame | Picture | None = None) -> Image.Image:
        """Return the flow as arrows over `image`, the image A, or over plain white."""
        height, width, _ = self.flow.shape
        return Image.fromarray(
            arrows(np.full((height, width, 3), 255, np.uint8) if image is None else rgb_of(image), self.flow)
        )


def correspond(
    a: UInt8[np.ndarray, "height width 3"],
    b: UInt8[np.ndarray, "h w 3"],
    *,
    encoder: Encoder,
    config: PropagateConfig,
) -> Correspondence:
    """Match image A with image B, within the window of annotated frames."""
    frame_encoder = FrameEncoder(encoder, config)
    maps = [frame_encoder.encode(image) for image in (a, b)]
    window = config.window(maps[0].grid, annotated=True)
    at_own_size = [
        FeatureMap(features.cells, features.grid.rescaled(*image.shape[:2]))
        for features, image in zip(maps, (a, b), strict=True)
    ]
    return match(*at_own_size, window=window)


@torch.inference_mode()
def match(a: FeatureMap, b: FeatureMap, *, window: Window | None = None) -> Correspondence:
    """Find the best match in B of every cell of A; a window (in cells) limits how far matches may move."""
    if window is not None and a.grid != b.grid:
        raise SettingsError(
            "a window was asked for between images of different sizes",
            remedy="resize the images to one size, or match them everywhere (anchor_window_px=none)",
        )
    matches = neighbours(a.cells, [Reference(b.cells, window)], k=1, temperature=1.0, weighting="joint")
    rows, columns, _ = a.cells.shape
    index = matches.index.reshape(rows, columns)
    y, x = _refine(a.cells, b.cells, index)
    end = torch.stack([b.grid.x.pixel_of(x), b.grid.y.pixel_of(y)], dim=-1).cpu().float()
    start = a.grid.centres()
    similarity = (a.cells * b.cells.flatten(0, 1)[index]).sum(dim=-1)
    flow = upsample(end - start, a.grid).permute(1, 2, 0).contiguous()
    return Correspondence(flow.numpy(), similarity.cpu().numpy(), start.numpy(), end.numpy())


def warp(
    image: UInt8[np.ndarray, "h w 3"], flow: Float32[np.ndarray, "height width 2"]
) -> UInt8[np.ndarray, "height width 3"]:
    """Sample an image at the positions the flow points to: B warped by the flow from A looks like A."""
    height, width, _ = image.shape
    y, x = np.mgrid[0 : flow.shape[0], 0 : flow.shape[1]].astype(np.float32)
    position = np.stack([x + flow[..., 0], y + flow[..., 1]], axis=-1)
    # align_corners=False puts -1 and 1 on the outer pixels' edges, half a pixel beyond their centres.
    normalised = (torch.from_numpy(position) + 0.5) / torch.tensor([width, height]) * 2 - 1
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    sampled = F.grid_sample(pixels, normalised[None].float(), padding_mode="border", align_corners=False)
    return sampled[0].round().clamp(0, 255).byte().permute(1, 2, 0).contiguous().numpy()


def consistent(forward: Correspondence, backward: Correspondence) -> Bool[np.ndarray, "rows columns"]:
    """Return the reliable cells of A: forward-backward consistent to a cell, and moving with most of their neighbours.

    Other matches are mostly wrong; an isolated match is so even if it is forward-backward consistent.
    """
    cell_px = _cell_px(forward)
    height, width, _ = backward.flow.shape
    x, y = np.moveaxis(np.rint(forward.end).astype(np.int64), -1, 0)
    back = forward.end + backward.flow[y.clip(0, height - 1), x.clip(0, width - 1)]
    is_consistent = np.abs(back - forward.start).max(axis=-1) <= cell_px
    similar = _similar_neighbours(forward.end - forward.start, within_px=1.5 * cell_px)
    return np.asarray(is_consistent & (similar >= _MIN_SIMILAR_NEIGHBOURS))


def _similar_neighbours(
    moved: Float[np.ndarray, "rows columns 2"], *, within_px: float
) -> Int[np.ndarray, "rows columns"]:
    """Count for each cell the neighbours, of eight, with a similar displacement."""
    rows, columns, _ = moved.shape
    around = np.pad(moved, ((1, 1), (1, 1), (0, 0)), constant_values=np.inf)
    shifts = [(dy, dx) for dy in range(3) for dx in range(3) if (dy, dx) != (1, 1)]
    others = (around[dy : dy + rows, dx : dx + columns] for dy, dx in shifts)
    return np.asarray(sum((np.abs(other - moved).max(axis=-1) <= within_px).astype(np.int64) for other in others))


def at_pixels(
    reliable: Bool[np.ndarray, "rows columns"], correspondence: Correspondence
) -> Bool[np.ndarray, "height width"]:
    """Return the pixels whose nearest cell is `reliable` and whose interpolated flow is close to that cell's own."""
    height, width, _ = correspondence.flow.shape
    row = np.abs(np.arange(height)[:, None] - correspondence.start[:, 0, 1]).argmin(axis=1)
    column = np.abs(np.arange(width)[:, None] - correspondence.start[0, :, 0]).argmin(axis=1)
    moved = (correspondence.end - correspondence.start)[row][:, column]
    return np.asarray(
        reliable[row][:, column] & (np.abs(correspondence.flow - moved).max(axis=-1) <= _cell_px(correspondence))
    )


def _cell_px(correspondence: Correspondence) -> float:
    return float(max(np.abs(np.diff(correspondence.start, axis=axis)).max(initial=1.0) for axis in (0, 1)))


def _refine(
    query: Features, key: Features, index: Int[Tensor, "rows columns"]
) -> tuple[Float[Tensor, "rows columns"], Float[Tensor, "rows columns"]]:
    """Refine row and column of each match to the peak of the parabola through it and its two neighbours."""
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
    """Return the peak, from -1/2 to 1/2, of the parabola through three values one step apart."""
    curvature = before - 2 * peak + after
    return torch.where(curvature < 0, (before - after) / (2 * curvature), 0.0).clamp(-0.5, 0.5)
