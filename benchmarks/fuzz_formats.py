"""Files of other tools for benchmarks/fuzz.py: each format's whole files, changed, and read by its reader.

Formats whose package is not installed are left out.
"""

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np

from fuzz_kind import Kind, expect
from fuzz_mutations import changed_csv, changed_json, changed_zip, damaged
from timecycle.extras import import_extra
from timecycle.formats.registry import read_file, write_file
from timecycle.formats.video_labels import VideoFacts, VideoLabels
from timecycle.formats.youtube_vos import read_names
from timecycle.labels import Keypoints, Labels, Masks
from timecycle.video import open_video

Change = Callable[[Random, bytes], bytes]

_SIZE, _FRAMES, _FPS = (48, 64), 4, 24.0
_VIDEO = VideoFacts(name="clip.mp4", frames=_FRAMES, size=_SIZE, fps=_FPS)
_READ_FRAMES = 50  # of a file that announces millions
_NUMBERS = (b"0", b"-1", b"1e309", b"nan", b"99999999999999999999", b"0.5", b"", b"x", b"65536", b"2147483648", b"-0")


def _masks(frames: int) -> VideoLabels:
    ids = np.zeros((frames, *_SIZE), np.uint16)
    ids[:, 8:30, 4:22], ids[:, 12:16, 8:12], ids[1:, 30:40, 40:60] = 1, 0, 2
    labels: Mapping[int, Labels] = {index: Masks(one) for index, one in enumerate(ids)}
    return VideoLabels(kind=Masks, labels=labels, video=_VIDEO, names={"1": "Zelle №1"})


def _points(frames: int) -> VideoLabels:
    def at(index: int) -> Keypoints:
        xy = np.array([(10.25 + index, 20.5), (3.125, 40 - index)], np.float32)
        return Keypoints(("nose", "tail"), xy, np.array([True, index != 2]), np.array([0.5, 0.25], np.float32))

    return VideoLabels(kind=Keypoints, labels={index: at(index) for index in range(frames)}, video=_VIDEO)


@dataclass(frozen=True)
class Tool:
    """How the files of a format are made and changed."""

    suffix: str
    change: Change
    kinds: tuple[str, ...] = ("masks", "keypoints")
    packages: tuple[str, ...] = ()
    format_name: str = ""  # if it is not the kind's
    patience_seconds: float = 20.0


def changed_text(chance: Random, content: bytes) -> bytes:
    """Text in which a number or a word has become another one, or bytes are damaged."""
    if chance.random() < 0.4:
        return damaged(chance, content)
    for _ in range(chance.choice((1, 1, 2, 5))):
        places = list(re.finditer(rb"-?\d+(?:\.\d+)?" if chance.random() < 0.8 else rb"[A-Za-z_]{2,}", content))
        if places:
            place = chance.choice(places)
            other = chance.choice(_NUMBERS) if chance.random() < 0.7 else chance.choice(places)[0]
            content = content[: place.start()] + other + content[place.end() :]
    return content


TOOLS = {
    "coco": Tool(".json", changed_json, packages=("pycocotools",)),
    "ytvis": Tool(".json", changed_json, ("masks",), ("pycocotools",)),
    "cvat": Tool(".xml", changed_text),
    "yolo": Tool("", changed_text),
    "deeplabcut": Tool(".csv", changed_csv, ("keypoints",)),
    "tapvid": Tool(".npz", changed_zip, ("keypoints",)),
    # The process that reads them first may take seconds of the processor, and a busy machine far longer.
    "sleap": Tool(".slp", damaged, packages=("sleap_io", "h5py"), patience_seconds=120.0),
    "deeplabcut_h5": Tool(
        *(".h5", damaged, ("keypoints",), ("h5py", "pandas", "tables")),
        format_name="deeplabcut",
        patience_seconds=120.0,
    ),
    "tiff": Tool(".tif", damaged, ("masks",), ("tifffile",)),
}


