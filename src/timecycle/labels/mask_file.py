"""Read and write mask files: palette and grey values are object ids, colours become ids by a fixed rule."""

import io
import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int, UInt8, UInt16
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from timecycle.errors import LabelError
from timecycle.labels.drawing import colours_in_words, palette, voc_palette
from timecycle.labels.edges import Pixels, edges_of, hardened, is_partly_soft
from timecycle.labels.file import files_in_words, note, open_image

# Remarks on how an ambiguous file was read.
_SOFT = "soft edges: a pixel belongs to the object where at least half of it does"
_BLACK = "an opaque black shape on a transparent ground: the shape is read as the object"
_ON_WHITE = "a black shape on a white ground: the shape is read as the object"
_WIDE = (
    "a white part that covers most of the picture and touches all four borders: it is read as the object; "
    "if the dark part is the object, invert the mask"
)
_BLACK_GROUND = "black beside transparent pixels: both are read as background, so draw objects in other colours"

_COLOUR_MODES = ("RGB", "RGBA", "PA", "CMYK", "YCbCr", "LAB", "HSV")
_IDS_KEY = "timecycle-ids"  # PNG text with the checksum of grey ids: tells our own files from edited ones


@dataclass(frozen=True, eq=False)
class MaskFile:
    """The contents of a mask file.

    coloured: the ids only number the colours of the file and do not say which object is meant.
    remark: how an ambiguous file was read.
    colours: ids by colour (0xRRGGBB), if the file shows objects as colours.
    """

    path: Path
    ids: UInt16[np.ndarray, "height width"]
    coloured: bool = False
    remark: str = ""
    colours: Mapping[int, int] = field(default_factory=dict)


def read_mask_files(paths: Sequence[str | Path], *, colours: Sequence[int] = ()) -> list[MaskFile]:
    """Read mask files, with one note for all files that were read in the same way."""
    files = [_read(Path(path), colours) for path in paths]
    for remark in dict.fromkeys(file.remark for file in files if file.remark):
        same = [file.path for file in files if file.remark == remark]
        note(f"{files_in_words(same)} {'has' if len(same) == 1 else 'have'} {remark}")
    return files


def note_colours(files: Iterable[MaskFile]) -> None:
    """Note which object each colour became, if the files do not define it."""
    files = [file for file in files if file.coloured and file.colours]
    table = {code: i for file in files for code, i in file.colours.items()}
    if table:
        note(f"{files_in_words([file.path for file in files])}: {colours_in_words(table)}")


def ids_png(ids: UInt16[np.ndarray, "height width"], *, sixteen_bit: bool = False, grey: bool = False) -> bytes:
    """Encode ids as a palette PNG, or as a grey one of 8 or 16 bits."""
    info = PngInfo()
    if sixteen_bit:
        image = Image.fromarray(ids)
    else:
        image = Image.fromarray(ids.astype(np.uint8))
        if grey:
            info.add_text(_IDS_KEY, _checksum(ids))
        else:
            image.putpalette(palette().tobytes())
    file = io.BytesIO()
    # Level 1 compresses these flat images nearly as well as the default, several times faster.
    image.save(file, format="PNG", compress_level=1, pnginfo=info)
    return file.getvalue()


def colours_in(paths: Iterable[Path]) -> tuple[int, ...]:
    """Return the colours (0xRRGGBB) of RGB masks that are not all in one known palette, in a fixed order.

    Colours are numbered 1, 2, ... in this order: by red, then green, then blue. A colour of our own palette keeps its
    id. Files that are read together must be numbered together; otherwise one colour could mean different objects in
    different files.
    """
    colours: set[int] = set()
    numbered: Path | None = None
    for path in paths:
        with open_image(Path(path)) as image:
            _refuse_jpeg(Path(path), image)  # before its invented colours are taken for soft edges
            if image.mode in _COLOUR_MODES:
                colours |= {int(code) for code in np.unique(_codes(_interpreted(Path(path), _rgba(image))[0]))}
            else:
                numbered = Path(path)
    if _palette_of(colours) is not None:
        return ()
    if numbered is not None:
        raise LabelError(
            f"{numbered} numbers its objects but other masks show them as colours of their own",
            remedy="save all masks the same way: palette PNGs, or RGB with one colour per object",
        )
    return tuple(sorted(colours - {0}))


