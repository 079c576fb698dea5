"""Texture: colours painted on a frame, which travel with the surface they were painted on."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from PIL import Image
from torch import Tensor

from timecycle.errors import LabelError
from timecycle.files import atomic_write
from timecycle.grid import Grid
from timecycle.labels.image import open_image
from timecycle.labels.masks import Masks, pool_ids
from timecycle.labels.soft import Extent, SoftMap, pool, upsample, upsample_argmax
from timecycle.labels.space import Labels, Presence, nearest, two_drawings

_FLAT_COLOURS = 32  # a photograph has thousands; a painted pattern a handful
STRIPES = ((230, 57, 70), (244, 162, 41), (255, 230, 109), (42, 157, 95), (38, 110, 200), (131, 56, 200))


@dataclass(frozen=True, eq=False)
class Texture(Labels):
    """Painted colour (RGB) and how much of each pixel is painted (alpha)."""

    rgba: UInt8[np.ndarray, "height width 4"]
    path: Path | None = field(default=None, repr=False, compare=False)  # the file it was read from, to name it
    kind: ClassVar[str] = "texture"
    suffix: ClassVar[str] = ".png"

    def __post_init__(self) -> None:
        if self.rgba.dtype != np.uint8 or self.rgba.ndim != 3 or self.rgba.shape[2] != 4:
            raise LabelError(
                f"a texture is an array of {self.rgba.dtype} with the shape {self.rgba.shape}",
                remedy="give red, green, blue and alpha as uint8 (height, width, 4)",
            )

    @classmethod
    def read(cls, path: str | Path) -> "Texture":
        """A texture from any image; one without an alpha channel paints every pixel."""
        with open_image(Path(path)) as image:
            return cls(np.array(image.convert("RGBA")), path=Path(path))

    def write(self, path: str | Path) -> None:
        with atomic_write(path) as file:
            Image.fromarray(self.rgba).save(file, format="PNG", compress_level=1)

    def __repr__(self) -> str:
        height, width, _ = self.rgba.shape
        return f"Texture({width}x{height}, {(self.rgba[..., 3] > 0).mean():.1%} painted)"

    def size(self) -> tuple[int, int]:
        height, width, _ = self.rgba.shape
        return height, width

    def is_empty(self) -> bool:
        return not self.rgba[..., 3].any()

    def resized(self, height_px: int, width_px: int) -> "Texture":
        return replace(self, rgba=nearest(self.rgba, height_px, width_px))

    @classmethod
    def space(cls, labelled: Sequence["Texture"]) -> "FlatTextureSpace | TextureSpace":
        """A channel per colour where there are few, as the paper does with its stripes; else mixed colours."""
        if len(labelled) > 1:
            raise two_drawings("textures")
        flat = FlatTextureSpace(_paints(labelled))
        return flat if flat.channels <= _FLAT_COLOURS else TextureSpace()


@dataclass(frozen=True)
class FlatTextureSpace:
    """Channel c is the paint paints[c] (RGBA as one number), paints[0] none: colours compete and stay crisp."""

    paints: tuple[int, ...]
    exclusive: ClassVar[bool] = True
    stretchable: ClassVar[bool] = True

    @property
    def channels(self) -> int:
        return len(self.paints)

    def speaks(self, labels: Texture) -> Bool[Tensor, " channels"]:
        return torch.ones(self.channels, dtype=torch.bool)

    def to_soft(self, labels: Texture, grid: Grid) -> SoftMap:
        return pool_ids(_paint(labels), self.paints, grid)

    def from_soft(self, soft: SoftMap, grid: Grid) -> Texture:
        table = np.array(self.paints, ">u4").view(np.uint8).reshape(-1, 4)
        return Texture(table[upsample_argmax(soft, grid).numpy()])

    @property
    def objects(self) -> tuple[str, ...]:
        return ("texture",)

    def extent(self, soft: SoftMap) -> Extent:
        return 1 - soft[..., :1]

    def presence(self, labels: Texture) -> tuple[Presence | None, ...]:
        return ("visible",)

    def put_back(self, given: Texture, decided: Texture) -> Texture:
        return given

    def widened(self, labels: Texture) -> "FlatTextureSpace":
        raise two_drawings("textures")


@dataclass(frozen=True)
class TextureSpace:
    """Red, green and blue times alpha, then alpha, all in [0, 1]: colours mix by how much paint there is."""

    channels: ClassVar[int] = 4
    exclusive: ClassVar[bool] = False
    stretchable: ClassVar[bool] = False

    def speaks(self, labels: Texture) -> Bool[Tensor, " channels"]:
        return torch.ones(self.channels, dtype=torch.bool)

    def to_soft(self, labels: Texture, grid: Grid) -> SoftMap:
        rgba = torch.from_numpy(labels.rgba).float().permute(2, 0, 1) / 255
        return pool(torch.cat([rgba[:3] * rgba[3:], rgba[3:]]), grid)

    def from_soft(self, soft: SoftMap, grid: Grid) -> Texture:
        paint = upsample(soft, grid)
        colour = paint[:3] / paint[3:].clamp_min(1e-6)
        rgba = torch.cat([colour, paint[3:]]).clamp(0, 1) * 255
        return Texture(rgba.round().byte().permute(1, 2, 0).contiguous().numpy())

    @property
    def objects(self) -> tuple[str, ...]:
        return ("texture",)

    def extent(self, soft: SoftMap) -> Extent:
        return soft[..., 3:]

    def presence(self, labels: Texture) -> tuple[Presence | None, ...]:
        return ("visible",)

    def put_back(self, given: Texture, decided: Texture) -> Texture:
        return given

    def widened(self, labels: Texture) -> "TextureSpace":
        raise two_drawings("textures")


def striped(masks: Masks) -> Texture:
    """Six horizontal stripes of equal height over everything the masks mark (section 4.5 of the paper)."""
    inside = masks.ids > 0
    rows = np.flatnonzero(inside.any(axis=1))
    if not rows.size:
        raise LabelError("the mask to paint stripes on is empty", remedy="mark the object with any id above 0")
    top, bottom = rows[0], rows[-1] + 1
    stripe = (np.arange(inside.shape[0]) - top) * len(STRIPES) // (bottom - top)
    colour = np.array(STRIPES, np.uint8)[np.clip(stripe, 0, len(STRIPES) - 1)]
    rgba = np.zeros((*inside.shape, 4), np.uint8)
    rgba[..., :3] = colour[:, None]
    rgba[..., 3] = inside * np.uint8(255)
    return Texture(rgba)


def _paint(texture: Texture) -> Int[np.ndarray, "height width"]:
    """Each pixel's RGBA as one number; 0 where nothing is painted, whatever colour lies below."""
    rgba = texture.rgba.astype(np.int64)
    code = (rgba[..., 0] << 24) | (rgba[..., 1] << 16) | (rgba[..., 2] << 8) | rgba[..., 3]
    return np.where(rgba[..., 3] == 0, 0, code)


def _paints(textures: Sequence[Texture]) -> tuple[int, ...]:
    found = {int(code) for texture in textures for code in np.unique(_paint(texture))}
    return (0, *sorted(found - {0}))