def whole(name: str, tool: Tool, folder: Path) -> list[Path]:
    """The files of a format, one for each kind of labels."""
    files = []
    for kind in tool.kinds:
        path = folder / f"{kind}{tool.suffix}"
        labels = (_masks if kind == "masks" else _points)(_FRAMES)
        write_file(labels, path, name=name)
        files.append(path)
    return files


def change_one(tool: Tool, chance: Random, sources: list[Path], folder: Path) -> Path:
    """A copy in which one file is changed."""
    source = chance.choice(sources)
    path = folder / f"labels{tool.suffix}"
    if source.is_dir():
        shutil.copytree(source, path)
        changed = chance.choice(sorted(one for one in path.rglob("*") if one.is_file()))
    else:
        changed = Path(shutil.copy(source, path))
    changed.write_bytes(tool.change(chance, changed.read_bytes()))
    return path


def read_all(name: str, path: Path) -> None:
    """All labels, with what is known of the video and, of formats that know their size, without it."""
    for video in (_VIDEO,) if name == "yolo" else (None, _VIDEO):
        read = read_file(path, video, name=name)
        for index, labels in islice(read.labels.items(), _READ_FRAMES):
            expect(isinstance(labels, Labels), f"frame {index} has no labels")
            if video is not None:
                expect(0 <= index < _FRAMES, f"frame {index} is not one of the video")


# TIFF stacks as videos, and names of YouTube-VOS


def whole_stacks(folder: Path) -> list[Path]:
    """Stacks of one and two channels, whole and compressed."""
    tifffile = import_extra("tifffile", extra="tiff")
    values = (np.random.default_rng(0).random((_FRAMES, 2, *_SIZE)) * 4000).astype(np.uint16)
    tifffile.imwrite(folder / "one.tif", values[:, 0], imagej=True, metadata={"axes": "TYX", "finterval": 2.0})
    tifffile.imwrite(folder / "two.tif", values, imagej=True, metadata={"axes": "TCYX", "unit": "um"})
    tifffile.imwrite(folder / "packed.tif", values[:, 0], compression="zlib", metadata=None)
    tifffile.imwrite(folder / "float.ome.tif", values[:, 0] / np.float32(4000), metadata={"axes": "TYX"})
    return sorted(folder.iterdir())


def read_stack(path: Path) -> None:
    """Frames of one size, forwards and one by its index, and the values they are made from."""
    with open_video(path) as video:
        for frame in islice(video, _READ_FRAMES):
            expect(frame.image.shape == (*video.size.shape, 3), "a frame has another size than its video")
        values = video.values(len(video) - 1)
        expect(values is None or values.shape[:2] == video.size.shape, "values have another size than the video")


_META = b'{"videos": {"v": {"objects": {"1": {"category": "ape", "frames": ["00000"]}, "2": {"category": "dog"}}}}}'


def change_meta(chance: Random, content: bytes, folder: Path) -> Path:
    """A changed meta.json beside a folder of masks."""
    masks = folder / "Annotations" / "v"
    masks.mkdir(parents=True)
    (folder / "meta.json").write_bytes(changed_json(chance, content))
    return masks


def read_meta(masks: Path) -> None:
    expect(all(isinstance(name, str) for name in read_names([masks]).values()), "a name is no text")


KINDS = {
    **{
        name: Kind(
            prepare=partial(whole, tool.format_name or name, tool),
            make=partial(change_one, tool),
            read=partial(read_all, tool.format_name or name),
            patience_seconds=tool.patience_seconds,
        )
        for name, tool in TOOLS.items()
        if all(find_spec(package) is not None for package in tool.packages)
    },
    **(
        {"stacks": Kind(prepare=whole_stacks, make=partial(change_one, TOOLS["tiff"]), read=read_stack)}
        if find_spec("tifffile")
        else {}
    ),
    "youtube_vos": Kind(prepare=lambda _: _META, make=change_meta, read=read_meta, share=0.5),
}