def _refuse_jpeg(path: Path, image: Image.Image) -> None:
    if image.format in ("JPEG", "MPO"):
        raise LabelError(
            f"{path} is a JPEG, whose compression invents values around every outline",
            remedy="save the mask as a PNG",
        )


def _read(path: Path, colours: Sequence[int]) -> MaskFile:
    with open_image(path) as image:
        _refuse_jpeg(path, image)
        if image.mode == "P":
            return MaskFile(path, np.array(image).astype(np.uint16))
        if image.mode == "1":
            bits, remark = _interpreted(path, np.array(image.convert("L"))[..., None])
            return MaskFile(path, (bits[..., 0] > 0).astype(np.uint16), remark=remark)
        if image.mode in ("L", "LA"):
            grey = np.array(image).reshape(image.height, image.width, -1)
            if image.info.get(_IDS_KEY) == _checksum(grey[..., 0]):
                return MaskFile(path, grey[..., 0].astype(np.uint16))
            grey[grey[..., -1] == 0] = 0  # values under transparent pixels are meaningless
            grey, remark = _interpreted(path, grey)
            return MaskFile(path, grey[..., 0].astype(np.uint16), remark == _BLACK, remark)
        if image.mode.startswith("I"):
            return MaskFile(path, _whole_ids(path, np.array(image).astype(np.int64)))
        if image.mode in _COLOUR_MODES:
            return _read_colours(path, _rgba(image), colours)
        raise LabelError(
            f"{path} is an image of mode {image.mode}, whose values are not object ids",
            remedy="save the mask as a palette, grey or RGB PNG",
        )


def _read_colours(path: Path, rgba: UInt8[np.ndarray, "height width 4"], colours: Sequence[int]) -> MaskFile:
    rgba, remark = _interpreted(path, rgba)
    codes = _codes(rgba)
    values, inverse = np.unique(codes, return_inverse=True)
    present = {int(value) for value in values}
    table = _palette_of(present)
    numbered = bool(colours) or table is None
    if colours or table is None:
        table = {0: 0} | _numbered(colours or present - {0})
    unknown = sorted(present - set(table))
    if unknown:
        raise LabelError(
            f"{path} has the colour #{unknown[0]:06x}, which stands for no object",
            remedy="read masks that belong together with colours=colours_in(all of them)",
        )
    ids = np.array([table[int(value)] for value in values], np.uint16)[inverse.reshape(codes.shape)]
    by_colour = {code: table[code] for code in sorted(present - {0})} if remark != _BLACK else {}
    return MaskFile(path, ids, numbered or remark == _BLACK, remark, by_colour)


def _numbered(colours: Iterable[int]) -> dict[int, int]:
    """Number colours that are not all in one palette; colours of our own palette keep their ids, as in label files."""
    own = {code: i for code, i in _palette_ids("own").items() if code in set(colours)}
    free = (i for i in count(1) if i not in own.values())
    return own | {code: next(free) for code in sorted(set(colours) - own.keys())}


