"""Videos, images and files of labels for benchmarks/fuzz.py."""

import hashlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import av
import numpy as np
from PIL import Image

from fuzz_kind import Kind, expect
from fuzz_mutations import (
    changed_csv,
    changed_json,
    changed_npy,
    changed_png,
    damaged,
    flipped,
    resized_box,
    resized_element,
)
from timecycle.labels import Coordinates, Labels, Masks, read_labels
from timecycle.labels.names import read_names
from timecycle.synthetic import WorldConfig, make_world
from timecycle.video import open_video

HEIGHT_PX, WIDTH_PX, FRAMES = 32, 48, 8

# Of these a shorter video is always refused; others have too little that could tell.
_PROMISED = frozenset({".mp4", ".mov", ".mkv", ".webm", ".avi"})
_VIDEOS = _PROMISED | {".apng", ".mxf", ".flv", ".gif", ".h264", ".ts", ".mpg", ".nut", ".wmv", ".y4m"}
_BOXES = tuple(
    name.encode()
    for name in [
        "moov",
        "trak",
        "mdia",
        "stbl",
        "stsz",
        "stts",
        "stco",
        "ctts",
        "stss",
        "stsc",
        "stsd",
        "mdhd",
        "mvhd",
        "tkhd",
        "elst",
        "edts",
        "mdat",
        "ftyp",
        "moof",
        "trun",
        "tfhd",
        "avih",
        "strh",
        "strf",
        "movi",
        "idx1",
        "LIST",
        "00dc",
    ]
)
_ELEMENTS = tuple(
    bytes.fromhex(name)
    for name in ("18538067", "1f43b675", "1654ae6b", "1549a966", "114d9b74", "1c53bb6b", "4489", "a3", "a0", "ae", "e7")
)


def world() -> Any:
    """What all small inputs show."""
    return make_world(WorldConfig(height_px=HEIGHT_PX, width_px=WIDTH_PX, frames=FRAMES))


# Videos


@dataclass(frozen=True)
class Footage:
    """A whole video and the number of its frames."""

    name: str
    content: bytes
    frames: int


@dataclass(frozen=True)
class DamagedVideo:
    """A damaged copy."""

    path: Path
    frames: int  # that the whole video has


def whole_videos(folder: Path) -> list[Footage]:
    """The small videos of damaged/intact in the data; where they are not, some that are made here."""
    data = Path(os.environ.get("TIMECYCLE_DATA", "")) / "damaged" / "intact"
    if not os.environ.get("TIMECYCLE_DATA") or not data.is_dir():
        made = (
            ("a.mp4", "libx264"),
            ("b.mov", "mpeg4"),
            ("c.mkv", "libx264"),
            ("d.webm", "libvpx-vp9"),
            ("e.avi", "mjpeg"),
        )
        for name, codec in made:
            write_video(folder / name, codec)
        data = folder
    paths = sorted(path for path in data.iterdir() if path.suffix in _VIDEOS)
    return [Footage(path.name, path.read_bytes(), len(_hashes(path))) for path in paths]


def write_video(path: Path, codec: str = "libx264") -> None:
    """A short video of the synthetic world."""
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=24)
        stream.width, stream.height = WIDTH_PX, HEIGHT_PX
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.codec_context.thread_count = 1
        for image in world().frames():
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))


def damage_video(chance: Random, sources: list[Footage], folder: Path) -> DamagedVideo:
    """A copy with damage anywhere, or with another size for one of its parts."""
    footage = chance.choice(sources)
    content = footage.content
    if chance.random() < 0.7:
        content = damaged(chance, content)
    elif Path(footage.name).suffix in (".mkv", ".webm"):
        content = resized_element(chance, content, _ELEMENTS)
    else:
        content = resized_box(chance, content, _BOXES)
    path = folder / f"video{Path(footage.name).suffix}"
    path.write_bytes(content)
    return DamagedVideo(path, footage.frames)


