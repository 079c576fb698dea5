"""Texture: colours painted on a frame, which follow the surface under them."""

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
from timecycle.labels.drawing import Picture, mix
from timecycle.labels.file import open_image
from timecycle.labels.label_map import Decide, Extent, LabelValues, pool, upsample, upsample_argmax
from timecycle.labels.masks import Masks, pool_ids
from timecycle.labels.space import Labels, Presence, nearest, second_annotation

_FLAT_COLOURS = 32  # a photograph has thousands of colours, a painted pattern a few
STRIPES = ((230, 57, 70), (244, 162, 41), (255, 230, 109), (42, 157, 95), (38, 110, 200), (131, 56, 200))


@dataclass(frozen=True, eq=False)
class Texture(Labels):
    """The painted colour of every pixel (RGB) and how much of it is painted (alpha)."""

    rgba: UInt8[np.ndarray, "height width 4"]
    path: Path | None = field(default=None, repr=False, compare=False)  # the file it was read from, for messages
    kind: ClassVar[str] = "texture"
    suffix: ClassVar[str] = ".png"
    correctable: ClassVar[bool] = False
    empty_remedy: ClassVar[str] = "paint some pixels: all of them are transparent"

    def __post_init__(self) -> None:
        if self.rgba.dtype != np.uint8 or self.rgba.ndim != 3 or self.rgba.shape[2] != 4:
            raise LabelError(
                f"a texture is an array of {self.rgba.dtype} with the shape {self.rgba.shape}",
                remedy="give red, green, blue and alpha as uint8 (height, width, 4)",
            )

    @classmethod
    def read(cls, path: str | Path) -> "Texture":
        """Read a texture from any image; without an alpha channel every pixel is painted."""
        with open_image(Path(path)) as image:
            return cls(np.array(image.convert("RGBA")), path=Path(path))

    def write(self, path: str | Path) -> None:
        with atomic_write(path) as file:
            Image.fromarray(self.rgba).save(file, format="PNG", compress_level=1)

    def __repr__(self) -> str:
        height, width, _ = self.rgba.shape
        return f"Texture({width}x{height} px, {(self.rgba[..., 3] > 0).mean():.1%} painted)"

    def size(self) -> tuple[int, int]:
        height, width, _ = self.rgba.shape
        return height, width

    def is_empty(self) -> bool:
        return not self.rgba[..., 3].any()

    def resized(self, height_px: int, width_px: int) -> "Texture":
        return replace(self, rgba=nearest(self.rgba, height_px, width_px))

    def overlay(self, image: Picture) -> Picture:
        return mix(image, self.rgba[..., :3], self.rgba[..., 3:] / np.float32(255) * 0.85)

    @classmethod
    def space(cls, annotations: Sequence["Texture"]) -> "FlatTextureSpace | TextureSpace":
        """Return a space with a channel per colour if there are few, as for the paper's stripes; else mixed colours."""
        if len(annotations) > 1:
            raise second_annotation("textures")
        flat = FlatTextureSpace(_colours(annotations))
        return flat if flat.channels <= _FLAT_COLOURS else TextureSpace()


@dataclass(frozen=True)
class FlatTextureSpace:
    """Channel c is the colour colours[c] (RGBA as one number), colours[0] no paint: colours compete and stay sharp."""

    colours: tuple[int, ...]
    exclusive: ClassVar[bool] = True
    stretchable: ClassVar[bool] = True
    divisible: ClassVar[bool] = True

    @property
    def channels(self) -> int:
        return len(self.colours)

    def annotated_channels(self, labels: Texture) -> Bool[Tensor, " channels"]:
        return torch.ones(self.channels, dtype=torch.bool)

    def encode(self, labels: Texture, grid: Grid) -> LabelValues:
        return pool_ids(_colour_codes(labels), self.colours, grid)

    def decode(self, values: LabelValues, grid: Grid, decide: Decide = upsample_argmax) -> Texture:
        table = np.array(self.colours, ">u4").view(np.uint8).reshape(-1, 4)
        return Texture(table[upsample_argmax(values, grid).numpy()])

    @property
    def objects(self) -> tuple[str, ...]:
        return ("texture",)

    def extent(self, values: LabelValues) -> Extent:
        return 1 - values[..., :1]

    def presence(self, labels: Texture) -> tuple[Presence | None, ...]:
        return ("visible",)

    def restore_annotated(self, annotation: Texture, decoded: Texture) -> Texture:
        return annotation

    def extended(self, labels: Texture) -> "FlatTextureSpace":
        raise second_annotation("textures")


@dataclass(frozen=True)
class TextureSpace:
    """Channels are red, green and blue times alpha, then alpha, all in [0, 1]: colours mix by their amount of paint."""

    channels: ClassVar[int] = 4
    exclusive: ClassVar[bool] = False
    stretchable: ClassVar[bool] = False
    divisible: ClassVar[bool] = True

    def annotated_channels(self, labels: Texture) -> Bool[Tensor, " channels"]:
        return torch.ones(self.channels, dtype=torch.bool)

    def encode(self, labels: Texture, grid: Grid) -> LabelValues:
        rgba = torch.from_numpy(labels.rgba).float().permute(2, 0, 1) / 255
        return pool(torch.cat([rgba[:3] * rgba[3:], rgba[3:]]), grid)

    def decode(self, values: LabelValues, grid: Grid, decide: Decide = upsample_argmax) -> Texture:
        paint = upsample(values, grid)
        colour = paint[:3] / paint[3:].clamp_min(1e-6)
        rgba = torch.cat([colour, paint[3:]]).clamp(0, 1) * 255
        return Texture(rgba.round().byte().permute(1, 2, 0).contiguous().numpy())

    @property
    def objects(self) -> tuple[str, ...]:
        return ("texture",)

    def extent(self, values: LabelValues) -> Extent:
        return values[..., 3:]

    def presence(self, labels: Texture) -> tuple[Presence | None, ...]:
        return ("visible",)

    def restore_annotated(self, annotation: Texture, decoded: Texture) -> Texture:
        return annotation

    def extended(self, labels: Texture) -> "TextureSpace":
        raise second_annotation("textures")


def striped(labels: Labels) -> Texture:
    """Paint six horizontal stripes of equal height over all objects of the masks (section 4.5 of the paper)."""
    if not isinstance(labels, Masks):
        raise LabelError(f"stripes are painted on the mask of one frame, not on {labels.kind}", remedy="give a mask")
    inside = labels.ids > 0
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


def _colour_codes(texture: Texture) -> Int[np.ndarray, "height width"]:
    """Return each pixel's RGBA as one number; 0 for transparent pixels of any colour."""
    rgba = texture.rgba.astype(np.int64)
    code = (rgba[..., 0] << 24) | (rgba[..., 1] << 16) | (rgba[..., 2] << 8) | rgba[..., 3]
    return np.where(rgba[..., 3] == 0, 0, code)


def _colours(textures: Sequence[Texture]) -> tuple[int, ...]:
    codes = {int(code) for texture in textures for code in np.unique(_colour_codes(texture))}
    return (0, *sorted(codes - {0}))