def _interpreted(path: Path, pixels: Pixels) -> tuple[Pixels, str]:
    """Remove soft edges, and read a black shape on a white or transparent ground as an object; with a remark."""
    pixels, remark = _hard(path, pixels)
    ground = _white_ground(pixels)
    if ground == _ON_WHITE:
        pixels = pixels.copy()
        pixels[..., : max(pixels.shape[-1] - 1, 1)] ^= 255
    if ground:
        return pixels, ground
    alpha = pixels[..., -1] if pixels.shape[-1] > 1 else np.full(pixels.shape[:2], 255, np.uint8)
    black = (alpha > 0) & (pixels[..., :-1] == 0).all(axis=-1)
    if (alpha > 0).all() or not black.any():
        return pixels, remark
    if not np.array_equal(black, alpha > 0):
        return pixels, _BLACK_GROUND
    shape = np.array((1, 255) if pixels.shape[-1] == 2 else (*palette()[1], 255), np.uint8)
    return np.where(black[..., None], shape, 0).astype(np.uint8), _BLACK


def _white_ground(pixels: Pixels) -> str:
    """Return a remark if white may be the ground of a black and white picture, as in every paint program.

    White is the ground if it covers the whole border and more than half of the picture. A picture that is all white is
    an object that fills the frame.
    """
    values, alpha = pixels[..., : max(pixels.shape[-1] - 1, 1)], pixels[..., 1:][..., -1:]
    white, black = ((values == value).all(axis=-1) for value in (255, 0))
    if not ((white | black).all() and (alpha == 255).all()) or 2 * int(white.sum()) <= white.size or white.all():
        return ""
    sides = (white[0], white[-1], white[:, 0], white[:, -1])
    if all(side.all() for side in sides):
        return _ON_WHITE
    return _WIDE if all(side.any() for side in sides) else ""


def _hard(path: Path, pixels: Pixels) -> tuple[Pixels, str]:
    """Remove soft edges, with a remark. Refuse those of several objects, whose blended values are ambiguous."""
    edges = edges_of(pixels)
    if edges.invented < 2:
        return pixels, ""
    hard = hardened(pixels)
    if hard is not None and (edges.soft or is_partly_soft(pixels, hard, edges)):
        return hard, _SOFT
    if edges.soft:
        raise LabelError(
            f"{path} has soft edges and more than two tones: {edges.invented} of its {edges.values} values lie between "
            "those on both sides of an outline",
            remedy="draw with a hard brush (anti-aliasing off) and resize with nearest neighbour; "
            "if every value is an object, save a palette PNG; if it is a photo, paint the objects on black instead",
        )
    return pixels, ""


def _rgba(image: Image.Image) -> UInt8[np.ndarray, "height width 4"]:
    """Return RGBA pixels; transparent pixels are black, since colours under them are meaningless."""
    rgba = np.array(image.convert("RGBA"))
    rgba[rgba[..., 3] == 0] = 0
    return rgba


def _codes(rgba: UInt8[np.ndarray, "height width 4"]) -> Int[np.ndarray, "height width"]:
    """Return colours as 0xRRGGBB."""
    red, green, blue = (rgba[..., channel].astype(np.int64) for channel in range(3))
    return (red << 16) | (green << 8) | blue


@cache
def _palette_ids(scheme: Literal["own", "voc"]) -> dict[int, int]:
    table = palette() if scheme == "own" else voc_palette()
    return {(int(r) << 16) | (int(g) << 8) | int(b): i for i, (r, g, b) in enumerate(table)}


def _palette_of(colours: Set[int]) -> dict[int, int] | None:
    """Return the ids of a palette, ours or PASCAL VOC's, that has all these colours; the two share only black."""
    return next((table for table in map(_palette_ids, ("own", "voc")) if colours <= table.keys()), None)


def _whole_ids(path: Path, values: Int[np.ndarray, "height width"]) -> UInt16[np.ndarray, "height width"]:
    if values.size and (values.min() < 0 or values.max() > 65535):
        raise LabelError(
            f"{path}: a mask has ids from {values.min()} to {values.max()}",
            remedy="number the objects between 1 and 65535, the background 0",
        )
    return values.astype(np.uint16)


def _checksum(ids: np.ndarray) -> str:
    return f"{zlib.crc32(ids.astype(np.uint8).tobytes()):08x}"