def read_video(case: DamagedVideo) -> str:
    """In order, then by index: the same frames, and none is missing."""
    in_order = _hashes(case.path)
    remark = ""
    if len(in_order) < case.frames:
        words = f"{case.path.suffix} has {len(in_order)} of {case.frames} frames"
        expect(case.path.suffix not in _PROMISED, words)
        remark = f"shorter: {case.path.suffix}"
    with open_video(case.path) as video:
        expect(len(video) == len(in_order), f"{case.path.suffix} says {len(video)} frames, {len(in_order)} come")
        for index in (len(video) - 1, *range(0, len(video), 3), len(video) // 2):
            if _hash(video[index].image) != in_order[index]:
                expect(case.path.suffix not in _PROMISED, f"{case.path.suffix}: frame {index} is another by its index")
                remark = f"other by index: {case.path.suffix}"
    return remark


def _hashes(path: Path) -> list[str]:
    with open_video(path) as video:
        return [_hash(frame.image) for frame in video]


def _hash(image: np.ndarray) -> str:
    return hashlib.sha256(image.tobytes()).hexdigest()


# Images


@dataclass(frozen=True)
class Picture:
    """An image file in a format, as it was written and as it is read."""

    name: str
    content: bytes
    pixels: np.ndarray


@dataclass(frozen=True)
class Damaged:
    """A damaged file; `wanted` is what it must give if it gives anything."""

    path: Path
    wanted: np.ndarray | None = None
    how: str = ""


def whole_frames(folder: Path) -> list[Picture]:
    """One frame in every format."""
    image = world().frame(0)
    pictures = []
    for name in ("a.png", "a.jpg", "a.bmp", "a.tif", "a.webp"):
        Image.fromarray(image).save(folder / name)
        pictures.append(Picture(name, (folder / name).read_bytes(), open_video(folder / name)[0].image))
    deep = np.arange(HEIGHT_PX * WIDTH_PX, dtype=np.uint16).reshape(HEIGHT_PX, WIDTH_PX)
    Image.fromarray(deep).save(folder / "deep.png")
    pictures.append(Picture("deep.png", (folder / "deep.png").read_bytes(), open_video(folder / "deep.png")[0].image))
    return pictures


def damage_frame(chance: Random, sources: list[Picture], folder: Path) -> Damaged:
    """A folder of frames, one of which is damaged."""
    picture = chance.choice(sources)
    content, wanted = _damage_picture(chance, picture, sources)
    suffix = Path(picture.name).suffix
    for number in range(3):
        (folder / f"{number}{suffix}").write_bytes(content if number == 1 else picture.content)
    return Damaged(folder, wanted)


def read_frames(case: Damaged) -> None:
    """All frames; a PNG with a flipped bit gives the same pixels or none."""
    with open_video(case.path) as video:
        images = [frame.image for frame in video]
    expect(len(images) == 3, f"{len(images)} of 3 frames")
    if case.wanted is not None:
        expect(np.array_equal(images[1], case.wanted), "a damaged PNG was read as another picture")


def whole_masks(folder: Path) -> list[Picture]:
    """Masks as our writer and other programs save them, with their ids."""
    ids = world().mask(0).astype(np.uint16)
    small = ids.astype(np.uint8)
    deep = Image.fromarray(ids * 300)
    coloured = Image.fromarray(np.stack([small * 80, small * 40, 255 * (small > 0)], axis=-1).astype(np.uint8))
    Masks(ids).write(folder / "palette.png")
    Masks(ids * 300).write(folder / "many.png")
    Image.fromarray(small).save(folder / "grey.png")
    Image.fromarray(small > 0).save(folder / "bits.png")
    coloured.save(folder / "colour.png")
    coloured.convert("RGBA").save(folder / "alpha.png")
    for name in ("m.bmp", "m.tif"):
        Image.fromarray(small).save(folder / name)
    deep.save(folder / "deep.png")
    return [Picture(path.name, path.read_bytes(), _ids(read_labels([path])[0])) for path in sorted(folder.iterdir())]


def damage_mask(chance: Random, sources: list[Picture], folder: Path) -> Damaged:
    """A damaged mask, to be read as masks, parts or a texture."""
    picture = chance.choice(sources)
    content, wanted = _damage_picture(chance, picture, sources)
    path = folder / f"mask{Path(picture.name).suffix}"
    path.write_bytes(content)
    return Damaged(path, wanted, chance.choice(("masks", "masks", "masks", "parts", "texture")))


def read_mask(case: Damaged) -> None:
    """The ids; of a PNG with a flipped bit the same ids or none."""
    size = None if case.how == "texture" else (HEIGHT_PX, WIDTH_PX)
    labels = read_labels([case.path], kind=case.how, size=size)[0]
    if case.wanted is not None and case.how == "masks":
        expect(np.array_equal(_ids(labels), case.wanted), "a damaged PNG was read as other ids")


def _ids(labels: Labels) -> np.ndarray:
    if not isinstance(labels, Masks):
        raise TypeError(f"labels are of kind {labels.kind}")
    return labels.ids


def _damage_picture(chance: Random, picture: Picture, others: list[Picture]) -> tuple[bytes, np.ndarray | None]:
    """Damaged bytes, and what a PNG must give: its checksums tell every flipped bit."""
    act = chance.random()
    if not picture.name.endswith(".png"):
        return (damaged(chance, picture.content) if act < 0.9 else chance.choice(others).content), None
    if act < 0.5:
        return flipped(chance, picture.content), picture.pixels
    if act < 0.85:
        return changed_png(chance, picture.content), None
    if act < 0.92:
        return damaged(chance, picture.content), None
    return _other_format(chance), None


def _other_format(chance: Random) -> bytes:
    """What is no PNG, under its name."""
    written = io.BytesIO()
    image = Image.fromarray(world().frame(0))
    name = chance.choice(("GIF", "JPEG", "TIFF", "WEBP", "PPM", "ICO", "EPS", "PDF", "TGA", "SGI"))
    image.save(written, name)
    return damaged(chance, written.getvalue()) if chance.random() < 0.5 else written.getvalue()


# Coordinates, keypoints, names


def whole_coordinates(folder: Path) -> bytes:
    """An array of coordinates."""
    Coordinates.of_image(HEIGHT_PX, WIDTH_PX).write(folder / "c.npy")
    return (folder / "c.npy").read_bytes()


_POINTS = b"frame,name,x,y,visible,confidence\n0,nose,3.5,4,1,\n0,tail,20,11.25,0,0.5\n2,nose,4,4.5,1,\n2,tail,,,0,\n"
_NAMES = '{"1": "camel", "2": "rider", "3": "Bär"}'.encode()


def in_file(name: str, change: Callable[[Random, bytes], bytes]) -> Callable[[Random, bytes, Path], Path]:
    """Write a changed file."""

    def write(chance: Random, content: bytes, folder: Path) -> Path:
        path = folder / name
        path.write_bytes(change(chance, content))
        return path

    return write


def _read_any(path: Path) -> None:
    read_labels([path])


def _read_names(path: Path) -> None:
    expect(all(isinstance(name, str) for name in read_names(path).values()), "a name is no text")


KINDS = {
    "videos": Kind(prepare=whole_videos, make=damage_video, read=read_video, share=2.5, patience_seconds=60),
    "frames": Kind(prepare=whole_frames, make=damage_frame, read=read_frames, share=3),
    "masks": Kind(prepare=whole_masks, make=damage_mask, read=read_mask, share=4),
    "coordinates": Kind(prepare=whole_coordinates, make=in_file("c.npy", changed_npy), read=_read_any, share=1.5),
    "keypoints": Kind(prepare=lambda _: _POINTS, make=in_file("p.csv", changed_csv), read=_read_any, share=2),
    "names": Kind(prepare=lambda _: _NAMES, make=in_file("names.json", changed_json), read=_read_names),
}
